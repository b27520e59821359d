"""Linears on the Metal device: against NumPy in three orders, against each other, and the bytes they read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from metal.emulator import Emulator
from saragossa import _core_test as core
from unit.ops import reference
from unit.ops.harness import Array, Ops
from unit.ops.test_linear import BITS, EVERY, GOLDEN, MX, Case, inputs, linear, make, normalised

ORDERS = ["in_order", "reversed", "random"]
# f32 sums of f32 products; normalised as in unit/ops/test_linear.py.
EXACT = 1e-6
ROWS = (1, 2, 3, 5, 8, 9, 33)


pytestmark = pytest.mark.usefixtures("checked")


def plain(**switches: Any) -> Ops:
    """Without the tensor operations, whose precision is their own matter (test_matmul_tensor.py)."""
    return Ops(device="metal", metal_tensor_ops=False, **switches)


@pytest.fixture(scope="module")
def metal() -> Ops:
    return plain()


def expected(case: Case, x: Array) -> Array:
    return np.asarray(x.astype(np.float64) @ case.w.T)


@pytest.mark.parametrize(("bits", "group", "dtype"), EVERY)
def test_every_format(metal: Ops, emulator: Emulator, bits: int, group: int, dtype: str) -> None:
    for out, groups in ((1, 1), (19, 9), (70, 5)):
        case = make(out, (group or 64) * groups, bits, group, dtype)
        for index, rows in enumerate(ROWS):
            emulator.set("order", ORDERS[index % 3])
            x = inputs(rows, case.n_in)
            assert normalised(linear(metal, case, x), expected(case, x), x, case) <= EXACT, (out, rows)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("rows", [*ROWS, 17, 65, 100])
def test_every_order(metal: Ops, emulator: Emulator, rows: int, order: str) -> None:
    emulator.set("order", order)
    case = make(150, 192, 4, 64, "bf16")
    x, bias = inputs(rows, case.n_in), inputs(1, case.out)[0]
    got = linear(metal, case, x, bias)
    assert normalised(got, expected(case, x) + bias, x, case) <= EXACT


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_dense_of_odd_sizes(metal: Ops, dtype: str) -> None:
    for n_in in (1, 7, 20, 37, 333):
        case = make(13, n_in, 0, 0, dtype)
        for rows in (1, 5, 9, 40):
            x = inputs(rows, n_in)
            assert normalised(linear(metal, case, x), expected(case, x), x, case) <= EXACT, (n_in, rows)


@pytest.mark.parametrize(
    ("bits", "group", "dtype"),
    [*((bits, 64, "bf16") for bits in (0, *BITS)), *((bits, 32, "u8") for bits in MX)],
)
def test_a_row_does_not_depend_on_its_neighbours(metal: Ops, bits: int, group: int, dtype: str) -> None:
    """Bit for bit up to 8 rows: a draft that is verified gives what decoding gives."""
    case = make(21, 64 * 9, bits, group, dtype)
    x = inputs(8, case.n_in)
    alone = np.concatenate([linear(metal, case, x[i : i + 1]) for i in range(8)])
    for rows in range(2, 9):
        assert linear(metal, case, x[:rows]).tobytes() == alone[:rows].tobytes(), rows


@pytest.mark.parametrize("rows", [9, 40])
@pytest.mark.parametrize("bits", [0, 4])
def test_many_rows_without_matrices(metal: Ops, rows: int, bits: int) -> None:
    """The switch, as a GPU without simdgroup matrices, takes the kernel for few rows in blocks."""
    case = make(37, 192, bits, 64, "bf16")
    x = inputs(rows, case.n_in)
    by_matvec = np.concatenate([linear(metal, case, x[i : i + 1]) for i in range(rows)])
    assert linear(plain(metal_matmul=False), case, x).tobytes() == by_matvec.tobytes()
    assert linear(metal, case, x).tobytes() != by_matvec.tobytes()  # else this test compares nothing


def fused_inputs(
    outs: tuple[int, ...], formats: str, rows: int
) -> tuple[list[Case], Array, list[Array], Array]:
    """Weights and biases of which no two are equal, x, and what linear_add adds to."""
    weights, bias = [], []
    for j, (out, form) in enumerate(zip(outs, GROUPS[formats], strict=True)):
        case = make(out, 384, *form)
        turned = {n: np.roll(getattr(case, n), j, axis=0) for n in ("data", "scales", "biases", "w", "size")}
        weights.append(replace(case, **turned))
        bias.append(np.roll(inputs(1, out)[0], j))
    return weights, inputs(rows, 384) * np.float32(0.1), bias, inputs(rows, outs[0])


def encode(ops: Ops, op: str, weights: list[Case], x: Array, bias: list[Array], start: Array) -> list[Array]:
    ws, xt, biases = [w.weight(ops) for w in weights], ops.f32(x), [ops.f32(b) for b in bias]
    if op == "linear_group":
        biases[1] = core.Tensor()
        ys = [ops.empty(len(x), w.out) for w in weights]
        outs = [core.LinearOut(y, w, b) for y, w, b in zip(ys, ws, biases, strict=True)]
        ops.run(lambda e: e.linear_group(xt, outs))
        return [np.asarray(y.numpy()) for y in ys]
    y = ops.f32(start)
    if op == "linear_add":
        ops.run(lambda e: e.linear_add(y, xt, ws[0], biases[0]))
    else:
        ops.run(lambda e: e.linear_gated(y, xt, ws[0], ws[1], op, biases[0], biases[1]))
    return [np.asarray(y.numpy())]


def reference_of(op: str, weights: list[Case], x: Array, bias: list[Array], start: Array) -> list[Array]:
    sums = [expected(w, x) + b for w, b in zip(weights, bias, strict=True)]
    if op == "linear_group":
        sums[1] -= bias[1]
        return sums
    return [start + sums[0]] if op == "linear_add" else [reference.activate(sums[0], op) * sums[1]]


SAME, MIXED = (4, 64, "bf16"), (6, 128, "f16")
GROUPS = {
    "same": [SAME, SAME, SAME],
    "last": [SAME, SAME, MIXED],
    "middle": [SAME, MIXED, SAME],
    "dense": [(0, 0, "bf16")] * 3,
    "dtype": [SAME, (4, 64, "f16"), (4, 32, "bf16")],
    "mode": [(4, 32, "u8"), (4, 32, "u8"), (8, 32, "u8")],
}


@pytest.mark.parametrize("formats", GROUPS)
@pytest.mark.parametrize("op", ["linear_group", "linear_add", "silu", "gelu_tanh"])
def test_fused(metal: Ops, emulator: Emulator, op: str, formats: str) -> None:
    """Equal to NumPy within rounding, and to its own decomposition bit by bit."""
    outs = (35, 35, 9) if op == "linear_group" else (35, 35, 35)
    apart = plain(fused=False)
    for index, rows in enumerate((1, 3, 8, 33)):
        emulator.set("order", ORDERS[index % 3])
        weights, x, bias, start = fused_inputs(outs, formats, rows)
        want = reference_of(op, weights, x, bias, start)
        got = encode(metal, op, weights, x, bias, start)
        for g, w in zip(got, want, strict=True):
            np.testing.assert_allclose(g, w, rtol=2e-4, atol=2e-4 * float(np.abs(w).max()))
        decomposed = encode(apart, op, weights, x, bias, start)
        assert [g.tobytes() for g in got] == [d.tobytes() for d in decomposed], rows


@pytest.mark.parametrize(("formats", "dispatches"), [("same", 1), ("middle", 2), ("dtype", 3), ("mode", 2)])
def test_a_group_shares_its_dispatch(metal: Ops, emulator: Emulator, formats: str, dispatches: int) -> None:
    weights, x, bias, start = fused_inputs((8, 8, 8), formats, 1)
    emulator.counters(reset=True)
    encode(metal, "linear_group", weights, x, bias, start)
    counters = emulator.counters()
    assert (counters["dispatches"], counters["barriers"]) == (dispatches, 0)


@pytest.mark.parametrize("rows", [1, 4, 8])
@pytest.mark.parametrize("bits", BITS)
def test_weights_are_read_once(metal: Ops, emulator: Emulator, bits: int, rows: int) -> None:
    """Bytes of a decode step: each byte of the codes is asked for once, for all rows together."""
    n, out = 1024, 1000
    case = make(out, n, bits, 64, "bf16")
    weight, x, y = case.weight(metal), metal.f32(inputs(rows, n)), metal.empty(rows, out)
    with emulator.traced() as counters:
        metal.run(lambda e: e.linear(y, x, weight))
    codes, groups = out * n * bits // 8, 2 * out * n // 64 * 2
    assert counters["unique_read"] <= 1.03 * (codes + groups + rows * n * 4)
    assert counters["unique_written"] == counters["requested_written"] == rows * out * 4
    (dispatch,) = counters["dispatch_list"]
    requested = {b["unique_read"]: b["requested_read"] for b in dispatch["buffers"]}
    assert requested[codes] == codes
    assert requested[rows * n * 4] == rows * n * 4 * out // 4  # x: once by each four outputs


@pytest.mark.parametrize(("bits", "group", "dtype"), EVERY)
def test_embedding(metal: Ops, bits: int, group: int, dtype: str) -> None:
    """Ids outside the table give NaN."""
    case = make(30, (group or 37) * 3, bits, group, dtype)
    ids = [29, 0, -1, 7, 30, -(2**31), 7]
    y, table, tokens = metal.empty(len(ids), case.n_in), case.weight(metal), metal.i32(ids)
    metal.run(lambda e: e.embed(y, table, tokens, 0.5))
    want = np.stack([case.w[i] * 0.5 if 0 <= i < 30 else np.full(case.n_in, np.nan) for i in ids])
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("bits", MX)
def test_embedding_of_mx_is_exact(metal: Ops, bits: int) -> None:
    """Every code at every scale that gives no subnormal float, which a GPU may take for 0."""
    with np.load(GOLDEN) as golden:
        data, scales, want = (
            golden[f"all/mxfp{bits}/{part}"][20:] for part in ("packed", "scales", "values")
        )
    put = metal.device.tensor
    table = core.Weight(
        len(want), want.shape[1], put(data, "u32"), bits=bits, group=32, scales=put(scales, "u8"),
        format=f"mxfp{bits}",
    )  # fmt: skip
    y, ids = metal.empty(*want.shape), metal.i32(np.arange(len(want)))
    metal.run(lambda e: e.embed(y, table, ids, 1.0))
    np.testing.assert_array_equal(y.numpy(), want)
    finite = ~np.isnan(want)
    assert np.array_equal(np.signbit(y.numpy()[finite]), np.signbit(want[finite]))
