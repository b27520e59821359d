"""What a token costs, held to bench/metal_bounds.py; `make metal-counters` prints all models and times."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from metal_bounds import check
from metal_counters import measure
from metal_shapes import SHAPES, Shape

from metal.emulator import Emulator

COUNTED = ("smollm2-135m", "gemma3-270m")


@pytest.mark.parametrize("shape", [s for s in SHAPES if s.name in COUNTED], ids=lambda s: s.name)
def test_a_token_stays_within_the_bounds(shape: Shape) -> None:
    emulator = Emulator()
    emulator.set("check", False)
    emulator.reports()
    figures = measure(shape, emulator)
    figures["encode_ms"] = 0  # a time: the bench judges it
    assert list(check(figures, shape.layers)) == []
    assert emulator.reports() == []
    assert figures["unique_bytes"] > figures["minimal_bytes"] * 0.97  # and it did read what it must
