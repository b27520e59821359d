"""Planted mistakes that their checkers must report, and correct kernels about which all stay silent."""

import numpy as np
import pytest

from metal_emulator.tests.kernel_runner import Report, Runner

ORDERS = [{"order": "in_order"}, {"order": "reversed"}, {"order": "random", "seed": 5}]
SIGNATURE = """kernel void k(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
  uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]]) """


def reports_of(runner: Runner, body: str, n: int = 64, group: int = 64, **options: object) -> list[Report]:
    x = runner.buffer(np.arange(n, dtype=np.float32), "x")
    y = runner.buffer(np.zeros(n, np.float32), "y")
    runner.call(SIGNATURE + body, [x, y], n, group, **options)  # type: ignore[arg-type]
    return runner.reports()


MISTAKES = {
    "read past the end": ("out-of-bounds", "{ y[i] = x[i + 1]; }",
    "4 bytes at offset 256 of 'x' (256 bytes)"),
    "write in front": ("out-of-bounds", "{ if (i == 0) { device float* p = y - 4; *p = 1; } }",
    "write of 4 bytes"),
    "read far away": ("out-of-bounds", "{ y[i] = x[i + (1u << 28)]; }", "read of 4 bytes"),
    "threadgroup memory overrun": (
        "out-of-bounds",
        "{ threadgroup float a[4], b[4]; if (t == 0) { a[0] = 1; b[0] = 2; a[t + 4] = 1; } }",
        "threadgroup memory outside of every variable",
    ),
    "uninitialised threadgroup memory": (
        "uninitialised",
        """{ threadgroup float s[64]; if (t < 32) s[t] = 1;
             threadgroup_barrier(mem_flags::mem_threadgroup); y[i] = s[t]; }""",
        "threadgroup variable 's'",
    ),
    "missing barrier": (
        "race",
        """{ threadgroup float s[64]; s[t] = 0; threadgroup_barrier(mem_flags::mem_threadgroup);
             s[t] = t; y[i] = s[63 - t]; }""",
        "a barrier with mem_threadgroup is missing",
    ),
    "barrier of a simdgroup is not enough": (
        "race",
        """{ threadgroup float s[64]; s[t] = 0; threadgroup_barrier(mem_flags::mem_threadgroup);
             s[t] = t; simdgroup_barrier(mem_flags::mem_threadgroup); y[i] = s[63 - t]; }""",
        "races with a write",
    ),
    "barrier orders other memory": (
        "race",
        """{ y[i] = t; threadgroup_barrier(mem_flags::mem_threadgroup); float v = y[63 - i];
             threadgroup_barrier(mem_flags::mem_device); y[i] = v; }""",
        "a barrier with mem_device is missing",
    ),
    "write after read": (
        "race",
        """{ threadgroup float s[64]; s[t] = t; threadgroup_barrier(mem_flags::mem_threadgroup);
             float v = s[(t + 33) & 63]; s[t] = v; }""",
        "by another thread",
    ),
    "simd operation in a branch": (
        "divergent-simd",
        "{ float v = t; if (t & 1) { v = simd_sum(v); } y[i] = simd_max(v); }",
        "simd_sum at test.metal:",
    ),
    "shuffle from a lane that returned": (
        "fault",
        "{ if (t % 32 == 31) return; y[i] = simd_shuffle(x[i], 31); }",
        "inactive",
    ),
    "different barriers": (
        "divergent-barrier",
        """{ if (t < 32) { threadgroup_barrier(mem_flags::mem_threadgroup); y[i] = 1; }
             else { threadgroup_barrier(mem_flags::mem_threadgroup); y[i] = 2; } }""",
        "different calls of threadgroup_barrier",
    ),
    "return before a barrier": (
        "early-exit",
        "{ if (t < 7) return; threadgroup_barrier(mem_flags::mem_threadgroup); y[i] = 1; }",
        "by 57 of 64 threads",
    ),
    "misaligned vector": (
        "misaligned",
        "{ if (i == 1) ((device float4*)(y + 1))[0] = ((device const float4*)x)[0] * 2.0f; }",
        "no multiple of it",
    ),
    "atomic beside plain access": (
        "race",
        """{ atomic_fetch_add_explicit((device atomic_int*)y, 1, memory_order_relaxed);
             if (t == 3) y[0] = 1; }""",
        "races with a",
    ),
}  # fmt: skip


@pytest.mark.parametrize("order", ORDERS, ids=lambda o: o["order"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_reported(checked: Runner, mistake: str, order: dict[str, object]) -> None:
    kind, body, text = MISTAKES[mistake]
    with checked.settings(**order):
        reports = reports_of(checked, body)
    assert {r.kind for r in reports} == {kind}
    assert any(text in r.text and "kernel 'k'" in r.text for r in reports), reports
    if kind not in {"divergent-simd", "divergent-barrier", "early-exit", "fault"}:
        assert any("test.metal:" in r.text for r in reports), reports


@pytest.mark.parametrize("order", ORDERS, ids=lambda o: o["order"])
def test_a_race_across_threadgroups(checked: Runner, order: dict[str, object]) -> None:
    with checked.settings(**order):
        (report,) = reports_of(checked, "{ y[i / 2] = i; }", 256, 1)
        assert report.kind == "race"
        assert "another threadgroup" in report.text
        # Both groups read the byte before one writes it: the last reader is the writer.
        reports = reports_of(
            checked, "{ float v = y[0]; if (i > 0) y[i] = v; if (i == 255) y[0] = v + 1; }", 256, 64
        )
        assert {r.kind for r in reports} == {"race"}


CORRECT = {
    "elementwise": "{ y[i] = x[i] + 1; }",
    "reduction": """{ threadgroup float s[64]; s[t] = x[i];
        for (uint d = 32; d > 0; d /= 2) {
          threadgroup_barrier(mem_flags::mem_threadgroup);
          if (t < d) s[t] += s[t + d];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (t == 0) y[i] = s[0]; }""",
    "device memory behind a barrier": """{ y[i] = t; threadgroup_barrier(mem_flags::mem_device);
        float v = y[i ^ 1]; threadgroup_barrier(mem_flags::mem_device); y[i] = v; }""",
    "within a simdgroup": """{ threadgroup float s[64]; s[t] = x[i];
        simdgroup_barrier(mem_flags::mem_threadgroup);
        float v = s[t ^ 1]; simdgroup_barrier(mem_flags::mem_threadgroup); s[t] = v; y[i] = s[t]; }""",
    "many barriers": """{ threadgroup float s[64]; s[t] = 0;
        for (int n = 0; n < 3000; n++) { threadgroup_barrier(mem_flags::mem_threadgroup);
            if (t == uint(n & 63)) s[(n * 7) & 63] += 1; }
        threadgroup_barrier(mem_flags::mem_threadgroup); y[i] = s[t]; }""",
    "atomics": "{ atomic_fetch_add_explicit((device atomic_int*)y, 1, memory_order_relaxed); }",
    "private arrays": """{ float a[8]; for (int j = 0; j < 8; j++) a[j] = x[i] * j;
        thread float* p = a; y[i] = p[i & 7]; }""",
    "returned threads": "{ if (i >= 20) return; y[i] = simd_sum(x[i]); }",
    "all read one": "{ y[i] = x[0] + x[63 - t]; }",
}


@pytest.mark.parametrize("order", ORDERS, ids=lambda o: o["order"])
@pytest.mark.parametrize("case", CORRECT)
def test_a_correct_kernel_is_not_reported(checked: Runner, case: str, order: dict[str, object]) -> None:
    with checked.settings(**order):
        for n, group in ((64, 64), (128, 64)) if case != "atomics" else ((64, 64),):
            assert reports_of(checked, CORRECT[case], n, group) == []


ADD_ONE = SIGNATURE + "{ y[i] = x[i] + 1; }"


def chain(runner: Runner, barriers: bool, tracked: bool = True) -> float:
    kernel = runner.kernel(runner.compile(ADD_ONE), "k")
    buffers = [runner.buffer(np.zeros(64, np.float32), f"b{i}", tracked) for i in range(6)]
    for i in range(5):
        runner.encode(kernel, buffers[i : i + 2], 64, 32, label=f"step {i}")
        if barriers:
            runner.run()
    runner.run()
    return float(buffers[5].array[0])


def test_a_hazard_between_dispatches(checked: Runner) -> None:
    assert chain(checked, barriers=True) == 5
    assert checked.reports() == []
    chain(checked, barriers=False)
    reports = checked.reports()
    assert {r.kind for r in reports} == {"hazard"}
    assert "read of 'b1' (256 bytes) overlaps a write by kernel 'k' (step 0)" in reports[0].text
    assert "kernel 'k' (step 1)" in reports[0].text


def test_unordered_dispatches_are_shuffled(runner: Runner) -> None:
    results = {(seed, barriers): 0.0 for seed in range(6) for barriers in (False, True)}
    for seed, barriers in results:
        with runner.settings(reorder=True, seed=seed):
            results[seed, barriers] = chain(runner, barriers)
    assert {v for (_, barriers), v in results.items() if barriers} == {5}
    assert any(v != 5 for (_, barriers), v in results.items() if not barriers)


def test_bindings_that_metal_refuses(checked: Runner) -> None:
    source = """struct P { float4 v; };
    kernel void k(device float* y [[buffer(1)]], constant P& p [[buffer(2)]],
        threadgroup float* s [[threadgroup(0)]],
                  uint i [[thread_position_in_grid]]) { y[i] = p.v.x; }"""
    kernel = checked.kernel(checked.compile(source), "k")
    checked.encode(kernel, [None, None, bytes(8)], 64, 2048)
    checked.run()
    texts = " | ".join(r.kind + ": " + r.text for r in checked.reports())
    assert "binding: kernel 'k': [[buffer(1)]] 'y' is not bound" in texts
    assert "[[buffer(2)]] 'p' needs 16 bytes, bound are 8" in texts
    assert "[[threadgroup(0)]] 's' has no length" in texts
    assert "limit: kernel 'k': 2048 threads per threadgroup, the pipeline allows 1024" in texts


def test_freed_and_unbound_buffers(checked: Runner) -> None:
    kernel = checked.kernel(checked.compile(ADD_ONE), "k")
    x, y = (checked.buffer(np.zeros(64, np.float32), name) for name in "xy")
    checked.encode(kernel, [x, y], 64, 64)
    checked.free(x)
    checked.run()
    (report,) = checked.reports()
    assert (report.kind, "'x' (256 bytes) was freed" in report.text) == ("freed-buffer", True)

    # A pointer within a buffer: to a buffer that is neither bound nor resident, resident, freed.
    source = """struct Table { device float* p; };
    kernel void k(constant Table& t [[buffer(0)]], device float* y [[buffer(1)]],
        uint i [[thread_position_in_grid]]) {
      y[i] = t.p[i]; }"""
    kernel = checked.kernel(checked.compile(source), "k")
    z = checked.buffer(np.ones(64, np.float32), "z")
    pointer = np.array([z.array.ctypes.data], np.uint64)
    kinds = []
    for resident in ([], [z]):
        checked.encode(kernel, [pointer, y], 64, 64, resident=resident)
        checked.run()
        kinds.append({r.kind for r in checked.reports()})
    checked.free(z)
    checked.encode(kernel, [pointer, y], 64, 64, resident=[z])
    checked.run()
    kinds.append({r.kind for r in checked.reports()})
    assert kinds == [{"unbound-buffer"}, set(), {"freed-buffer"}]


def test_threadgroup_memory_is_limited(checked: Runner) -> None:
    body = "{ threadgroup float s[8200]; s[t] = 1; y[i] = s[t]; }"
    (report,) = reports_of(checked, body)
    assert report.kind == "limit"
    assert "32800 bytes of threadgroup memory, the device has 32768" in report.text


def test_reports_are_merged_and_counted(checked: Runner) -> None:
    (report,) = reports_of(checked, "{ y[i] = x[100]; }")
    assert report.count == 64
