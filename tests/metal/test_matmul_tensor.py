"""Linears by the tensor operations of Metal 4: on an M5 with macOS 26.2, or where the emulator plays one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from metal.emulator import Emulator
from metal.test_linear import EXACT, encode, expected, fused_inputs, reference_of
from unit.ops.harness import Ops
from unit.ops.test_linear import EVERY, inputs, linear, make, normalised

# x and weights are rounded to half, each by at most 2^-11; the errors of many products cancel.
HALF = 5e-4


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    """Plays an M5; a real Mac is what it is, and is passed over where it has no tensor operations."""
    emulator = Emulator()
    if emulator.real:
        if "tensor operations" not in Ops(device="metal").device.description:
            pytest.skip("this Mac has no tensor operations")
        yield emulator
        return
    with emulator.mac(gpu_family=10):
        yield emulator


@pytest.fixture(scope="module")
def m5(emulator: Emulator) -> Ops:
    """The self-test of a device takes a second of checks: most tests share one."""
    emulator.set("check", True)
    return Ops(device="metal")


@pytest.fixture(scope="module")
def apart(emulator: Emulator) -> Ops:
    emulator.set("check", True)
    return Ops(device="metal", fused=False)


@pytest.fixture(autouse=True)
def checked(emulator: Emulator) -> Iterator[None]:
    emulator.set("check", True)
    emulator.set("trace", False)
    yield
    assert emulator.reports() == []


def test_the_self_test_turns_them_on(m5: Ops, emulator: Emulator) -> None:
    assert m5.device.description.endswith(", tensor operations")
    assert emulator.real or m5.device.description == "Apple M5, tensor operations"


@pytest.mark.parametrize(("family", "system"), [(9, "26.2"), (10, "26.1")])
def test_an_older_mac_has_none(emulator: Emulator, family: int, system: str) -> None:
    emulator.set("gpu_family", family)
    emulator.set("os_version", system)
    try:
        assert "tensor" not in Ops(device="metal").device.description
    finally:
        emulator.set("gpu_family", 10)
        emulator.set("os_version", "26.2")


def test_the_switch_turns_them_off(m5: Ops) -> None:
    device = Ops(device="metal", metal_tensor_ops=False)
    assert "tensor" not in device.device.description
    case = make(70, 192, 4, 64, "bf16")
    x = inputs(33, 192)
    assert normalised(linear(device, case, x), expected(case, x), x, case) <= EXACT
    assert normalised(linear(m5, case, x), expected(case, x), x, case) > EXACT


def test_a_compiler_that_refuses_leaves_the_others(emulator: Emulator) -> None:
    emulator.set("fail_compile_of", "matmul_tensor")
    emulator.set("fail_compile", 0)
    try:
        ops = Ops(device="metal")
    finally:
        emulator.set("fail_compile", -1)
        emulator.set("fail_compile_of", "")
    assert ", tensor operations off: metal: the kernels of 'matmul_tensor'" in ops.device.description
    case = make(70, 192, 4, 64, "bf16")
    x = inputs(33, 192)
    assert normalised(linear(ops, case, x), expected(case, x), x, case) <= EXACT


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("SG_BITS == 4 && SG_DTYPE == SG_F32", "1 rows of 4 bits with f32"),
        ("SG_BITS == 4 && SG_DTYPE == SG_BF16 && SG_ROWS == 32", "16 rows of 4 bits with bf16"),
        ("SG_BITS == 4 && SG_DTYPE == SG_BF16 && SG_ROWS == 64", "33 rows of 4 bits with bf16"),
        ("SG_BITS == 6", "8 rows of 6 bits with bf16"),
        ("SG_BITS == 8", "9 rows of 8 bits with bf16"),
        ("SG_BITS == 2", "12 rows of 2 bits with bf16"),
        ("SG_BITS == 3", "40 rows of 3 bits with bf16"),
        ("SG_BITS == 5", "24 rows of 5 bits with bf16"),
        ("SG_BITS == 4 && SG_DTYPE == SG_E8M0", "20 rows of mxfp4"),
        ("SG_BITS == 8 && SG_DTYPE == SG_E8M0", "66 rows of mxfp8"),
        ("SG_BITS == 0 && SG_DTYPE == SG_F16", "16 rows of dense f16"),
        ("SG_BITS == 0 && SG_DTYPE == SG_BF16", "32 rows of dense bf16"),
        ("SG_EPILOGUE == SG_GATED", "70 rows of 4 bits with bf16, gated"),
        ("t >= 128", "150 rows of 4 bits with f16"),
        ("o >= 192", "1 rows of 4 bits with f32"),
    ],
)
@pytest.mark.parametrize("wrong", ["1.1f", "NAN"])
def test_a_fault_in_any_format_turns_them_off(emulator: Emulator, where: str, said: str, wrong: str) -> None:
    """As if the compiler had made one pipeline wrong."""
    line = "const float sum ="
    emulator.set("check", False)
    emulator.set("miscompile", f"{line}=>{line} ({where} ? {wrong} : 1.0f) *")
    try:
        ops = Ops(device="metal")
    finally:
        emulator.set("miscompile", "")
    assert f", tensor operations off: at {said}" in ops.device.description
    case, x = make(70, 192, 4, 64, "bf16"), inputs(33, 192)
    assert normalised(linear(ops, case, x), expected(case, x), x, case) <= EXACT


@pytest.mark.parametrize(("bits", "group", "dtype"), EVERY)
def test_every_format(m5: Ops, bits: int, group: int, dtype: str) -> None:
    for out, groups, rows in ((19, 5, 9), (70, 1, 64)):
        case = make(out, (group or 32) * groups, bits, group, dtype)
        x = inputs(rows, case.n_in)
        error = normalised(linear(m5, case, x), expected(case, x), x, case)
        assert error <= HALF, (out, rows)
        assert (error > EXACT) != (bits == 0 and dtype == "f32"), "the other kernel ran"


@pytest.mark.parametrize("order", ["in_order", "reversed", "random"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_every_order_and_layout(m5: Ops, emulator: Emulator, order: str, shuffle: bool) -> None:
    if shuffle:
        emulator.set("shuffle_cooperative", True)
    emulator.set("order", order)
    case = make(150, 192, 6, 64, "f16")
    for rows in (16, 33, 100):
        x = inputs(rows, case.n_in)
        assert normalised(linear(m5, case, x), expected(case, x), x, case) <= HALF, rows
    if shuffle:
        emulator.set("shuffle_cooperative", False)
    emulator.set("order", "in_order")


def test_rows_of_any_size_fit_half(m5: Ops) -> None:
    """Each row has a scale of its own; what is not finite stays in its row."""
    ops, case = m5, make(70, 192, 4, 64, "bf16")
    x = inputs(40, 192).astype(np.float64) * 10.0 ** np.linspace(-30, 30, 40)[:, None]
    x[5] = 0.0
    got = linear(ops, case, x.astype(np.float32))
    size = np.maximum(np.linalg.norm(x, axis=1), 1e-30)[:, None] * case.size
    assert float(np.max(np.abs(got - x @ case.w.T) / size)) <= HALF
    clean = got
    x[7, 3], x[30, 100] = np.nan, np.inf
    got = linear(ops, case, x.astype(np.float32))
    assert not np.isfinite(got[[7, 30]]).any()
    assert np.delete(got, [7, 30], axis=0).tobytes() == np.delete(clean, [7, 30], axis=0).tobytes()


@pytest.mark.parametrize("formats", ["same", "middle"])
@pytest.mark.parametrize("op", ["linear_group", "linear_add", "silu", "gelu_tanh"])
def test_fused(m5: Ops, apart: Ops, op: str, formats: str) -> None:
    outs = (35, 35, 9) if op == "linear_group" else (35, 35, 35)
    weights, x, bias, start = fused_inputs(outs, formats, 33)
    got = encode(m5, op, weights, x, bias, start)
    for g, w in zip(got, reference_of(op, weights, x, bias, start), strict=True):
        np.testing.assert_allclose(g, w, rtol=2e-3, atol=2e-3 * float(np.abs(w).max()))
    decomposed = encode(apart, op, weights, x, bias, start)
    assert [g.tobytes() for g in got] == [d.tobytes() for d in decomposed]
