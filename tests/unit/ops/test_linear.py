"""Linears: scalar against NumPy, every instruction set against scalar, and what must not change a bit.

Errors are normalised: |y - want| / (|x| |w|), norms along the inputs, |w| = |code * scale| + |bias|.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saragossa import _core_test as core
from unit.ops.harness import ISAS, Array, Ops, from_bf16, to_bf16

GOLDEN = Path(__file__).parents[2] / "golden" / "quantize.npz"

# How far an output may be from float64. f32: roundings. int15, int8: half a step of a group's largest value,
# at most sqrt(128) / (2 * 16256) = 3.5e-4 and 128 times that; errors of neighbours cancel.
MODES = {"f32": 1e-6, "int15": 6e-5, "int8": 8e-3}
# Integer sums are exact, so instruction sets differ by the order of a few float roundings.
BETWEEN_ISAS = 1e-6


@dataclass
class Case:
    """A weight [out, in], quantised (bits > 0) or dense, as NumPy sees it."""

    out: int
    n_in: int
    bits: int
    group: int
    dtype: str
    data: Array  # u32 [out, in * bits / 32] or the dense weight
    scales: Array
    biases: Array  # affine
    w: Array  # f64 [out, in]
    size: Array  # f64 [out], the norm of the terms

    def weight(self, ops: Ops) -> Any:
        put = ops.device.tensor
        if self.bits == 0:
            return core.Weight(self.out, self.n_in, put(self.data, self.dtype))
        return core.Weight(
            self.out,
            self.n_in,
            put(self.data, "u32"),
            bits=self.bits,
            group=self.group,
            scales=put(self.scales, self.dtype),
            biases=put(self.biases, self.dtype) if self.dtype != "u8" else core.Tensor(),
            format=f"mxfp{self.bits}" if self.dtype == "u8" else "affine",
        )


def stored(x: Array, dtype: str) -> tuple[Array, Array]:
    """x as the file has it, and the values that this means."""
    if dtype == "bf16":
        return to_bf16(x), from_bf16(to_bf16(x)).astype(np.float64)
    y = x.astype(np.float16 if dtype == "f16" else np.float32)
    return y, y.astype(np.float64)


def e2m1(codes: Array) -> Array:
    """Sign, two bits of exponent with bias 1, one of mantissa."""
    e, m = codes >> 1 & 3, codes & 1
    return np.where(codes & 8, -1.0, 1.0) * np.where(e == 0, m * 0.5, 2.0 ** (e - 1) * (1 + m / 2))


def e4m3(codes: Array) -> Array:
    """Sign, four bits of exponent with bias 7, three of mantissa; all ones is NaN."""
    e, m = codes >> 3 & 15, codes & 7
    size = np.where(e == 0, m * 2.0**-9, 2.0 ** (e - 7.0) * (1 + m / 8))
    return np.where(codes & 128, -1.0, 1.0) * np.where(codes & 127 == 127, np.nan, size)


def packed(codes: Array, bits: int) -> Array:
    """Row by row one LSB-first stream: bit b of code k is bit k * bits + b."""
    stream = (codes[..., None] >> np.arange(bits) & 1).astype(np.uint8).reshape(len(codes), -1)
    return np.packbits(stream, axis=1, bitorder="little").view("<u4")


def make_mx(out: int, n_in: int, bits: int, codes: Array | None = None) -> Case:
    """mxfp4 or mxfp8."""
    r = np.random.default_rng([out, n_in, bits, 32, 1])
    if codes is None:
        codes = r.integers(0, 1 << bits, (out, n_in))
        codes = np.where(codes & 127 == 127, 0x35, codes) if bits == 8 else codes  # no NaN
    scales = r.integers(118, 123, (out, n_in // 32)).astype(np.uint8)
    w = (e2m1 if bits == 4 else e4m3)(codes) * np.repeat(2.0 ** (scales - 127.0), 32, axis=1)
    data = packed(codes, bits)
    return Case(out, n_in, bits, 32, "u8", data, scales, scales, w, np.linalg.norm(w, axis=1))


def make(out: int, n_in: int, bits: int, group: int, dtype: str, codes: Array | None = None) -> Case:
    if dtype == "u8":
        return make_mx(out, n_in, bits, codes)
    r = np.random.default_rng([out, n_in, bits, group])
    if bits == 0:
        data, w = stored(r.normal(size=(out, n_in)), dtype)
        return Case(out, n_in, 0, 0, dtype, data, data, data, w, np.linalg.norm(w, axis=1))
    if codes is None:
        codes = r.integers(0, 1 << bits, (out, n_in))
    data = packed(codes, bits)
    scales, s = stored(r.normal(size=(out, n_in // group)) * 0.01, dtype)
    biases, b = stored(r.normal(size=(out, n_in // group)) * 0.05, dtype)
    s, b = np.repeat(s, group, axis=1), np.repeat(b, group, axis=1)
    size = np.linalg.norm(np.abs(codes * s) + np.abs(b), axis=1)
    return Case(out, n_in, bits, group, dtype, data, scales, biases, codes * s + b, size)


def inputs(rows: int, n_in: int) -> Array:
    """Values of very different size from group to group, as activations have them."""
    r = np.random.default_rng([rows, n_in])
    return (r.normal(size=(rows, n_in)) * np.exp(r.normal(size=n_in))).astype(np.float32)


_OPS: dict[tuple[str, str, int], Ops] = {}


def ops_for(isa: str, mode: str, threads: int = 2) -> Ops:
    key = (isa, mode, threads)
    if key not in _OPS:
        _OPS[key] = Ops(isa, activations=mode, threads=threads)
    return _OPS[key]


def linear(ops: Ops, case: Case, x: Array, bias: Array | None = None) -> Array:
    y = ops.empty(len(x), case.out)
    w, x_tensor = case.weight(ops), ops.f32(x)
    b = ops.f32(bias) if bias is not None else core.Tensor()
    ops.run(lambda e: e.linear(y, x_tensor, w, b))
    return np.asarray(y.numpy())


def normalised(got: Array, want: Array, x: Array, case: Case) -> float:
    assert got.shape == want.shape
    size = np.linalg.norm(x.astype(np.float64), axis=1)[:, None] * case.size
    return float(np.max(np.abs(got - want) / size))


BITS = (2, 3, 4, 5, 6, 8)
FORMS = [(bits, group) for bits in BITS for group in (32, 64, 128)]
MX = [4, 8]  # bits of mxfp4 and mxfp8
# Bits, group and stored dtype of every format, for the tests of other devices.
EVERY = [(*form, dtype) for form in [*FORMS, (0, 0)] for dtype in ("f32", "f16", "bf16")]
EVERY += [(bits, 32, "u8") for bits in MX]
ROWS = (1, 2, 3, 5, 8, 9, 14, 20, 23)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize(("bits", "group"), [*FORMS, (0, 0)])
def test_against_numpy(bits: int, group: int, dtype: str, mode: str) -> None:
    case = make(19, (group or 37) * 9, bits, group, dtype)
    for isa in ISAS:
        for rows in (1, 4, 11):
            x = inputs(rows, case.n_in)
            want = x.astype(np.float64) @ case.w.T
            limit = MODES[mode if bits else "f32"]
            assert normalised(linear(ops_for(isa, mode), case, x), want, x, case) <= limit, (isa, rows)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bits", MX)
def test_mx_against_numpy(bits: int, mode: str) -> None:
    """Of mxfp8 every mode multiplies in float32."""
    for out, n_in in ((19, 32), (65, 32 * 9), (7, 1024)):
        case = make(out, n_in, bits, 32, "u8")
        for isa in ISAS:
            for rows in (*range(1, 10), 17, 64):
                x = inputs(rows, n_in)
                want = x.astype(np.float64) @ case.w.T
                limit = MODES[mode if bits == 4 else "f32"]
                assert normalised(linear(ops_for(isa, mode), case, x), want, x, case) <= limit, (isa, rows)


@pytest.mark.parametrize("isa", ISAS[1:])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bits", MX)
def test_instruction_sets_agree_on_mx(bits: int, mode: str, isa: str) -> None:
    for groups, out in ((1, 5), (2, 16), (3, 33), (8, 8), (9, 70), (18, 7), (67, 3)):
        case = make(out, 32 * groups, bits, 32, "u8")
        for rows in ROWS:
            x = inputs(rows, case.n_in)
            want = linear(ops_for("scalar", mode), case, x)
            got = linear(ops_for(isa, mode), case, x)
            assert normalised(got, want, x, case) <= BETWEEN_ISAS, (groups, out, rows)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bits", MX)
def test_a_row_of_mx_does_not_depend_on_its_neighbours(bits: int, mode: str, isa: str) -> None:
    case = make(43, 576, bits, 32, "u8")
    x, ops = inputs(20, case.n_in), ops_for(isa, mode)
    alone = np.concatenate([linear(ops, case, x[i : i + 1]) for i in range(len(x))])
    for rows in (2, 3, 4, 5, 6, 7, 8, *((9, 20) if mode == "f32" or bits == 8 else ())):
        assert linear(ops, case, x[:rows]).tobytes() == alone[:rows].tobytes(), rows


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("mode", MODES)
def test_largest_mx_codes_do_not_saturate(mode: str, isa: str) -> None:
    for bits, code in ((4, 7), (4, 15), (8, 0x7E), (8, 0xFE)):
        case = make(8, 128, bits, 32, "u8", codes=np.full((8, 128), code))
        for rows in (1, 9):
            for x in (np.ones((rows, 128)), -np.ones((rows, 128))):
                got = linear(ops_for(isa, mode), case, x.astype(np.float32))
                assert normalised(got, x @ case.w.T, x, case) <= MODES[mode], (bits, code, rows)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bits", MX)
def test_nan_of_mx_stays_in_its_output(bits: int, mode: str, isa: str) -> None:
    """Scale 255 is NaN, and so is 0x7f of E4M3; nothing else is."""
    case = make(6, 32 * 5, bits, 32, "u8")
    case.scales[1, 3] = 255
    if bits == 8:
        case.data.view(np.uint8)[4, [0, 50]] = 0x7F, 0xFF
    for rows in (1, 12):
        got = linear(ops_for(isa, mode), case, inputs(rows, case.n_in))
        assert np.isnan(got).all(axis=0).tolist() == [False, True, False, False, bits == 8, False]
        assert np.isnan(got).any(axis=0).tolist() == np.isnan(got).all(axis=0).tolist()


@pytest.mark.parametrize("isa", ISAS[1:])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("bits", "group"), [*FORMS, (0, 0)])
def test_instruction_sets_agree(bits: int, group: int, mode: str, isa: str) -> None:
    # few groups, odd ones, more than a vector of scales has and than are converted at once; many outputs
    for groups, out in ((1, 5), (2, 16), (5, 33), (8, 8), (9, 70), (18, 7), (67, 3)):
        dtype = ("f32", "f16", "bf16")[groups % 3]
        case = make(out, (group or 29) * groups, bits, group, dtype)
        for rows in ROWS:
            x = inputs(rows, case.n_in)
            want = linear(ops_for("scalar", mode), case, x)
            got = linear(ops_for(isa, mode), case, x)
            assert normalised(got, want, x, case) <= BETWEEN_ISAS, (groups, out, rows)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("group", "n_in"), [(64, 576), (64, 512), (32, 256), (128, 1152), (64, 1536)])
@pytest.mark.parametrize("bits", [0, *BITS])
def test_a_row_does_not_depend_on_its_neighbours(
    bits: int, group: int, n_in: int, mode: str, isa: str
) -> None:
    """Bit for bit up to 8 rows; on the exact path for any number: a continued sequence equals a fresh one."""
    case = make(43, n_in, bits, group, "bf16")
    x = inputs(20, case.n_in)
    ops = ops_for(isa, mode)
    alone = np.concatenate([linear(ops, case, x[i : i + 1]) for i in range(len(x))])
    for rows in (2, 3, 4, 5, 6, 7, 8, *((9, 20) if mode == "f32" else ())):
        assert linear(ops, case, x[:rows]).tobytes() == alone[:rows].tobytes(), rows


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rows", [1, 20])
def test_threads_do_not_change_a_bit(rows: int, mode: str, isa: str) -> None:
    case = make(301, 64 * 9, 4, 64, "bf16")
    x = inputs(rows, case.n_in)
    results = {linear(ops_for(isa, mode, threads), case, x).tobytes() for threads in (1, 2, 3, 5)}
    assert len(results) == 1


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("op", ["linear_group", "linear_add", "linear_gated"])
def test_fused_equals_decomposed(op: str, rows: int, isa: str) -> None:
    """Outputs of one group may differ in bits and group size; each needs its own packed input."""
    n_in = 128 * 3
    a, b, c = (
        make(o, n_in, *f) for o, f in ((35, (4, 64, "bf16")), (35, (6, 128, "f16")), (9, (8, 32, "f32")))
    )
    x, start = inputs(rows, n_in), inputs(rows, 35)
    bias = inputs(3, 35)
    results = []
    for fused in (True, False):
        ops = Ops(isa, fused=fused, threads=2, activations="int15")
        ys = [ops.f32(start), ops.empty(rows, 35), ops.empty(rows, 9)]
        wa, wb, wc = (k.weight(ops) for k in (a, b, c))
        xt, ba, bb = ops.f32(x), ops.f32(bias[0]), ops.f32(bias[1])
        enc = ops.begin()
        if op == "linear_group":
            none = core.Tensor()
            parts = [
                core.LinearOut(y, w, t) for y, w, t in zip(ys, (wa, wb, wc), (ba, none, none), strict=True)
            ]
            enc.linear_group(xt, parts)
        elif op == "linear_add":
            enc.linear_add(ys[0], xt, wa, ba)
        else:
            enc.linear_gated(ys[0], xt, wa, wb, "silu", ba, bb)
        enc.submit().wait()
        results.append(b"".join(y.numpy().tobytes() for y in ys))
    assert results[0] == results[1]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("rows", [1, 6, 20])
def test_a_chain_equals_its_links(rows: int, threads: int, isa: str) -> None:
    """Linears of one submission fetch each other's weights ahead; that must not change a bit."""
    shapes = [(70, 4, 64), (301, 3, 64), (9, 8, 32), (1, 4, 128), (530, 6, 64), (33, 0, 0), (64, 4, 32)]
    cases = [make(out, 128 * 5, bits, group, "bf16") for out, bits, group in shapes]
    cases += [make(70, 128 * 5, bits, 32, "u8") for bits in MX]
    x = inputs(rows, 128 * 5)
    alone = [linear(ops_for(isa, "int15", 1), case, x) for case in cases]
    ops = ops_for(isa, "int15", threads)
    ys, ws, xt = [ops.empty(rows, c.out) for c in cases], [c.weight(ops) for c in cases], ops.f32(x)
    for _ in range(3):
        enc = ops.begin()
        for y, w in zip(ys, ws, strict=True):
            enc.linear(y, xt, w)
        enc.submit().wait()
        for y, want in zip(ys, alone, strict=True):
            assert y.numpy().tobytes() == want.tobytes()


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@pytest.mark.parametrize("gated", [False, True])
def test_what_is_read_next_is_asked_for(gated: bool, workers: int) -> None:
    """Of each worker: all tiles but the first of the chain, and what is fetched in between is what comes."""
    layer = [
        [(576, 576), (192, 576), (192, 576), (256, 576)],
        [(576, 576)],
        [(1536, 576), (1536, 576)],
        [(576, 1536)],
    ]
    readings = core.reading_order(layer * 2, gated, workers)
    for reading in readings:
        tiles = reading.tiles
        unasked = [i for i, tile in enumerate(tiles) if not tile.asked]
        assert unasked[0] == 0
        assert len(unasked) <= (3 if gated else 1), "the second half of a pair begins with a burst"
        for tile, following in pairwise(tiles):
            assert tile.at < tile.end <= tile.share_end
            assert gated or following.at == (tile.end if tile.end < tile.share_end else tile.after)
        starts = {tile.at for tile in tiles}
        assert all(at in starts for at, _ in reading.idle[:-1])
        assert reading.idle[-1] == (0, 0), "nothing is known to follow"
    everything = sorted((t.at, t.end) for reading in readings for t in reading.tiles)
    assert everything[0][0] == 1
    assert all(a[1] == b[0] for a, b in pairwise(everything)), "all weights are read, none twice"


def test_fetching_ahead_has_a_switch() -> None:
    case = make(301, 64 * 9, 4, 64, "bf16")
    x = inputs(1, case.n_in)
    results = []
    for ahead in (True, False):
        ops = Ops("auto", activations="int15", cpu_fetch_ahead=ahead)
        ys, w, xt = [ops.empty(1, 301) for _ in range(3)], case.weight(ops), ops.f32(x)
        enc = ops.begin()
        for y in ys:
            enc.linear(y, xt, w)
        enc.submit().wait()
        results.append([y.numpy().tobytes() for y in ys])
    assert results[0] == results[1]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bits", BITS)
def test_largest_codes_do_not_saturate(bits: int, mode: str, isa: str) -> None:
    for group in (32, 64, 128):
        n_in = group * 4
        case = make(8, n_in, bits, group, "f32", codes=np.full((8, n_in), (1 << bits) - 1))
        for rows in (1, 9):
            for x in (np.ones((rows, n_in)), -np.ones((rows, n_in)), inputs(rows, n_in) * 0 + 3):
                got = linear(ops_for(isa, mode), case, x.astype(np.float32))
                assert normalised(got, x @ case.w.T, x, case) <= MODES[mode], (group, rows)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("mode", ["int15", "int8"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_shows_in_its_row_alone(bad: float, mode: str, isa: str) -> None:
    case = make(21, 64 * 5, 4, 64, "bf16")
    for rows in (3, 12):
        x = inputs(rows, case.n_in)
        clean = linear(ops_for(isa, mode), case, x)
        x[1, 77] = bad
        got = linear(ops_for(isa, mode), case, x)
        assert np.isnan(got[1]).all()
        assert np.delete(got, 1, axis=0).tobytes() == np.delete(clean, 1, axis=0).tobytes()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("mode", ["int15", "int8"])
def test_very_small_and_very_large_inputs(mode: str, isa: str) -> None:
    case = make(21, 64 * 5, 4, 64, "bf16")
    for rows in (1, 12):
        for scale in (1e-44, 1e-38, 1e-31):
            assert (
                np.abs(linear(ops_for(isa, mode), case, inputs(rows, case.n_in) * np.float32(scale))).max()
                < 1e-27
            )
        x = inputs(rows, case.n_in).astype(np.float64) * 1e30
        got = linear(ops_for(isa, mode), case, x.astype(np.float32))
        assert normalised(got, x @ case.w.T, x, case) <= MODES[mode]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("rows", [1, 9, 530])
def test_bias_and_many_rows(rows: int, isa: str) -> None:
    case = make(18, 64, 4, 64, "f16")
    x, bias = inputs(rows, 64), inputs(1, 18)[0]
    got = linear(ops_for(isa, "int15"), case, x, bias)
    assert normalised(got - bias, x.astype(np.float64) @ case.w.T, x, case) <= MODES["int15"]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("bits", [0, *BITS])
def test_embedding_of_any_weight(bits: int, isa: str) -> None:
    case = make(30, 64 * 3, bits, 32, "bf16")
    ops = ops_for(isa, "int15")
    y = ops.empty(3, case.n_in)
    ids, table = ops.i32([29, 0, 7]), case.weight(ops)
    ops.run(lambda e: e.embed(y, table, ids, 0.5))
    assert np.allclose(y.numpy(), case.w[[29, 0, 7]] * 0.5, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("bits", MX)
def test_embedding_of_mx_is_exact(bits: int, isa: str) -> None:
    """Every code at every scale: the bits of mlx's own dequantisation (tests/golden/quantize.npz)."""
    with np.load(GOLDEN) as golden:
        data, scales, want = (golden[f"all/mxfp{bits}/{part}"] for part in ("packed", "scales", "values"))
    ops, n = ops_for(isa, "int15"), want.shape[1]
    put = ops.device.tensor
    table = core.Weight(
        len(want), n, put(data, "u32"), bits=bits, group=32, scales=put(scales, "u8"), format=f"mxfp{bits}"
    )
    y, ids = ops.empty(*want.shape), ops.i32(np.arange(len(want)))
    ops.run(lambda e: e.embed(y, table, ids, 1.0))
    got = y.numpy()
    assert np.array_equal(np.isnan(got), np.isnan(want))
    finite = ~np.isnan(want)
    assert np.array_equal(got.view(np.uint32)[finite], want.view(np.uint32)[finite])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("bits", BITS)
def test_embedding_of_codes_equals_mlx(bits: int, isa: str) -> None:
    """code * scale + bias of mlx's own words, rounded once: mlx rounds the product, too."""
    with np.load(GOLDEN) as golden:
        data, scales, biases = (golden[f"F32/{bits}/64/{p}"] for p in ("packed", "scales", "biases"))
        want = golden[f"F32/{bits}/64/values"]
    ops, (rows, n) = ops_for(isa, "int15"), want.shape
    put = ops.device.tensor
    table = core.Weight(
        rows, n, put(data, "u32"), bits=bits, group=64, scales=put(scales, "f32"), biases=put(biases, "f32")
    )
    y, ids = ops.empty(rows, n), ops.i32(np.arange(rows))
    ops.run(lambda e: e.embed(y, table, ids, 1.0))
    size = np.abs(np.repeat(biases, 64, axis=1)) + np.abs(want) + np.float32(1e-38)
    assert (np.abs(y.numpy() - want) <= size * 2.0**-23).all()
