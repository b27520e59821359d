"""The strict pass over address spaces."""

import subprocess
from pathlib import Path

import pytest

KERNELS = Path(__file__).parent / "kernels"


def check_msl(build: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([build / "check_msl", *map(str, arguments)], capture_output=True, text=True)


def test_wrong_address_spaces_are_named_by_line(emulator_build: Path) -> None:
    path = KERNELS / "wrong_address_spaces.metal"
    result = check_msl(emulator_build, path)
    assert result.returncode == 1
    lines = {int(line.split(":")[1]) for line in result.stderr.splitlines() if ": error:" in line}
    assert lines == {8, 9, 14}
    assert f"{path}: refused" in result.stdout


def test_correct_files_pass(emulator_build: Path) -> None:
    files = sorted(KERNELS.glob("correct_*.metal"))
    assert files
    result = check_msl(emulator_build, *files)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("body", ["if constexpr (true) y[0] = 1;", "static_assert(true); y[0] = 1;"])
def test_cpp17_is_refused(emulator_build: Path, tmp_path: Path, body: str) -> None:
    """Every Metal before 4.0 is C++14."""
    file = tmp_path / "a.metal"
    file.write_text(f"#include <metal_stdlib>\nkernel void k(device float* y [[buffer(0)]]) {{ {body} }}\n")
    result = check_msl(emulator_build, file)
    assert result.returncode == 1
    assert "before C++17" in result.stderr


def test_macros_and_folders(emulator_build: Path, tmp_path: Path) -> None:
    (tmp_path / "slots.h").write_text("#define SLOT 3\n")
    file = tmp_path / "a.metal"
    file.write_text(
        '#include <metal_stdlib>\n#include "slots.h"\nusing namespace metal;\n'
        "kernel void k(device TYPE* y [[buffer(SLOT)]]) { y[0] = 1; }\n"
    )
    assert check_msl(emulator_build, "-I", tmp_path, "-D", "TYPE=half", file).returncode == 0
    assert check_msl(emulator_build, "-D", "TYPE=half", file).returncode == 1
    assert "cannot be read" in check_msl(emulator_build, tmp_path / "absent.metal").stderr
