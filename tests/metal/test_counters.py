"""What a token costs, held to bench/metal_bounds.py; `make metal-counters` prints all models and times."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from metal_bounds import check, layer_dispatches
from metal_counters import measure, model_of
from metal_shapes import FAMILIES, SHAPES, Shape
from metal_zeros import text_of

from metal.emulator import Emulator

CONTEXT = 300  # more than a split of attention
DENSE = ("smollm2-135m", "gemma3-270m")


def few(shape: Shape) -> Shape:
    """The same kernels in less time: few layers, few experts to choose from, narrower."""
    kinds = tuple(dict.fromkeys(shape.layer_kinds()))
    experts = {"num_experts": 16} if text_of(shape.config).get("num_experts") else {}
    narrow = {"vocab_size": 4096, "hidden_size": 1024, "intermediate_size": 2048}
    return shape.with_layers((*kinds, *kinds)).changed(**narrow, **experts)


CASES = [s for s in SHAPES if s.name in DENSE] + [few(shape) for shape in FAMILIES]


def test_what_leaves_its_bound_is_told() -> None:
    model = model_of(SHAPES[0], CONTEXT)
    good = {
        "command_buffers": 1.0,
        "encoders": 1.0,
        "host_waits": 0.0,
        "readbacks": 0.0,
        "dispatches": 9.0 * 28 + 6,
        "barriers": 9.0 * 28 + 6,
        "unique_bytes": 1.02 * model.least.total,
        "encode_ms": 0.3,
        "layer_dispatches": {"layer": 9.0},
    }
    assert list(check(good, model)) == []
    for name, bad in {
        "command_buffers": 2,
        "encoders": 2,
        "host_waits": 1,
        "readbacks": 1,
        "dispatches": 9 * 28 + 9,
        "barriers": 9 * 28 + 7,
        "unique_bytes": 1.04 * model.least.total,
        "encode_ms": 0.32,
    }.items():
        (text,) = check(good | {name: bad}, model)
        assert text.startswith(name.replace("_bytes", " bytes"))
    (text,) = check(good | {"layer_dispatches": {"layer": 10.0}}, model)
    assert text.startswith("dispatches of a layer 10 (layer), bound 9")


def test_bounds_of_the_newer_layers() -> None:
    bounds = {
        shape.name: {kind: layer_dispatches(layer) for kind, layer in model_of(shape, 1).kinds.items()}
        for shape in FAMILIES
    }
    assert bounds["qwen3.6-35b-a3b"] == {"linear_attention": 10, "full_attention": 11}
    assert bounds["qwen3.6-27b"] == {"linear_attention": 8, "full_attention": 9}
    assert bounds["qwen3-30b-a3b"] == {"layer": 11}


@pytest.mark.parametrize("shape", CASES, ids=lambda s: s.name)
def test_a_token_stays_within_the_bounds(shape: Shape) -> None:
    emulator = Emulator()
    emulator.set("check", False)
    emulator.reports()
    (figures,) = measure(shape, emulator, (CONTEXT,)).values()
    figures["encode_ms"] = 0  # a time: the bench judges it
    model = model_of(shape, CONTEXT)
    assert list(check(figures, model)) == []
    assert emulator.reports() == []
    assert figures["unique_bytes"] > model.least.total * 0.97  # and it did read what it must
