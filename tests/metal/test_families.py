"""Mixture of experts, gated delta nets and Gemma 4 as whole models on the Metal device: goldens, switches."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from e2e.test_family_goldens import ENTRIES, LONG, golden
from e2e.test_goldens import check_greedy, greedy
from metal.emulator import Emulator
from metal.models import PROMPT, SAMPLED, drawn, loaded, session
from saragossa import _core

# Largest difference of a logit: float32 throughout, sums in another order.
TOLERANCE = 1e-4
# Delta nets, those with experts, windows with shared keys, windows with experts, experts alone.
KINDS = ("qwen3_5-q4g32", "qwen3_next-q4g32", "gemma4-e2b-q4g32", "gemma4-moe-q4g32", "qwen3_moe-q4g32")

pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.mark.parametrize("name", list(ENTRIES))
def test_logits_and_greedy_ids(name: str) -> None:
    z = golden(name)
    prompt = z["prompt"].tolist()
    model = loaded(name)
    logits = _core.Session(model.model, 1, model.context).logits(0, prompt)
    assert np.abs(logits - z["logits"]).max() < TOLERANCE
    ids = greedy(_core.Session(model.model, 1, model.context), prompt, len(z["greedy"]))
    check_greedy(ids, z["greedy"].tolist(), z["margins"].tolist(), 1e-3)


@pytest.mark.parametrize("name", LONG)
def test_more_rows_than_a_chunk_of_the_delta_rule(name: str) -> None:
    z = golden(name)
    core = session(name)
    logits = core.logits(0, z["long_prompt"].tolist())
    assert np.abs(logits[-len(z["long_logits"]) :] - z["long_logits"]).max() < TOLERANCE
    assert (logits.argmax(-1) == z["long_argmax"]).all()


SWITCHES: list[tuple[str, dict[str, str]]] = [
    *((name, {"SARAGOSSA_FUSED": "off"}) for name in KINDS),
    *((name, {"SARAGOSSA_RUN_AHEAD": "off"}) for name in KINDS[:3]),
    *((name, {"SARAGOSSA_METAL_RESIDENT": "off"}) for name in KINDS[1:3]),
    *((name, {"SARAGOSSA_METAL_SORTED_EXPERTS": "off"}) for name in ("qwen3_next-q4g32", "gemma4-moe-q4g32")),
]


@pytest.mark.parametrize(
    ("name", "switch"), SWITCHES, ids=lambda v: v if isinstance(v, str) else next(iter(v))[10:].lower()
)
def test_switches_keep_the_greedy_md5(
    name: str, switch: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def md5() -> str:
        ids = greedy(session(name), PROMPT, 16)
        return hashlib.md5(np.asarray(ids, np.int32).tobytes(), usedforsecurity=False).hexdigest()

    want = md5()
    for key, value in switch.items():
        monkeypatch.setenv(key, value)
    assert md5() == want


@pytest.mark.parametrize(
    ("name", "order"), list(zip(KINDS, ["reversed", "random", "in_order", "random", "reversed"], strict=True))
)
def test_a_checked_model_leaves_no_finding(emulator: Emulator, name: str, order: str) -> None:
    emulator.set("check", True)
    emulator.set("reorder", True)
    emulator.set("order", order)
    z = golden(name)
    ids = greedy(session(name), z["prompt"].tolist(), 3)
    emulator.set("reorder", False)
    check_greedy(ids, z["greedy"].tolist()[:3], z["margins"].tolist()[:3], 1e-3)


def test_a_checked_session_leaves_no_finding(emulator: Emulator) -> None:
    """Steps that run ahead of two rows, a rewind, a snapshot, blocks behind a window given back."""
    emulator.set("check", True)
    emulator.set("order", "random")
    for name in ("qwen3_5_moe-q4g64", "gemma4-e2b-q4g32"):
        core = session(name, rows=2)
        for row, prompt in enumerate((PROMPT[:9], PROMPT[:12])):
            core.configure(row, **SAMPLED)
            core.prefill(row, prompt, True)
            core.mark(row)
        core.step([0, 1])
        core.step([1, 0])
        core.restore(0, core.snapshot(1))
        core.rewind(1, 12)
        core.prefill(1, PROMPT[:2], True)
        core.step([1])


@pytest.mark.parametrize("name", ["qwen3_5_moe-q4g64", "gemma4-moe-q4g32"])
@pytest.mark.parametrize(
    "machine",
    [
        {"gpu_family": 5, "os_version": "14.0"},
        {"gpu_family": 7, "os_version": "14.0"},
        {"gpu_family": 10, "os_version": "26.2", "shuffle_cooperative": True},
    ],
    ids=lambda m: f"apple{m['gpu_family']}-{m['os_version']}",
)
def test_every_machine_gives_the_golden_ids(
    emulator: Emulator, name: str, machine: dict[str, object]
) -> None:
    """What a generation lacks has a fallback: matrices, SIMD reductions, tensor operations."""
    before = {"gpu_family": 9, "os_version": "26.2", "shuffle_cooperative": False}
    z = golden(name)
    try:
        for key, value in machine.items():
            emulator.set(key, value)
        ids = greedy(session(name, exact=False), z["prompt"].tolist(), 12)
    finally:
        for key, value in before.items():
            emulator.set(key, value)
    # bf16 keys and, on an M5, activations that are rounded to half.
    check_greedy(ids, z["greedy"].tolist()[:12], z["margins"].tolist()[:12], 0.1)


@pytest.mark.parametrize("name", ["qwen3_5-q4g32", "gemma4-e2b-q4g32"])
def test_seeded_sampling_draws_what_the_cpu_draws(name: str) -> None:
    want = drawn(session(name, device="cpu"), 0, PROMPT, 16, SAMPLED)
    assert drawn(session(name), 0, PROMPT, 16, SAMPLED) == want
