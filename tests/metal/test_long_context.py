"""Decode behind 32768 tokens on the Metal device: keys, windows and states, beside a short row."""

from __future__ import annotations

import numpy as np
import pytest

from e2e.long_context import CONTEXT, model, prefill, tokens
from metal.emulator import Emulator
from saragossa import _core

pytestmark = pytest.mark.usefixtures("unchecked")

PROMPT = tokens()


@pytest.mark.parametrize(
    "name", ["families/qwen3_5", pytest.param("families/gemma4_unified", marks=pytest.mark.long)]
)
def test_decode_behind_a_long_prompt(emulator: Emulator, name: str) -> None:
    """From a snapshot in another row, as on the CPU. The layer that sees all keys is the last one: the prompt
    stops before its attention, so that 32768 tokens take seconds on the emulator.
    """

    def run(device: str) -> tuple[np.ndarray, list[list[int]]]:
        core = _core.Session(model(name, (0, 1, 2), device=device), 2, CONTEXT)
        prefill(core, PROMPT[:-1])
        kept = core.snapshot(0)
        logits = core.logits(0, PROMPT[-1:])
        core.restore(1, kept)
        core.rewind(0, 0)
        ids: list[list[int]] = [[], []]
        for row, prompt in enumerate((PROMPT[:20], PROMPT[-1:])):
            core.prefill(row, prompt, True)
            ids[row].append(core.drawn(row)[0])
        for _ in range(7):
            core.step([1, 0])
            for row in (0, 1):
                ids[row].append(core.drawn(row)[0])
        if device == "metal":
            emulator.set("check", True)
            core.step([1, 0])
            core.configure(0)  # waits
            emulator.set("check", False)
        return logits, ids

    (want, ids), (got, same) = run("cpu"), run("metal")
    assert np.abs(got - want).max() < 1e-3
    assert same == ids
