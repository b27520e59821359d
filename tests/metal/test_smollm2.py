"""A real model on the Metal device: the first tokens of an answer are those of the CPU's exact path."""

from __future__ import annotations

import pytest

import saragossa
from metal.emulator import Emulator

MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.mark.long
def test_smollm2_answers_as_on_the_cpu() -> None:
    emulator = Emulator()
    emulator.set("check", False)
    emulator.reports()
    answers = {}
    for device in ("cpu", "metal"):
        with saragossa.LLM("demo", device=device, exact=True) as llm:
            answers[device] = llm.chat(MESSAGES, max_tokens=8, temperature=0.0).text
    assert answers["metal"] == answers["cpu"]
    assert "Paris" in answers["metal"]
    assert emulator.reports() == []
