"""Whole kernels of the kind the project has, checked, in every order."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from metal_emulator.tests.kernel_runner import Runner, bfloat_bits, from_bfloat

KERNELS = Path(__file__).parent / "kernels"
ORDERS = [{"order": "in_order"}, {"order": "reversed"}, {"order": "random", "seed": 3}]
rng = np.random.default_rng(5)


@pytest.fixture(params=ORDERS, ids=lambda o: o["order"])
def ordered(checked: Runner, request: pytest.FixtureRequest) -> Iterator[Runner]:
    with checked.settings(**request.param):
        yield checked


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("kind", ["float", "half", "bfloat"])
def test_norm(ordered: Runner, kind: str, weighted: bool) -> None:
    to = {"float": lambda v: v, "half": lambda v: v.astype(np.float16), "bfloat": bfloat_bits}[kind]
    back = {"float": lambda v: v, "half": lambda v: v.astype(np.float32), "bfloat": from_bfloat}[kind]
    x, w = rng.standard_normal((3, 1000)).astype(np.float32), rng.standard_normal(1000).astype(np.float32)
    library = ordered.compile((KERNELS / "correct_norm.metal").read_text(), header="")
    kernel = ordered.kernel(library, f"rms_norm_{kind}", {0: np.bool_(weighted)})
    y = ordered.buffer(to(np.zeros_like(x)))
    parameters = np.array([1000], np.uint32).tobytes() + np.array([1e-5], np.float32).tobytes()
    weight = ordered.buffer(to(w)) if weighted else None
    ordered.encode(kernel, [ordered.buffer(to(x)), weight, y, parameters], 3 * 256, 256)
    ordered.run()
    x, w = back(to(x)).astype(np.float64), back(to(w)).astype(np.float64)
    expected = x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * (w if weighted else 1)
    tolerance = {"float": 1e-5, "half": 1e-3, "bfloat": 1e-2}[kind]
    np.testing.assert_allclose(back(y.array), expected, rtol=tolerance, atol=1e-6)


def multiply(
    runner: Runner,
    file: str,
    name: str,
    mnk: tuple[int, int, int],
    tile: tuple[int, int],
    threads: int,
    **options: object,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    m, n, k = mnk
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    c = runner.buffer(np.zeros((m, n), np.float32))
    right = b.T if name == "to_registers" else b
    library = runner.compile(
        (KERNELS / file).read_text(), header="", version=400 if "tensor" in file else 310
    )
    grid = ((n + tile[1] - 1) // tile[1] * threads, (m + tile[0] - 1) // tile[0])
    arguments = [runner.buffer(a), runner.buffer(right), c, np.array(mnk, np.int32)]
    runner.encode(runner.kernel(library, name), arguments, grid, threads, **options)  # type: ignore[arg-type]
    runner.run()
    return a.astype(np.float32), b.astype(np.float32), c.array


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("mnk", [(32, 32, 32), (64, 96, 40)])
def test_matmul(ordered: Runner, mnk: tuple[int, int, int], shuffled: bool) -> None:
    with ordered.settings(shuffle_cooperative=shuffled):
        a, b, c = multiply(ordered, "correct_matmul.metal", "matmul", mnk, (32, 32), 128, threadgroup=[4096])
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize(
    ("name", "mnk", "tile", "threads", "factor"),
    [
        ("in_memory", (64, 32, 48), (64, 32), 128, 1),
        ("in_memory", (70, 50, 37), (64, 32), 128, 1),
        ("to_registers", (64, 64, 48), (64, 32), 128, 2),
        ("to_registers", (33, 40, 20), (64, 32), 128, 2),
        ("in_registers", (32, 64, 48), (16, 32), 32, 1),
    ],
)
def test_tensor_operations(
    ordered: Runner,
    name: str,
    mnk: tuple[int, int, int],
    tile: tuple[int, int],
    threads: int,
    factor: int,
    shuffled: bool,
) -> None:
    with ordered.settings(shuffle_cooperative=shuffled):
        a, b, c = multiply(ordered, "correct_tensor.metal", name, mnk, tile, threads)
    np.testing.assert_allclose(c, factor * (a @ b), rtol=1e-4, atol=1e-4)


def test_results_do_not_depend_on_the_order(checked: Runner) -> None:
    source = """kernel void k(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
      uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]]) {
      threadgroup float s[128];
      s[t] = x[i];
      threadgroup_barrier(mem_flags::mem_threadgroup);
      float v = simd_sum(s[127 - t]);
      y[i] = v + s[t ^ 77];
    }"""
    x = rng.standard_normal(512).astype(np.float32)
    results = []
    for order, seed in (("in_order", 1), ("reversed", 1), ("random", 1), ("random", 2)):
        y = checked.buffer(np.zeros(512, np.float32))
        with checked.settings(order=order, seed=seed):
            checked.call(source, [checked.buffer(x), y], 512, 128)
        results.append(y.array.copy())
    assert all((r == results[0]).all() for r in results)
