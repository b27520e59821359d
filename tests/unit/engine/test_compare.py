"""The verdict of a comparison: every figure that is told counts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from saragossa.engine.compare import DIFFERENT, EQUAL, IDENTICAL, NEAR_TIE, ROUNDED, compare
from saragossa.engine.trace import Trace

PROMPT, GREEDY, VOCAB = (1, 2, 3), (4, 5), 64
ROWS = {i: np.random.default_rng(i).standard_normal(VOCAB).astype(np.float32) for i in range(4)}


def trace(changes: dict[int, dict[int, float]] | None = None) -> Trace:
    """changes: what is added to logits, by position and id."""
    logits = {position: row.copy() for position, row in ROWS.items()}
    for position, values in (changes or {}).items():
        for token, value in values.items():
            logits[position][token] += value
    ones = np.ones((2, 2, 8), np.float32)
    return Trace(PROMPT, GREEDY, logits, ones, ones[..., 0], hidden=16)


def test_the_same_is_identical() -> None:
    assert compare(trace(), trace(), ROUNDED).verdict == IDENTICAL


@pytest.mark.parametrize("position", range(4))
@pytest.mark.parametrize(
    ("value", "verdict"), [(0.1, EQUAL), (0.5, DIFFERENT), (math.nan, DIFFERENT), (math.inf, DIFFERENT)]
)
def test_logits_count_where_no_token_turns(position: int, value: float, verdict: str) -> None:
    worst = int(ROWS[position].argmin())
    same, moved = trace(), trace({position: {worst: -value}})
    for pair in ((same, moved), (moved, same)):
        found = compare(*pair, ROUNDED)
        assert found.verdict == verdict
        assert found.logits_differ == (verdict == DIFFERENT)


@pytest.mark.parametrize(("apart", "verdict"), [(0.05, NEAR_TIE), (0.12, DIFFERENT)])
@pytest.mark.parametrize(("position", "step"), [(0, -2), (1, -1), (2, 0), (3, 1)])
def test_the_prompts_choices_count(position: int, step: int, apart: float, verdict: str) -> None:
    a, b = trace(), trace()
    for side, sign in ((a, 1), (b, -1)):
        side.logits[position][:2] = 4 + sign * apart / 2, 4 - sign * apart / 2
    found = compare(a, b, ROUNDED)
    assert not found.logits_differ
    assert [(p.step, p.ids) for p in found.partings] == [(step, (0, 1))]
    assert found.partings[0].margin == pytest.approx(apart, rel=1e-4)
    assert found.verdict == verdict
