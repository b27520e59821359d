"""From text to a library: messages, lints, constants, the cache."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from metal_emulator.tests.kernel_runner import CompileError, Runner

KERNEL = "kernel void k(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]]) { BODY }"


def error_of(runner: Runner, source: str, **options: object) -> str:
    with pytest.raises(CompileError) as info:
        runner.compile(source, **options)  # type: ignore[arg-type]
    return str(info.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (KERNEL.replace("BODY", "y[i] = missing;"), "test.metal:3:"),
        (
            KERNEL.replace("BODY", "double d = 1.0; y[i] = d;"),
            "test.metal:3: error: 'double' does not exist in Metal",
        ),
        (
            KERNEL.replace("BODY", "device float* p = y; float* q = p; y[i] = q[0];"),
            "without an address space",
        ),
        (KERNEL.replace("BODY", "threadgroup float s = 1; y[i] = s;"), "cannot have an initialiser"),
        ("void f(float* p) { p[0] = 1; }\n" + KERNEL, "pointer or reference"),
        ("static int n = 0;\n" + KERNEL, "a static variable"),
        ("kernel void k(device float* y) { y[0] = 1; }", "has no [[buffer(n)]]"),
        ("kernel void k(float* y [[buffer(0)]]) { y[0] = 1; }", "needs device, constant or threadgroup"),
        ("kernel void k(device float* y [[buffer(31)]]) { y[0] = 1; }", "is above 30"),
        ("kernel void k(device float* y [[buffer(1)]], device float* z [[buffer(1)]]) {}", "stands twice"),
        ("kernel int k(device float* y [[buffer(0)]]) { return 1; }", "a kernel returns void"),
        (
            "kernel void k(device float* y [[buffer(0)]], uint i [[vertex_id]]) {}",
            "[[vertex_id]] is not known",
        ),
        (KERNEL.replace("BODY", "y[i] = simd_sum(bfloat(1.0f));"), "convert to float first"),
        (KERNEL.replace("BODY", "y[i] = exp(bfloat(1.0f));"), "deleted function 'exp'"),
        (KERNEL.replace("BODY", "float2 v; v.xx = float2(1); y[i] = v.x;"), "a component is written twice"),
        (KERNEL.replace("BODY", "auto f = [&](int a) { return a; }; y[i] = f(1);"), "a lambda"),
        ("#include <metal_tensor>\n" + KERNEL, "needs Metal 4"),
        ('#include "params/none.h"\n' + KERNEL, "'params/none.h' file not found"),
    ],
)
def test_what_is_refused(runner: Runner, source: str, message: str) -> None:
    assert message in error_of(runner, source)


@pytest.mark.parametrize(
    ("body", "version", "message"),
    [
        ("bfloat2 v = bfloat2(1.0f); y[i] = v.x;", 310, "'bfloat2' needs Metal 3.1, this library is of 3.0"),
        (
            "y[i] = 1; atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst);",
            320,
            "'atomic_thread_fence' needs Metal 3.2, this library is of 3.1",
        ),
    ],
)
def test_words_of_a_newer_language_are_refused(runner: Runner, body: str, version: int, message: str) -> None:
    source = KERNEL.replace("BODY", body)
    runner.compile(source, version=version)
    assert message in error_of(runner, source, version=version - 10)


def test_lines_of_errors_are_those_of_the_source(runner: Runner) -> None:
    source = "// one\n#define X \\\n  1\n/* a\n b */\n" + KERNEL.replace("BODY", "\n\ny[i] = nothing;")
    assert "test.metal:10:8: error: use of undeclared identifier 'nothing'" in error_of(runner, source)


def test_function_constants_must_have_values_that_fit(runner: Runner) -> None:
    source = """constant int a [[function_constant(0)]];
    constant int b = a * 2;
    float helper() { return float(b); }
    kernel void uses(device float* y [[buffer(0)]]) { y[0] = helper(); }
    kernel void free_of_it(device float* y [[buffer(0)]]) { y[0] = 1; }"""
    library = runner.compile(source)
    runner.kernel(library, "free_of_it")
    with pytest.raises(
        CompileError, match=r"kernel uses uses function constant a \(index 0, int\), which has no value"
    ):
        runner.kernel(library, "uses")
    with pytest.raises(CompileError, match="got a value of 1 bytes, expected 4"):
        runner.kernel(library, "uses", {0: np.bool_(True)})
    with pytest.raises(CompileError, match="has no kernel 'absent'"):
        runner.kernel(library, "absent")
    y = runner.buffer(np.zeros(1, np.float32))
    for value in (3, 4):
        runner.encode(runner.kernel(library, "uses", {0: np.int32(value)}), [y], 1, 1)
        runner.run()
        assert y.array[0] == 2 * value


def test_the_cache_is_shared_by_processes(emulator_build: Path, tmp_path: Path) -> None:
    program = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from pathlib import Path
from metal_emulator.tests.kernel_runner import Runner
runner = Runner(Path({str(emulator_build / "libemulator_runner.so")!r}))
runner.compile({KERNEL.replace("BODY", "y[i] = 42;")!r})
"""
    environment = {"PATH": "/usr/bin:/bin", "SARAGOSSA_METAL_EMULATOR_CACHE": str(tmp_path)}
    children = [subprocess.Popen([sys.executable, "-c", program], env=environment) for _ in range(2)]
    assert [child.wait() for child in children] == [0, 0]
    (library,) = tmp_path.iterdir()  # one file, nothing left over from building
    before = library.stat()
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    after = library.stat()
    assert before.st_ino == after.st_ino
    assert after.st_mtime_ns > before.st_mtime_ns  # marked as used


def test_an_unknown_setting_is_refused(runner: Runner) -> None:
    assert runner.lib.emulator_set(b"order", b"sideways") == -1
    assert runner.lib.emulator_set(b"colour", b"1") == -1
    assert runner.lib.emulator_set(b"os_version", b"15.4") == 0
    assert runner.lib.emulator_set(b"os_version", b"26.2") == 0
