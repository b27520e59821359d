"""Scratch on the Metal device: as much as the most demanding op takes, and no new buffers between steps."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from metal_shapes import SHAPES
from metal_zeros import write_zeros

from metal.emulator import Emulator
from saragossa import _core
from saragossa import _core_test as core
from saragossa.engine.loading import Loaded, load
from unit.ops.cases import Paged, attention_case
from unit.ops.harness import Ops
from unit.ops.test_linear import inputs, make

pytestmark = pytest.mark.usefixtures("unchecked")

CONTEXT = 8192


@pytest.fixture
def family(emulator: Emulator, request: pytest.FixtureRequest) -> Iterator[int]:
    emulator.set("gpu_family", request.param)
    yield request.param
    emulator.set("gpu_family", 9)


@pytest.fixture
def encoding_only(emulator: Emulator) -> Iterator[None]:
    yield
    emulator.set("execute", True)


def model_of(emulator: Emulator, folder: Path, layers: int, **config: int) -> Loaded:
    """A narrow model of zeros with so many layers; its kernels do not run."""
    emulator.set("execute", True)
    narrow = {"vocab_size": 256, "hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 4}
    narrow |= {"num_key_value_heads": 1, "num_hidden_layers": layers, "max_position_embeddings": CONTEXT}
    path = folder / str(layers)
    write_zeros(path, SHAPES[0].config | narrow | config)
    model = load(path, device="metal", context=CONTEXT)  # runs the check of tensor operations
    emulator.set("execute", False)
    return model


@pytest.mark.usefixtures("encoding_only")
def test_steps_at_a_long_context_make_no_buffers(emulator: Emulator, tmp_path: Path) -> None:
    """The parts of split attention are a megabyte a layer here."""
    model = model_of(emulator, tmp_path, 24, num_attention_heads=64)
    session = _core.Session(model.model, 1, CONTEXT)
    session.configure(0)
    for _ in range(8000 // 64):
        session.prefill(0, [5] * 64, True)
    for _ in range(4):
        session.step([0])
    before = model.device.memory()["allocated"]
    emulator.counters(reset=True)
    for _ in range(100):
        session.step([0])
    assert emulator.counters()["new_buffers"] == 0
    assert model.device.memory()["allocated"] == before


@pytest.mark.usefixtures("encoding_only")
@pytest.mark.parametrize("family", [9, 10], indirect=True, ids=["m4", "m5"])
def test_scratch_does_not_grow_with_the_layers(emulator: Emulator, family: int, tmp_path: Path) -> None:
    """The halves of 2,000 rows of 4,096 inputs are 16 MB, and a first buffer does not hold the rest."""
    grown, made = [], []
    for layers in (2, 12):
        model = model_of(emulator, tmp_path, layers, intermediate_size=4096)
        assert model.device.description.endswith(", tensor operations") == (family == 10)
        session = _core.Session(model.model, 1, CONTEXT)
        session.prefill(0, [5] * 9, False)
        before = model.device.memory()["allocated"]
        emulator.counters(reset=True)
        session.prefill(0, [5] * 2000, False)
        made.append(emulator.counters()["new_buffers"])
        session.rewind(0, 0)
        session.prefill(0, [5] * 2000, False)  # what several buffers held is in one from now on
        grown.append(model.device.memory()["allocated"] - before)
        emulator.counters(reset=True)
        session.rewind(0, 0)
        session.prefill(0, [5] * 2000, False)
        assert emulator.counters()["new_buffers"] == 3  # ids, positions, rows
    assert made[0] == made[1]
    assert grown[0] == grown[1]
    assert 0 < grown[0] < 200 << 20


@pytest.mark.usefixtures("encoding_only")
def test_what_a_long_prompt_took_goes_back(emulator: Emulator, tmp_path: Path) -> None:
    model = model_of(emulator, tmp_path, 2, intermediate_size=4096)
    session = _core.Session(model.model, 1, CONTEXT)
    session.configure(0)
    session.prefill(0, [5] * 9, True)
    small = model.device.memory()["allocated"]
    for _ in range(2):
        session.rewind(0, 0)
        session.prefill(0, [5] * 1600, True)
    assert model.device.memory()["allocated"] > small + (16 << 20)
    for _ in range(200):
        session.step([0])
    assert model.device.memory()["allocated"] <= small + (16 << 20) + (1 << 16)  # two steps are under way


# --- ops that take the same bytes in turn -----------------------------------------------------------------

Encode = Callable[[Any], list[Any]]  # what it writes


def linears(ops: Ops, rows: int) -> Encode:
    """Of several widths; gate and up have two formats, so that each has a result of its own."""
    weights = [
        make(*s, "bf16").weight(ops) for s in ((256, 640, 4, 64), (256, 640, 8, 64), (640, 256, 4, 64))
    ]
    x, y = ops.f32(inputs(rows, 640)), ops.f32(np.ones((rows, 256)))
    group, z, norm = ops.empty(rows, 256), ops.empty(rows, 640), ops.f32(np.ones(640))
    bias = ops.f32(inputs(1, 640)[0])

    def encode(enc: Any) -> list[Any]:
        enc.linear_group(x, [core.LinearOut(group, weights[0]), core.LinearOut(y, weights[1])])
        enc.linear_gated(y, x, weights[1], weights[0], "silu")
        enc.linear_add_norm(x, z, y, weights[2], bias, norm, 1e-5)
        return [x, y, z, group]

    return encode


def attention(ops: Ops, rows: int) -> Encode:
    case = attention_case("split", Paged(((600, rows), (100, rows)), 4, 1, 64))
    tensors = case.inputs()
    return lambda enc: [case.encode(ops, enc, tensors)["y"]]


@pytest.mark.parametrize("family", [9, 10], indirect=True, ids=["m4", "m5"])
@pytest.mark.parametrize("bound", [0, 1], ids=["whole", "cut"])
@pytest.mark.parametrize(
    ("op", "rows"), [(linears, 1), (linears, 20), (linears, 40), (attention, 1), (attention, 9)]
)
def test_ops_in_turn_do_not_disturb_each_other(
    emulator: Emulator, family: int, bound: int, op: Callable[[Ops, int], Encode], rows: int
) -> None:
    """What is still to be read is not overwritten: no finding, and the bits of ops one by one."""
    switches = {"metal_command_macs": bound, "metal_simdgroup_attention": op is not attention}
    ops = Ops(device="metal", **switches)
    encode = op(ops, rows)
    want: list[Any] = []
    for _ in range(3):
        enc = ops.begin()
        want += encode(enc)
        enc.submit().wait()
        if op is linears:
            want[-4:] = [t.numpy() for t in want[-4:]]
    emulator.set("check", True)
    emulator.set("order", "random")
    emulator.set("reorder", True)
    try:
        encode = op(ops, rows)
        enc = ops.begin()
        got = [encode(enc) for _ in range(3)]
        enc.submit().wait()
    finally:
        emulator.set("reorder", False)
    if op is linears:
        assert [t.numpy().tobytes() for t in got[-1]] == [t.tobytes() for t in want[-4:]]
    else:
        assert [t.numpy().tobytes() for ts in got for t in ts] == [t.numpy().tobytes() for t in want]
