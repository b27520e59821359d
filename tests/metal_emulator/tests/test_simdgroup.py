"""What the lanes of a simdgroup do together."""

import numpy as np
import pytest

from metal_emulator.tests.kernel_runner import Runner, bfloat_bits, from_bfloat

rng = np.random.default_rng(11)
ORDERS = [{"order": "in_order"}, {"order": "reversed"}, {"order": "random", "seed": 3}]


def by_lane(
    runner: Runner, expression: str, x: np.ndarray, t: str = "float", threads: int | None = None
) -> np.ndarray:
    source = f"""kernel void k(device const {t}* in [[buffer(0)]], device {t}* out [[buffer(1)]],
      uint i [[thread_position_in_grid]], ushort lane [[thread_index_in_simdgroup]]) {{
        {t} x = in[i]; out[i] = {expression}; }}"""
    out = runner.buffer(np.zeros_like(x))
    runner.call(source, [runner.buffer(x), out], len(x), threads or len(x))
    return out.array.copy()


def blocks(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1, 32)


lane = np.arange(32)
CASES = {
    "simd_sum(x)": lambda b: b.sum(1, keepdims=True) + 0 * b,
    "simd_product(x)": lambda b: b.prod(1, keepdims=True) + 0 * b,
    "simd_max(x)": lambda b: b.max(1, keepdims=True) + 0 * b,
    "simd_min(x)": lambda b: b.min(1, keepdims=True) + 0 * b,
    "simd_prefix_inclusive_sum(x)": lambda b: b.cumsum(1),
    "simd_prefix_exclusive_sum(x)": lambda b: b.cumsum(1) - b,
    "simd_prefix_inclusive_product(x)": lambda b: b.cumprod(1),
    "simd_broadcast(x, 5)": lambda b: b[:, [5]] + 0 * b,
    "simd_broadcast_first(x)": lambda b: b[:, [0]] + 0 * b,
    "simd_shuffle(x, ushort(31 - lane))": lambda b: b[:, ::-1],
    "simd_shuffle_xor(x, 9)": lambda b: b[:, lane ^ 9],
    "simd_shuffle_down(x, 3)": lambda b: b[:, np.where(lane + 3 > 31, lane, lane + 3)],
    "simd_shuffle_up(x, 3)": lambda b: b[:, np.where(lane < 3, lane, lane - 3)],
    "simd_shuffle_rotate_down(x, 5)": lambda b: b[:, (lane + 5) % 32],
    "simd_shuffle_rotate_up(x, 5)": lambda b: b[:, (lane - 5) % 32],
    "simd_shuffle_and_fill_down(x, x + 100, 2)": lambda b: np.roll(b, -2, 1) + np.where(lane >= 30, 100, 0),
    "simd_shuffle_and_fill_up(x, x + 100, 2, 8)": lambda b: (
        b[:, (lane & ~7) + (lane - 2) % 8] + np.where(lane % 8 < 2, 100, 0)
    ),
    "quad_sum(x)": lambda b: b.reshape(-1, 8, 4).sum(2).repeat(4, 1),
    "quad_max(x)": lambda b: b.reshape(-1, 8, 4).max(2).repeat(4, 1),
    "quad_broadcast(x, 2)": lambda b: b.reshape(-1, 8, 4)[:, :, 2].repeat(4, 1),
    "quad_shuffle_xor(x, 1)": lambda b: b[:, lane ^ 1],
    "quad_shuffle_down(x, 1)": lambda b: b[:, np.where(lane % 4 == 3, lane, lane + 1)],
    "float(simd_any(x > 1.9f))": lambda b: (b > 1.9).any(1, keepdims=True) + 0 * b,
    "float(simd_all(x > -9.0f))": lambda b: 1 + 0 * b,
    "simd_is_first() ? 1.0f : 0.0f": lambda b: (lane == 0) + 0 * b,
    "float(ulong(simd_ballot(lane % 3 == 0)) >> lane & 1)": lambda b: (lane % 3 == 0) + 0 * b,
}


@pytest.mark.parametrize("order", ORDERS, ids=lambda o: o["order"])
@pytest.mark.parametrize("expression", CASES)
def test_simd_functions(checked: Runner, expression: str, order: dict[str, object]) -> None:
    x = rng.uniform(0.8, 1.3, 96).astype(np.float32)
    with checked.settings(**order):
        got = by_lane(checked, expression, x)
    np.testing.assert_allclose(
        blocks(got), CASES[expression](blocks(x.astype(np.float64))), rtol=2e-5, atol=1e-5
    )


def test_integer_reductions(checked: Runner) -> None:
    x = rng.integers(0, 2**31, 64, dtype=np.int32)
    for expression, fold in (
        ("simd_and(x)", np.bitwise_and), ("simd_or(x)", np.bitwise_or), ("simd_xor(x)", np.bitwise_xor),
    ):  # fmt: skip
        got = blocks(by_lane(checked, expression, x, "int"))
        np.testing.assert_array_equal(got, fold.reduce(blocks(x), 1)[:, None] + np.zeros((1, 32), np.int32))


def test_a_short_simdgroup_and_lanes_that_returned(checked: Runner) -> None:
    x = np.ones(40, np.float32)
    np.testing.assert_array_equal(by_lane(checked, "simd_sum(x)", x), [32] * 32 + [8] * 8)
    source = """kernel void k(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
      if (i >= 20) return;
      out[i] = simd_sum(1.0f);
    }"""
    out = checked.buffer(np.zeros(32, np.float32))
    checked.call(source, [out], 32, 32)
    np.testing.assert_array_equal(out.array, [20] * 20 + [0] * 12)


def test_reductions_reassociate_when_perturbed(runner: Runner) -> None:
    x = (rng.standard_normal(32) * 10.0 ** rng.integers(-3, 4, 32)).astype(np.float32)
    results = set()
    for seed in range(5):
        with runner.settings(perturb_fast=2, seed=seed):
            results.add(float(by_lane(runner, "simd_sum(x)", x)[0]))
    assert len(results) > 1
    np.testing.assert_allclose(sorted(results), x.astype(np.float64).sum(), rtol=1e-5)


def test_fast_functions_move_by_a_few_ulp(runner: Runner) -> None:
    x = rng.uniform(-2, 2, 256).astype(np.float32)
    plain = by_lane(runner, "fast::exp(x)", x)
    with runner.settings(perturb_fast=3, seed=9):
        fast, precise = by_lane(runner, "fast::exp(x)", x), by_lane(runner, "precise::exp(x)", x)
    np.testing.assert_array_equal(precise, plain)
    steps = np.abs(fast.view(np.int32) - plain.view(np.int32))
    assert steps.max() == 3
    assert (steps > 0).any()


MATRIX = """
kernel void k(device const {a}* A [[buffer(0)]], device const {a}* B [[buffer(1)]],
    device float* C [[buffer(2)]],
              device {a}* out [[buffer(3)]], uint lane [[thread_index_in_simdgroup]]) {{
  simdgroup_matrix<{a}, 8, 8> a, b, d;
  simdgroup_float8x8 c = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
  simdgroup_load(a, A, 16);
  simdgroup_load(b, B, 16, ulong2(8, 0), true);
  simdgroup_multiply_accumulate(c, a, b, c);
  simdgroup_store(c, C, 8);
  simdgroup_multiply(d, a, b);
  simdgroup_store(d, out, 8, ulong2(0, 0), true);
}}"""


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("kind", ["float", "half", "bfloat"])
def test_simdgroup_matrices(checked: Runner, kind: str, shuffled: bool) -> None:
    x, y = (rng.standard_normal((8, 16)).astype(np.float32) for _ in range(2))
    to = {"float": lambda v: v, "half": lambda v: v.astype(np.float16), "bfloat": bfloat_bits}[kind]
    back = {"float": lambda v: v, "half": lambda v: v.astype(np.float32), "bfloat": from_bfloat}[kind]
    a, b, out = checked.buffer(to(x)), checked.buffer(to(y)), checked.buffer(to(np.zeros((8, 8), np.float32)))
    c = checked.buffer(np.zeros((8, 8), np.float32))
    with checked.settings(shuffle_cooperative=shuffled):
        checked.call(MATRIX.format(a=kind), [a, b, c, out], 32, 32)
    product = back(to(x))[:, :8] @ back(to(y))[:, 8:].T
    np.testing.assert_allclose(c.array, product + 1, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(back(out.array).T, product, rtol=2e-2, atol=2e-2)


def test_a_kernel_that_assumes_a_matrix_layout_is_found_out(runner: Runner) -> None:
    source = """kernel void k(device const float* A [[buffer(0)]], device float* out [[buffer(1)]],
                              uint lane [[thread_index_in_simdgroup]]) {
      simdgroup_float8x8 a;
      simdgroup_load(a, A, 8);
      out[lane] = a.thread_elements()[0];
    }"""
    a, out = runner.buffer(np.arange(64, dtype=np.float32)), runner.buffer(np.zeros(32, np.float32))
    runner.call(source, [a, out], 32, 32)
    usual = out.array.copy()
    assert list(usual[:4]) == [0, 2, 8, 10]
    with runner.settings(shuffle_cooperative=True):
        runner.call(source, [a, out], 32, 32)
    assert (out.array != usual).any()
    assert sorted(out.array) == sorted(usual)
