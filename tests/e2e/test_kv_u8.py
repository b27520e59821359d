"""A cache of u8: blocks that sequences share take their scales along, a token's memory, closeness to bf16."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import saragossa
from saragossa import _core
from saragossa.cli.fits import fit
from saragossa.engine.loading import load

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoints"
NAMES = ["qwen3", "gemma3_text", "llama-q4g32"]
PROMPT = [7, 3, 11, 40, 2, 19, 23, 5, 31, 8] * 4


@pytest.fixture(autouse=True)
def float_activations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARAGOSSA_ACTIVATIONS", "f32")


def model_of(name: str, kv: str) -> _core.Model:
    return load(GOLDEN / name, device="cpu", kv=kv).model


@pytest.mark.parametrize("name", NAMES)
def test_a_shared_block_is_copied_with_its_scales(name: str) -> None:
    """Two that go on from one snapshot write into the block behind it; each is as if it were alone."""
    model = model_of(name, "u8")
    alone = [_core.Session(model, rows=1, context=200) for _ in range(2)]
    ends = [[5, 9, 13, 4], [30, 1, 22, 6]]
    want = []
    for session, end in zip(alone, ends, strict=True):
        session.prefill(0, PROMPT, False)
        want.append([session.logits(0, [token]) for token in end])
    first = _core.Session(model, rows=1, context=200)
    first.prefill(0, PROMPT, False)
    snapshot = first.snapshot(0)
    second = _core.Session(model, rows=1, context=200)
    second.restore(0, snapshot)
    for step in range(4):  # in turns
        for session, end, logits in zip((second, first), ends, want, strict=True):
            assert np.array_equal(session.logits(0, [end[step]]), logits[step]), step


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_near_those_of_float32(name: str) -> None:
    """And not the same, which would mean that u8 was not taken."""
    logits = {}
    for kv in ("f32", "bf16", "u8"):
        session = _core.Session(model_of(name, kv), rows=1, context=200)
        logits[kv] = np.concatenate([session.logits(0, PROMPT), session.logits(0, [5])])
    scale = logits["f32"].std()
    errors = {kv: float(np.sqrt(np.mean((logits[kv] - logits["f32"]) ** 2)) / scale) for kv in ("bf16", "u8")}
    assert errors["bf16"] < errors["u8"] < 0.05


@pytest.mark.parametrize("kv", ["bf16", "u8", "f32"])
@pytest.mark.parametrize("name", NAMES)
def test_doctor_counts_what_a_token_takes(name: str, kv: str) -> None:
    expected = fit(name, GOLDEN / name, 1 << 40, None, kv).kv_bytes_per_token
    assert model_of(name, kv).kv_bytes_per_token == expected


def test_generates() -> None:
    with saragossa.LLM(GOLDEN / "qwen3", device="cpu", kv="u8") as llm:
        assert len(llm.generate(PROMPT, max_tokens=5).token_ids) == 5
