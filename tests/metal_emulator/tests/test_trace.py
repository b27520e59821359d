"""Bytes requested and touched."""

import time

import numpy as np
import pytest

from metal_emulator.tests.kernel_runner import At, Runner

MATVEC = """
// y = W x for 4-bit weights in groups of 64: w = scale q + bias; a simdgroup makes four rows.
kernel void k(device const uint* w [[buffer(0)]], device const bfloat* scales [[buffer(1)]],
              device const bfloat* biases [[buffer(2)]], device const float* x [[buffer(3)]],
              device float* y [[buffer(4)]], constant uint& K [[buffer(5)]],
                  uint group [[threadgroup_position_in_grid]],
              uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]]) {
  const uint row0 = (group * 2 + sg) * 4;
  float sums[4] = {0, 0, 0, 0};
  for (uint k = lane * 16; k < K; k += 512) {
    float xs[16], total = 0;
    for (int i = 0; i < 16; i++) { xs[i] = x[k + i]; total += xs[i]; }
    for (uint r = 0; r < 4; r++) {
      const ulong row = row0 + r;
      device const uint2* packed = (device const uint2*)(w + row * (K / 8) + k / 8);
      const uint2 q = packed[0];
      float d = 0;
      for (int i = 0; i < 8;
          i++) d += xs[i] * float(q.x >> (4 * i) & 15) + xs[8 + i] * float(q.y >> (4 * i) & 15);
      sums[r] += float(scales[row * (K / 64) + k / 64]) * d + float(biases[row * (K / 64) + k / 64]) * total;
    }
  }
  for (uint r = 0; r < 4; r++) {
    const float v = simd_sum(sums[r]);
    if (lane == 0) y[row0 + r] = v;
  }
}"""


def matvec(runner: Runner, rows: int, columns: int) -> dict[str, int]:
    rng = np.random.default_rng(0)
    q = rng.integers(0, 2**32, (rows, columns // 8), dtype=np.uint32)
    one = np.full((rows, columns // 64), 0x3F80, np.uint16)
    x = rng.standard_normal(columns).astype(np.float32)
    y = runner.buffer(np.zeros(rows, np.float32), "y")
    buffers = [
        runner.buffer(q, "w"),
        runner.buffer(one, "s"),
        runner.buffer(one, "b"),
        runner.buffer(x, "x"),
        y,
    ]
    runner.call(MATVEC, [*buffers, np.uint32(columns)], rows // 8 * 64, 64)
    few = q[:8].view(np.uint8)
    nibbles = np.stack([few & 15, few >> 4], 2).reshape(8, columns)
    np.testing.assert_allclose(y.array[:8], (nibbles + 1.0) @ x, rtol=1e-4, atol=1e-2)
    for b in buffers:
        runner.free(b)
    return {"read": q.nbytes + 2 * one.nbytes + x.nbytes, "written": 4 * rows}


@pytest.mark.parametrize("mode", ["check", "trace"])
def test_bytes_of_a_matvec(runner: Runner, mode: str) -> None:
    with runner.settings(**{mode: True}):
        expected = matvec(runner, 256, 1024)
    counters = runner.counters()
    assert counters["dispatches"] == 1
    assert counters["unique_read"] == counters["touched_read"] == expected["read"]
    assert counters["unique_written"] == counters["requested_written"] == expected["written"]
    (dispatch,) = counters["dispatch_list"]
    assert dispatch["kernel"] == "k"
    by_label = {b["label"]: b for b in dispatch["buffers"]}
    assert by_label["w"]["requested_read"] == by_label["w"]["unique_read"] == 256 * 512
    assert by_label["x"]["requested_read"] == 1024 * 4 * 256 // 4
    assert by_label["x"]["unique_read"] == 1024 * 4
    assert by_label["y"] == {"buffer": by_label["y"]["buffer"], "label": "y", "requested_read": 0,
    "unique_read": 0,
                             "requested_written": 1024, "unique_written": 1024}  # fmt: skip


def test_unique_counts_by_dispatch_and_touched_once(runner: Runner) -> None:
    source = """kernel void k(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
      uint i [[thread_position_in_grid]]) { y[i] = x[i] + x[i / 2]; }"""
    kernel = runner.kernel(runner.compile(source), "k")
    x, y = runner.buffer(np.zeros(256, np.float32), "x"), runner.buffer(np.zeros(128, np.float32), "y")
    with runner.settings(trace=True, workers=2):
        for offset in (0, 256):
            runner.encode(kernel, [At(x, offset), y], 128, 32)
            runner.run()
    counters = runner.counters()
    assert counters["requested_read"] == 2 * 128 * 8
    assert counters["unique_read"] == 2 * 128 * 4
    assert counters["touched_read"] == (64 + 128) * 4
    assert counters["touched_written"] == 128 * 4
    assert runner.counters()["touched_read"] == 0


def test_tracing_a_vocabulary_head_is_quick(runner: Runner) -> None:
    start = time.monotonic()
    with runner.settings(trace=True):
        expected = matvec(runner, 151936, 1024)
    counters = runner.counters()
    assert counters["unique_read"] == expected["read"]
    assert time.monotonic() - start < 30
