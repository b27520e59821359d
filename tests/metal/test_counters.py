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


def test_what_leaves_its_bound_is_told() -> None:
    good = {
        "command_buffers": 1.0,
        "encoders": 1.0,
        "host_waits": 0.0,
        "readbacks": 0.0,
        "dispatches": 9.0 * 28 + 6,
        "barriers": 9.0 * 28 + 6,
        "unique_bytes": 1.02,
        "minimal_bytes": 1.0,
        "encode_ms": 0.3,
    }
    assert list(check(good, 28)) == []
    for name, bad in {
        "command_buffers": 2,
        "encoders": 2,
        "host_waits": 1,
        "readbacks": 1,
        "dispatches": 9 * 28 + 9,
        "barriers": 9 * 28 + 7,
        "unique_bytes": 1.04,
        "encode_ms": 0.31,
    }.items():
        (text,) = check(good | {name: bad}, 28)
        assert text.startswith(name.replace("_bytes", " bytes"))


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
