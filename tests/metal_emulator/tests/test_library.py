"""The function families of the Metal Shading Language Specification against NumPy."""

import numpy as np
import pytest

from metal_emulator.tests.kernel_runner import At, Runner, bfloat_bits, from_bfloat

rng = np.random.default_rng(7)


def unary(
    runner: Runner, expression: str, x: np.ndarray, t: str, u: str, dtype: type, **options: object
) -> np.ndarray:
    """expression of `x`, elementwise, from type t to u."""
    source = f"""kernel void k(device const {t}* in [[buffer(0)]], device {u}* out [[buffer(1)]],
      uint i [[thread_position_in_grid]]) {{ {t} x = in[i]; out[i] = {expression}; }}"""
    out = runner.buffer(np.zeros(len(x), dtype))
    runner.call(source, [runner.buffer(x), out], len(x), 64, **options)  # type: ignore[arg-type]
    return out.array.copy()


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("exp", np.exp), ("exp2", np.exp2), ("log", np.log), ("log2", np.log2), ("log10", np.log10),
        ("sqrt", np.sqrt),
        ("sin", np.sin), ("cos", np.cos), ("tan", np.tan), ("sinh", np.sinh), ("cosh", np.cosh), ("tanh",
        np.tanh),
        ("asinh", np.arcsinh), ("atan", np.arctan), ("floor", np.floor), ("ceil", np.ceil), ("trunc",
        np.trunc),
        ("rint", np.rint), ("fabs", np.abs), ("abs", np.abs), ("rsqrt", lambda x: 1 / np.sqrt(x)),
        ("exp10", lambda x: 10.0**x), ("sinpi", lambda x: np.sin(np.pi * x)), ("fract",
        lambda x: x - np.floor(x)),
        ("sign", np.sign), ("saturate", lambda x: np.clip(x, 0, 1)), ("round", lambda x: np.trunc(x + 0.5)),
    ],
)  # fmt: skip
def test_math(runner: Runner, name: str, reference: object) -> None:
    exact = {"floor", "ceil", "trunc", "rint", "fabs", "abs", "fract", "sign", "saturate", "round"}
    for space in ("",) if name in exact else ("", "precise::", "fast::"):
        check_math(runner, space + name, reference)


def check_math(runner: Runner, name: str, reference: object) -> None:
    x = rng.uniform(0.01, 3.0, 256).astype(np.float32)
    expected = reference(x.astype(np.float64))  # type: ignore[operator]
    got = unary(runner, f"{name}(x)", x, "float", "float", np.float32)
    np.testing.assert_allclose(got, expected, rtol=4e-6, atol=2e-7)
    half = x.astype(np.float16)
    got = unary(runner, f"{name}(x)", half, "half", "half", np.float16)
    np.testing.assert_allclose(
        got.astype(np.float64), reference(half.astype(np.float64)), rtol=2e-3, atol=1e-3
    )  # type: ignore[operator]


def test_half_and_bfloat_round_after_each_operation(runner: Runner) -> None:
    x = np.array([2048.0, 1.0, 3.0, 0.1], np.float16)
    got = unary(runner, "x + 1.0h + 1.0h", x, "half", "half", np.float16)
    np.testing.assert_array_equal(got, (x + np.float16(1)) + np.float16(1))
    assert got[0] == 2048  # not 2050: each sum was rounded
    b = bfloat_bits(np.array([256.0, 1.0, 3.0, 0.1], np.float32))
    got = unary(runner, "x + bfloat(1.0f) + bfloat(1.0f)", b, "bfloat", "bfloat", np.uint16)
    assert from_bfloat(got)[0] == 256
    assert (
        unary(runner, "bfloat(x)", np.array([1.00390625], np.float32), "float", "bfloat", np.uint16)[0]
        == 0x3F80
    )


def test_float_denormals_are_flushed_and_half_ones_are_not(runner: Runner) -> None:
    tiny = np.array([1e-40, 1e-38], np.float32)
    assert (unary(runner, "x + x", tiny, "float", "float", np.float32) == 0).all()
    half = np.array([6e-8, 3e-5], np.float16)
    np.testing.assert_array_equal(unary(runner, "x + x", half, "half", "half", np.float16), half + half)
    with runner.settings(ftz=False):
        assert (unary(runner, "x + x", tiny, "float", "float", np.float32) != 0).all()


@pytest.mark.parametrize(
    ("expression", "reference"),
    [
        ("popcount(x)", lambda x: np.array([bin(v).count("1") for v in x])),
        ("clz(x)", lambda x: np.array([32 - int(v).bit_length() for v in x])),
        ("ctz(x)", lambda x: np.array([(int(v) & -int(v)).bit_length() - 1 if v else 32 for v in x])),
        ("reverse_bits(x)", lambda x: np.array([int(f"{v:032b}"[::-1], 2) for v in x])),
        ("extract_bits(x, 5, 7)", lambda x: x >> 5 & 127),
        ("insert_bits(x, 0x55u, 4, 8)", lambda x: x & ~np.uint32(0xFF0) | np.uint32(0x550)),
        ("rotate(x, 12u)", lambda x: x << 12 | x >> 20),
        ("mulhi(x, 0xdeadbeefu)", lambda x: x.astype(np.uint64) * 0xDEADBEEF >> 32),
        ("addsat(x, 0x80000000u)", lambda x: np.minimum(x.astype(np.uint64) + 0x80000000, 0xFFFFFFFF)),
        ("absdiff(x, 1000u)", lambda x: np.abs(x.astype(np.int64) - 1000)),
        ("hadd(x, 7u)", lambda x: (x.astype(np.uint64) + 7) >> 1),
        ("clamp(x, 10u, 1000u)", lambda x: np.clip(x, 10, 1000)),
    ],
)
def test_integers(runner: Runner, expression: str, reference: object) -> None:
    x = np.concatenate(
        [rng.integers(0, 2**32, 60, dtype=np.uint32), np.array([0, 1, 999, 0xFFFFFFFF], np.uint32)]
    )
    got = unary(runner, expression, x, "uint", "uint", np.uint32)
    np.testing.assert_array_equal(got, reference(x).astype(np.uint32))  # type: ignore[operator]


def test_signed_bit_fields_extend_the_sign(runner: Runner) -> None:
    x = np.array([0x0F0, 0x070, -1], np.int32)
    np.testing.assert_array_equal(
        unary(runner, "extract_bits(x, 4, 4)", x, "int", "int", np.int32), [-1, 7, -1]
    )


def test_relational_sees_nan_in_fast_mode(runner: Runner) -> None:
    x = np.array([1, np.nan, np.inf, -np.inf, -0.0], np.float32)
    expression = "isnan(x) | isinf(x) << 1 | isfinite(x) << 2 | signbit(x) << 3"
    for math in (0, 2):
        got = unary(runner, expression, x, "float", "int", np.int32, math=math)
        np.testing.assert_array_equal(got, [4, 1, 2, 10, 12])
    assert unary(runner, "max(x, 2.0f)", x, "float", "float", np.float32)[1] == 2  # the number, not the NaN


def test_as_type_and_packing(runner: Runner) -> None:
    x = rng.standard_normal(64).astype(np.float32)
    np.testing.assert_array_equal(
        unary(runner, "as_type<uint>(x)", x, "float", "uint", np.uint32), x.view(np.uint32)
    )
    w = rng.integers(0, 2**32, 64, dtype=np.uint32)
    got = unary(runner, "as_type<half2>(x).y", w, "uint", "half", np.float16).view(np.uint16)
    np.testing.assert_array_equal(got, w >> 16)
    bytes_ = w.view(np.uint8).reshape(-1, 4)
    got = unary(runner, "unpack_unorm4x8_to_float(x)[2]", w, "uint", "float", np.float32)
    np.testing.assert_allclose(got, bytes_[:, 2] / 255, rtol=1e-6)
    got = unary(runner, "unpack_snorm2x16_to_float(x)[1]", w, "uint", "float", np.float32)
    np.testing.assert_allclose(got, np.maximum(w.view(np.int16)[1::2] / 32767, -1), rtol=1e-6)
    same = "pack_float_to_unorm4x8(unpack_unorm4x8_to_float(x))"
    np.testing.assert_array_equal(unary(runner, same, w, "uint", "uint", np.uint32), w)


def test_vectors(runner: Runner) -> None:
    source = """
    kernel void k(device const float4* in [[buffer(0)]], device float4* out [[buffer(1)]],
                  device const packed_float3* p [[buffer(2)]], uint i [[thread_position_in_grid]]) {
      float4 a = in[i], b = a.wzyx;
      b.xy = a.yx;
      b.zw += float2(1.0f, 2.0f);
      float3 q = float3(p[i]);
      b += float4(q.xz, dot(q, float3(1)), q.y);
      half4 h = half4(a);
      b = select(b, float4(h), a > float4(0.5f));
      bool any_large = any(a > 2.0f);
      uchar4 c = uchar4(1, 2, 3, 4);
      vec<int, 2> d(c.zw);
      b.x = any_large ? b.x : -b.x;
      out[i] = b * 2 + float4(float2(d), length(a.xy), max(a, b).w);
    }"""
    x = rng.standard_normal((64, 4)).astype(np.float32)
    p = rng.standard_normal((64, 3)).astype(np.float32)
    out = runner.buffer(np.zeros_like(x))
    runner.call(source, [runner.buffer(x), out, runner.buffer(p)], 64, 32)
    b = x[:, ::-1].copy()
    b[:, :2] = x[:, [1, 0]]
    b[:, 2:] += np.array([1, 2], np.float32)
    b += np.stack([p[:, 0], p[:, 2], p.sum(1), p[:, 1]], 1)
    b = np.where(x > 0.5, x.astype(np.float16).astype(np.float32), b)
    b[:, 0] *= np.where((x > 2).any(1), 1, -1)
    expected = b * 2
    expected += np.stack(
        [0 * b[:, 0] + 3, 0 * b[:, 0] + 4, np.hypot(x[:, 0], x[:, 1]), np.maximum(x, b)[:, 3]], 1
    )
    np.testing.assert_allclose(out.array, expected, rtol=1e-5, atol=1e-5)


def test_positions_in_a_grid_that_does_not_divide(runner: Runner) -> None:
    source = """
    kernel void k(device uint* out [[buffer(0)]], uint3 g [[thread_position_in_grid]],
        uint3 n [[threads_per_grid]],
        ushort2 t [[thread_position_in_threadgroup]], uint2 q [[threadgroup_position_in_grid]],
        uint index [[thread_index_in_threadgroup]], uint2 size [[threads_per_threadgroup]],
        uint2 full [[dispatch_threads_per_threadgroup]], uint2 groups [[threadgroups_per_grid]],
        uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]],
        uint simds [[simdgroups_per_threadgroup]], uint width [[threads_per_simdgroup]]) {
      bool good = g.x == q.x * full.x + t.x && g.y == q.y * full.y + t.y && index == t.y * size.x + t.x;
      good = good && lane == index % 32 && simd == index / 32 && simds == (size.x * size.y + 31) / 32
          && width == 32;
      good = good && full.x == 16 && full.y == 4 && groups.x == 3 && groups.y == 3 && n.x == 40 && n.y == 10;
      good = good && size.x == (q.x == 2 ? 8u : 16u) && size.y == (q.y == 2 ? 2u : 4u);
      out[g.y * n.x + g.x] += good ? 1 : 100;
    }"""
    out = runner.buffer(np.zeros((10, 40), np.uint32))
    runner.call(source, [out], (40, 10), (16, 4))
    assert (out.array == 1).all()


def test_templates_function_constants_and_macros(runner: Runner) -> None:
    source = """
    constant int scale [[function_constant(3)]];
    constant bool extra [[function_constant(0)]];
    constant int scale_or_one = is_function_constant_defined(scale) ? scale : 1;
    constant float table[2] = {0.5, 4.0};
    template <typename T, int N>
    [[kernel, max_total_threads_per_threadgroup(64)]] void scaled(
        device T* out [[buffer(0)]], device const T* more [[buffer(1), function_constant(extra)]],
        uint i [[thread_position_in_grid]]) {
      out[i] = T(scale_or_one * N * int(i)) + T(table[i & 1]);
      if (extra) out[i] += more[i] + T(OFFSET);
    }
    template [[host_name("scaled_float")]] [[kernel]] decltype(scaled<float, 2>) scaled<float, 2>;
    template [[host_name("scaled_half")]] [[kernel]] decltype(scaled<half, 3>) scaled<half, 3>;
    """
    library = runner.compile(source, macros={"OFFSET": "10"})
    assert runner.names(library) == ["scaled_float", "scaled_half"]
    i = np.arange(32)
    base = np.array([0.5, 4.0])[i & 1]
    for name, dtype, n in (("scaled_float", np.float32, 2), ("scaled_half", np.float16, 3)):
        for constants, factor, more in (
            ({0: np.bool_(False)}, 1, False), ({0: np.bool_(True), 3: np.int32(5)}, 5, True),
            ({0: np.bool_(False), 3: np.int32(7)}, 7, False),
        ):  # fmt: skip
            out, plus = runner.buffer(np.zeros(32, dtype)), runner.buffer(np.full(32, 2, dtype))
            runner.encode(runner.kernel(library, name, constants), [out, plus if more else None], 32, 32)
            runner.run()
            np.testing.assert_array_equal(
                out.array, (factor * n * i + base + (12 if more else 0)).astype(dtype)
            )


def test_atomics(runner: Runner) -> None:
    source = """
    kernel void k(device atomic_uint* u [[buffer(0)]], device atomic_float* f [[buffer(1)]],
                  device uint* seen [[buffer(2)]], uint i [[thread_position_in_grid]],
                      uint t [[thread_position_in_threadgroup]]) {
      threadgroup atomic_int local[1];
      if (t == 0) atomic_store_explicit(&local[0], 0, memory_order_relaxed);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      atomic_fetch_add_explicit(&local[0], 2, memory_order_relaxed);
      uint ticket = atomic_fetch_add_explicit(&u[0], 1u, memory_order_relaxed);
      seen[ticket] = 1;
      atomic_fetch_max_explicit(&u[1], i, memory_order_relaxed);
      atomic_fetch_min_explicit(&u[2], i + 5, memory_order_relaxed);
      atomic_fetch_or_explicit(&u[3], 1u << (i & 31), memory_order_relaxed);
      atomic_fetch_add_explicit(&f[0], 0.5f, memory_order_relaxed);
      uint old = atomic_load_explicit(&u[4], memory_order_relaxed);
      while (!atomic_compare_exchange_weak_explicit(&u[4], &old, old + 3, memory_order_relaxed,
      memory_order_relaxed)) {}
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (t == 0) atomic_fetch_add_explicit(&u[5], uint(atomic_load_explicit(&local[0],
      memory_order_relaxed)), memory_order_relaxed);
    }"""
    n = 4096
    u = runner.buffer(np.array([0, 0, 99, 0, 0, 0], np.uint32))
    f, seen = runner.buffer(np.zeros(1, np.float32)), runner.buffer(np.zeros(n, np.uint32))
    runner.call(source, [u, f, seen], n, 128)
    np.testing.assert_array_equal(u.array, [n, n - 1, 5, 0xFFFFFFFF, 3 * n, 2 * n])
    assert f.array[0] == n / 2
    assert seen.array.all()


def test_offsets_and_references(runner: Runner) -> None:
    source = """
    struct P { uint n; float scale; };
    kernel void k(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
        constant P& p [[buffer(2)]],
                  constant float* table [[buffer(3)]], uint i [[thread_position_in_grid]]) {
      if (i < p.n) y[i] = x[i] * p.scale + table[1];
    }"""
    x, y = runner.buffer(np.arange(64, dtype=np.float32)), runner.buffer(np.zeros(40, np.float32))
    parameters = np.array([40], np.uint32).tobytes() + np.array([2], np.float32).tobytes()
    runner.call(source, [At(x, 32), y, parameters, np.array([1, 5], np.float32)], 64, 32)
    np.testing.assert_array_equal(y.array, np.arange(8, 48) * 2 + 5)
