"""Norms on the Metal device: sums that a linear leaves for the norm behind it, and any number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from metal.emulator import Emulator
from saragossa import _core_test as core
from unit.ops import reference
from unit.ops.all_cases import CASES
from unit.ops.cases import normal
from unit.ops.harness import Array, Ops, error, read
from unit.ops.test_linear import Case, inputs, make

pytestmark = pytest.mark.usefixtures("checked")

NORMS = [
    c
    for c in CASES
    if c.op in ("rms_norm", "norm_add", "norm_add_norm", "norm_group", "per_layer_inputs", "linear_add_norm")
]
EPS = 1e-6


def device(**switches: Any) -> Ops:
    return Ops(device="metal", metal_tensor_ops=False, **switches)


@pytest.fixture(scope="module")
def metal() -> Ops:
    return device()


def linear_add_norm(ops: Ops, case: Case, rows: int) -> dict[str, bytes]:
    start, bias, norm = inputs(rows, case.out), inputs(1, case.out)[0], inputs(3, case.out)[2]
    y, z, x = ops.f32(start), ops.empty(rows, case.out), ops.f32(inputs(rows, case.n_in))
    weight, b, n = case.weight(ops), ops.f32(bias), ops.f32(norm)
    ops.run(lambda e: e.linear_add_norm(y, z, x, weight, b, n, EPS))
    return {"y": y.numpy().tobytes(), "z": z.numpy().tobytes()}


FORMATS = [(4, 64, "bf16"), (6, 32, "f16"), (8, 128, "f32"), (0, 0, "bf16"), (0, 0, "f16"), (0, 0, "f32")]


@pytest.mark.parametrize(("bits", "group", "dtype"), FORMATS)
@pytest.mark.parametrize("out", [3, 36, 1100])
def test_statistics_do_not_change_a_bit(
    metal: Ops, emulator: Emulator, out: int, bits: int, group: int, dtype: str
) -> None:
    """The fused op, the same without statistics, and its three parts."""
    case = make(out, 128, bits, group, dtype)
    others = [device(metal_statistics=False), device(fused=False)]
    for order, rows in (("random", 1), ("reversed", 2), ("random", 7), ("in_order", 9)):
        emulator.set("order", order)
        got = linear_add_norm(metal, case, rows)
        for other in others:
            assert linear_add_norm(other, case, rows) == got, rows


def test_a_long_row_has_several_threadgroups(metal: Ops, emulator: Emulator) -> None:
    """And each reads the sums of fours in the place of the row."""
    n, rows = 4608, 2
    case = make(n, 64, 4, 64, "bf16")
    with emulator.traced() as counted:
        linear_add_norm(metal, case, rows)
    linear, norm = counted["dispatch_list"]
    assert (linear["kernel"], norm["kernel"]) == ("matvec", "rms_norm_split")
    groups = (n // 4 + 255) // 256
    assert norm["threads"] == rows * groups * 256
    reads = sorted((b["requested_read"], b["unique_read"]) for b in norm["buffers"] if b["requested_read"])
    assert reads == sorted([(rows * n * 4,) * 2, (rows * n * 4, n * 4), (rows * groups * n, rows * n)])
    assert linear["unique_written"] == rows * (n * 4 + n)  # y, and a float for each four of it
    few = make(70, 64, 4, 64, "bf16")
    for ops, count, kernel in (
        (device(metal_statistics=False), 2, "rms_norm"),
        (device(metal_matmul=False), 8, "rms_norm_split"),
        (device(metal_matmul=False), 9, "rms_norm"),  # sums of so many rows are not kept
    ):
        with emulator.traced() as counted:
            linear_add_norm(ops, few, count)
        assert [d["kernel"] for d in counted["dispatch_list"]] == ["matvec", kernel]


@pytest.fixture
def small(emulator: Emulator) -> Iterator[None]:
    """A GPU that runs 96 threads of a kernel in a threadgroup: registers may leave no more."""
    emulator.set("max_threads_per_threadgroup", 96)
    yield
    emulator.set("max_threads_per_threadgroup", 1024)


def threads_of_a_norm(ops: Ops, emulator: Emulator, n: int) -> int:
    x, w = ops.f32(inputs(1, n)), ops.f32(inputs(1, n)[0])
    with emulator.traced() as counted:
        ops.run(lambda e: e.rms_norm(x, x, w, EPS))
    (dispatch,) = counted["dispatch_list"]
    return int(dispatch["threads"])


def results(ops: Ops) -> list[dict[str, Array]]:
    out = []
    for case in NORMS:
        if case.op == "linear_add_norm" and case.inputs()["x"].shape[0] > 8:
            continue  # matmul has a fixed number of threads
        enc = ops.begin()
        tensors = case.encode(ops, enc, case.inputs())
        enc.submit().wait()
        out.append(read(tensors))
    return out


def test_fewer_threads_give_the_same_bits(metal: Ops, emulator: Emulator, small: None) -> None:
    del small
    ops = device()
    got = results(ops)
    assert threads_of_a_norm(ops, emulator, 4608) == 96
    emulator.set("max_threads_per_threadgroup", 1024)
    want = results(metal)
    assert threads_of_a_norm(metal, emulator, 4608) == 1024
    assert [{k: v.tobytes() for k, v in r.items()} for r in got] == [
        {k: v.tobytes() for k, v in r.items()} for r in want
    ]


@pytest.mark.parametrize("n", [65536, 65537])
def test_the_longest_row(metal: Ops, n: int) -> None:
    x, w = normal(np.random.default_rng(n), 2, n)
    x = x[None]
    y, xt, wt = metal.empty(1, n), metal.f32(x), metal.f32(w)
    if n > 65536:
        with pytest.raises(core.CoreError, match="65536"):
            metal.run(lambda e: e.rms_norm(y, xt, wt, EPS))
        return
    metal.run(lambda e: e.rms_norm(y, xt, wt, EPS))
    assert error(y.numpy(), reference.rms_norm(x, w, EPS)) < 2e-6
