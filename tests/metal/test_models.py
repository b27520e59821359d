"""Whole models on the Metal device: goldens, the loop that stays on the device, faults, machines."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import saragossa
import saragossa.errors
from e2e.test_goldens import GOLDEN, NAMES, check_greedy, golden, greedy
from e2e.test_sessions import check_snapshots
from metal.emulator import Emulator
from metal.models import PROMPT, SAMPLED, drawn, loaded, session
from saragossa import _core

# Largest difference of a logit: float32 throughout, sums in another order.
TOLERANCE = 1e-4


pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.mark.parametrize("name", NAMES)
def test_logits_and_greedy_ids(name: str) -> None:
    z = golden(name)
    prompt = z["prompt"].tolist()
    logits = session(name).logits(0, prompt)
    assert np.abs(logits - z["logits"]).max() < TOLERANCE
    ids = greedy(session(name), prompt, len(z["greedy"]))
    check_greedy(ids, z["greedy"].tolist(), z["margins"].tolist(), 1e-3)


SWITCHES: list[dict[str, str]] = [
    {"SARAGOSSA_FUSED": "off"},
    {"SARAGOSSA_METAL_RESIDENT": "off"},
    {"SARAGOSSA_RUN_AHEAD": "off"},
    {"SARAGOSSA_METAL_STATISTICS": "off"},
]


def md5(ids: list[int]) -> str:
    return hashlib.md5(np.asarray(ids, np.int32).tobytes(), usedforsecurity=False).hexdigest()


@pytest.mark.parametrize("name", ["llama-q4g64", "qwen3-q6g64", "gemma3_text-q8g32", "qwen2"])
@pytest.mark.parametrize("switch", SWITCHES, ids=lambda s: next(iter(s)).removeprefix("SARAGOSSA_").lower())
def test_switches_keep_the_greedy_md5(
    name: str, switch: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    want = md5(greedy(session(name), PROMPT, 24))
    for key, value in switch.items():
        monkeypatch.setenv(key, value)
    assert md5(greedy(session(name), PROMPT, 24)) == want


@pytest.mark.parametrize("order", ["in_order", "reversed", "random"])
def test_a_checked_model_leaves_no_finding(emulator: Emulator, order: str) -> None:
    emulator.set("check", True)
    emulator.set("reorder", True)
    emulator.set("order", order)
    z = golden("qwen3-q4g64")
    ids = greedy(session("qwen3-q4g64"), z["prompt"].tolist(), 6)
    emulator.set("reorder", False)
    check_greedy(ids, z["greedy"].tolist()[:6], z["margins"].tolist()[:6], 1e-3)


def test_seeded_sampling_draws_what_the_cpu_draws() -> None:
    want = drawn(session("qwen3-q4g64", device="cpu"), 0, PROMPT, 20, SAMPLED)
    assert drawn(session("qwen3-q4g64"), 0, PROMPT, 20, SAMPLED) == want


def test_rewind_and_continue_equal_fresh() -> None:
    core = session("gemma3_text-q4g64")
    fresh = core.logits(0, PROMPT)[-1]
    core.rewind(0, 20)
    core.configure(0)
    core.prefill(0, PROMPT[20:30], True)
    for _ in range(3):
        core.step([0])
    core.rewind(0, 30)
    assert np.abs(core.logits(0, PROMPT[30:])[-1] - fresh).max() < TOLERANCE


def test_snapshots() -> None:
    model = loaded("qwen3-q4g64")
    check_snapshots(model.model, model.context)


def test_library_generates_on_metal() -> None:
    with saragossa.LLM(GOLDEN / "llama-q4g64", device="metal") as llm:
        assert llm.device_description.startswith("metal (")
        done = llm.generate([PROMPT, PROMPT[:7]], max_tokens=9, ignore_eos=True)
        assert [len(d.token_ids) for d in done] == [9, 9]
        alone = llm.generate(PROMPT[:7], max_tokens=9, ignore_eos=True)
        assert alone.token_ids == done[1].token_ids


@pytest.mark.parametrize("fault", ["fail_allocation", "fail_command_buffer", "fail_compile"])
def test_faults_are_errors_and_the_process_goes_on(emulator: Emulator, fault: str) -> None:
    """Each of the first attempts fails once: an exception that says what, then all is well again."""
    z = golden("llama-q4g64")
    want = z["greedy"].tolist()[:4]
    refused = 0
    for attempt in range(0, 60, 7):
        emulator.set(fault, attempt)
        try:
            ids = greedy(session("llama-q4g64"), z["prompt"].tolist(), 4)
        except saragossa.errors.DeviceError as error:
            refused += "metal" in str(error)
        else:
            assert ids == want
        emulator.set(fault, -1)
        assert greedy(session("llama-q4g64"), z["prompt"].tolist(), 4) == want
    assert refused


def test_a_kernel_without_a_pipeline_is_named(emulator: Emulator) -> None:
    emulator.set("fail_compile_of", "rms_norm")
    with pytest.raises(saragossa.errors.DeviceError, match="norm"):
        greedy(session("llama-q4g64"), PROMPT, 4)
    emulator.set("fail_compile_of", "")
    assert greedy(session("llama-q4g64"), PROMPT, 4)


# Each generation and the oldest system: what one lacks has a fallback that gives the same tokens.
MACHINES: list[dict[str, object]] = [
    {"gpu_family": 5, "os_version": "14.0", "tensor_ops": False},
    {"gpu_family": 7, "os_version": "14.0", "tensor_ops": False},
    {"gpu_family": 9, "os_version": "15.0", "tensor_ops": False},
    {"gpu_family": 10, "os_version": "26.0", "tensor_ops": False},
    {"gpu_family": 10, "os_version": "26.2", "shuffle_cooperative": True, "tensor_ops": True},
    {"gpu_family": 9, "os_version": "26.2", "perturb_fast": 4, "tensor_ops": False},
]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"apple{m['gpu_family']}-{m['os_version']}")
def test_every_machine_gives_the_golden_ids(emulator: Emulator, machine: dict[str, object]) -> None:
    before = {"gpu_family": 9, "os_version": "26.2", "shuffle_cooperative": False, "perturb_fast": 0}
    z = golden("gemma3_text-q4g64")
    prompt = z["prompt"].tolist()
    try:
        for name in machine.keys() & before.keys():
            emulator.set(name, machine[name])
        model = loaded("gemma3_text-q4g64", exact=False)
        core = _core.Session(model.model, 1, model.context)
        ids = greedy(core, prompt, len(z["greedy"]))
    finally:
        for name, value in before.items():
            emulator.set(name, value)
    assert ("tensor operations" in model.device.description) == (machine["tensor_ops"] is True)
    check_greedy(ids, z["greedy"].tolist(), z["margins"].tolist(), 1e-2)
