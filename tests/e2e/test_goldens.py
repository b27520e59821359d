"""Whole models against logits of the reference implementation; tests/golden/make_checkpoints.py made them.

Tolerances: the exact path differs from the reference by the order of float32 sums only. The default path
also rounds activations (15 bits) and the cache (bf16).
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saragossa import _core
from saragossa.engine.loading import load

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoints"
MANIFEST: dict[str, Any] = json.loads((GOLDEN / "manifest.json").read_text())["checkpoints"]
NAMES = sorted(MANIFEST)
ISAS = [isa for isa in ("scalar", "avx2", "avx512", "neon") if isa in _core.instruction_sets()]

# Largest difference of a logit (their deviation is about 1.2), measured over all checkpoints and rounded up.
EXACT, DEFAULT = 5e-5, 5e-2
MARGIN = 2 * DEFAULT  # of a greedy step whose token must be the reference's on the default path


def session(folder: Path, *, exact: bool) -> _core.Session:
    loaded = load(folder, device="cpu", exact=exact)
    return _core.Session(loaded.model, 1, loaded.context)


def golden(name: str) -> dict[str, Any]:
    with np.load(GOLDEN / f"{name}.npz") as arrays:
        return {key: arrays[key] for key in arrays.files}


def greedy(core: _core.Session, prompt: list[int], count: int) -> list[int]:
    core.configure(0)
    core.prefill(0, prompt, True)
    ids = [core.drawn(0)[0]]
    while len(ids) < count:
        core.step([0])
        ids.append(core.drawn(0)[0])
    return ids


def teacher_forced(core: _core.Session, prompt: list[int], want: list[int]) -> list[int]:
    """What greedy decoding draws after the prompt and each of the reference's own tokens."""
    core.configure(0)
    core.prefill(0, prompt, True)
    ids = [core.drawn(0)[0]]
    for token in want[:-1]:
        core.prefill(0, [token], True)
        ids.append(core.drawn(0)[0])
    return ids


def check_greedy(ids: list[int], want: list[int], margins: list[float], least: float) -> None:
    """Equal up to the first near tie: from there on the texts may part."""
    for step, (got, expected, margin) in enumerate(zip(ids, want, margins, strict=True)):
        if got != expected:
            assert margin <= least, f"step {step}: {got} instead of {expected} at margin {margin:.3f}"
            return


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("exact", [True, False], ids=["exact", "default"])
def test_logits_and_greedy_ids(name: str, exact: bool) -> None:
    z = golden(name)
    prompt = z["prompt"].tolist()
    logits = session(GOLDEN / name, exact=exact).logits(0, prompt)
    assert np.abs(logits - z["logits"]).max() < (EXACT if exact else DEFAULT)
    if exact:
        assert (logits.argmax(-1) == z["logits"].argmax(-1)).all()
    want, margins = z["greedy"].tolist(), z["margins"].tolist()
    least = 1e-3 if exact else MARGIN
    forced = teacher_forced(session(GOLDEN / name, exact=exact), prompt, want)
    for step, (got, expected, margin) in enumerate(zip(forced, want, margins, strict=True)):
        assert got == expected or margin <= least, f"step {step}: {got} instead of {expected} at {margin:.3f}"
    check_greedy(greedy(session(GOLDEN / name, exact=exact), prompt, len(want)), want, margins, least)


@pytest.mark.parametrize("name", [n for n in NAMES if "base" not in MANIFEST[n]])
def test_older_config_form_gives_the_same_logits(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    shutil.copytree(GOLDEN / name, folder)
    shutil.copy(folder / "config.hub.json", folder / "config.json")
    prompt = golden(name)["prompt"].tolist()
    want = session(GOLDEN / name, exact=True).logits(0, prompt)
    assert np.array_equal(session(folder, exact=True).logits(0, prompt), want)


@pytest.mark.parametrize("name", [n for n in NAMES if "long_prompt" in golden(n)])
@pytest.mark.parametrize("exact", [True, False], ids=["exact", "default"])
def test_long_prompt(name: str, exact: bool) -> None:
    z = golden(name)
    prompt = z["long_prompt"].tolist()
    core = session(GOLDEN / name, exact=exact)
    tail = len(z["long_logits"])
    half = len(prompt) // 2
    for start, stop in ((0, half), (half, len(prompt) - tail)):  # chunks that end inside a block
        core.prefill(0, prompt[start:stop], False)
    logits = core.logits(0, prompt[-tail:])
    assert np.abs(logits - z["long_logits"]).max() < (EXACT if exact else DEFAULT)


@pytest.mark.parametrize("name", NAMES)
def test_hidden_states_tell_the_first_wrong_layer(name: str) -> None:
    z = golden(name)
    layers = len(z["hidden_norm"]) - 2
    hidden = session(GOLDEN / name, exact=True).hidden(0, z["prompt"].tolist())
    for layer in range(layers):
        want = z["hidden_first8"][layer + 1]
        assert np.allclose(hidden[layer, :8], want, atol=1e-4, rtol=1e-4), f"layer {layer}"
        assert np.isclose(np.linalg.norm(hidden[layer]), z["hidden_norm"][layer + 1], rtol=1e-4), (
            f"layer {layer}"
        )


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("fused", ["on", "off"])
@pytest.mark.parametrize("name", ["llama-q4g64", "qwen3-q6g64", "gemma3_text-q8g32", "qwen2", "mistral"])
def test_switches_keep_the_greedy_ids(
    name: str, isa: str, fused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SARAGOSSA_ISA", isa)
    monkeypatch.setenv("SARAGOSSA_FUSED", fused)
    z = golden(name)
    ids = greedy(session(GOLDEN / name, exact=True), z["prompt"].tolist(), len(z["greedy"]))
    check_greedy(ids, z["greedy"].tolist(), z["margins"].tolist(), 1e-3)
