"""Linears of 9 to 32 rows whose inputs are split: against NumPy, against themselves, and what is encoded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from metal.emulator import Emulator
from metal.test_linear import EXACT, ORDERS, encode, expected, reference_of
from metal.test_matmul_tensor import HALF
from unit.ops.harness import Array, Ops
from unit.ops.test_linear import Case, inputs, linear, make, normalised

pytestmark = pytest.mark.usefixtures("checked")

N_IN = 1040  # four splits of at least 256 inputs, the last one shorter


def plain(**switches: Any) -> Ops:
    return Ops(device="metal", metal_tensor_ops=False, **switches)


@pytest.fixture(scope="module")
def metal() -> Ops:
    return plain()


@pytest.fixture(scope="module")
def whole() -> Ops:
    return plain(metal_split_matmul=False)


def kernels(ops: Ops, emulator: Emulator, case: Case, rows: int) -> list[str]:
    """What a linear dispatches."""
    with emulator.traced() as counted:
        linear(ops, case, inputs(rows, case.n_in))
    return [d["kernel"] for d in counted["dispatch_list"]]


@pytest.mark.parametrize(
    ("bits", "group", "dtype", "n_in"),
    [
        (4, 64, "bf16", 1088),
        (6, 32, "f16", 1056),
        (8, 128, "f32", 1024),
        (0, 0, "bf16", N_IN),
        (0, 0, "f32", N_IN),
        (0, 0, "f16", 1037),
    ],
)
def test_against_numpy(
    metal: Ops, whole: Ops, emulator: Emulator, bits: int, group: int, dtype: str, n_in: int
) -> None:
    case = make(70, n_in, bits, group, dtype)
    for order, rows in zip(ORDERS, (9, 17, 32), strict=True):
        emulator.set("order", order)
        x, bias = inputs(rows, n_in), inputs(1, 70)[0]
        want = expected(case, x) + bias
        got = linear(metal, case, x, bias)
        assert normalised(got, want, x, case) <= EXACT, rows
        unsplit = linear(whole, case, x, bias)
        assert normalised(unsplit, want, x, case) <= EXACT, rows
        assert got.tobytes() != unsplit.tobytes()  # else there is no split


def test_what_is_encoded(metal: Ops, whole: Ops, emulator: Emulator) -> None:
    narrow, short, wide = (make(*shape, 4, 64, "bf16") for shape in ((70, 1024), (70, 448), (4160, 512)))
    split = ["matmul", "matmul_merge"]
    assert kernels(metal, emulator, narrow, 9) == kernels(metal, emulator, narrow, 32) == split
    assert kernels(whole, emulator, narrow, 9) == ["matmul"]
    assert kernels(metal, emulator, narrow, 8) == ["matvec"]
    for case, rows in ((narrow, 33), (short, 9), (wide, 9)):
        assert kernels(metal, emulator, case, rows) == ["matmul"], (case.out, case.n_in, rows)


def test_more_threadgroups(metal: Ops, whole: Ops, emulator: Emulator) -> None:
    case, threads = make(70, 1024, 4, 64, "bf16"), []
    for ops in (metal, whole):
        with emulator.traced() as counted:
            linear(ops, case, inputs(16, case.n_in))
        threads.append(counted["dispatch_list"][0]["threads"])
    assert threads == [4 * 2 * 128, 2 * 128]


def test_the_same_bits_every_time(metal: Ops, emulator: Emulator) -> None:
    """In every order of threads, and for every number of rows that is split."""
    case = make(70, 1088, 4, 64, "bf16")
    x = inputs(32, case.n_in)
    want = linear(metal, case, x)
    for order in ORDERS:
        emulator.set("order", order)
        for rows in (9, 16, 17, 32):
            assert linear(metal, case, x[:rows]).tobytes() == want[:rows].tobytes(), (order, rows)


# Outputs of one group; 2112 of them are split in two, 70 in four, 4160 not at all.
GROUPS: dict[str, list[tuple[int, int, str, int]]] = {
    "same": [(4, 64, "bf16", 70)] * 3,
    "splits": [(4, 64, "bf16", 2112), (4, 64, "bf16", 70), (4, 64, "bf16", 4160)],
    "formats": [(4, 64, "bf16", 70), (0, 0, "f16", 70), (4, 64, "bf16", 70)],
}


def weights_of(name: str) -> tuple[list[Case], list[Array]]:
    weights = [make(out, 1088, *form) for *form, out in GROUPS[name]]
    return weights, [np.roll(inputs(1, w.out)[0], j) for j, w in enumerate(weights)]


def check_fused(ops: Ops, apart: Ops, op: str, name: str, tolerance: float) -> None:
    weights, bias = weights_of(name)
    if op != "linear_group":  # two weights of one size
        weights, bias = [weights[0], weights[0] if name == "splits" else weights[1]], bias[:1] * 2
    x = inputs(20, 1088) * np.float32(0.1)
    start = inputs(20, weights[0].out)
    got = encode(ops, op, weights, x, bias, start)
    for g, want in zip(got, reference_of(op, weights, x, bias, start), strict=True):
        np.testing.assert_allclose(g, want, rtol=tolerance, atol=tolerance * float(np.abs(want).max()))
    decomposed = encode(apart, op, weights, x, bias, start)
    assert [g.tobytes() for g in got] == [d.tobytes() for d in decomposed]


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("op", ["linear_group", "linear_add", "silu", "gelu_tanh"])
def test_fused(metal: Ops, op: str, name: str) -> None:
    """Equal to NumPy within rounding, and to its own decomposition bit by bit."""
    check_fused(metal, plain(fused=False), op, name, 2e-4)


def test_linears_share_their_scratch(metal: Ops, emulator: Emulator) -> None:
    """Two that do not depend on each other: the second one's parts wait for the first one's sums."""
    cases = [make(70, 1088, 4, 64, "bf16"), make(70, 1088, 8, 32, "f16")]
    x = inputs(16, 1088)
    xt, weights = metal.f32(x), [case.weight(metal) for case in cases]
    ys = [metal.empty(16, 70) for _ in cases]
    emulator.set("reorder", True)
    enc = metal.begin()
    for _ in range(2):
        for y, weight in zip(ys, weights, strict=True):
            enc.linear(y, xt, weight)
    enc.submit().wait()
    emulator.set("reorder", False)
    for case, y in zip(cases, ys, strict=True):
        assert normalised(y.numpy(), expected(case, x), x, case) <= EXACT


@pytest.fixture
def m5(emulator: Emulator) -> Iterator[None]:
    with emulator.mac(gpu_family=10):
        yield


def test_tensor_operations(m5: None, emulator: Emulator) -> None:
    del m5
    ops = Ops(device="metal")
    case, x = make(70, 1088, 4, 64, "bf16"), inputs(20, 1088)
    assert EXACT < normalised(linear(ops, case, x), expected(case, x), x, case) <= HALF
    assert kernels(ops, emulator, case, 20) == ["half_rows", "matmul_tensor", "matmul_merge"]
    apart = Ops(device="metal", fused=False)
    for op in ("linear_group", "linear_add", "silu"):
        check_fused(ops, apart, op, "formats", 2e-3)
