"""The kernels' text: Metal's rules for pointers, and the index of metal/README.md."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "metal"
FILES = sorted((ROOT / "metal").glob("*.metal"))
KERNEL = re.compile(r"^(?:\[\[\w+\(\w+\)\]\] )?kernel void (\w+)\(", re.MULTILINE)


@pytest.fixture(scope="module")
def check_msl() -> Path:
    cmake = Path(sys.executable).with_name("cmake")
    subprocess.run([cmake, "--build", BUILD, "--target", "check_msl"], check=True, capture_output=True)
    return BUILD / "tests" / "metal_emulator" / "check_msl"


@pytest.mark.skipif(sys.platform == "darwin", reason="Apple's own compiler is there")
@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.name))
def test_address_spaces(file: Path, check_msl: Path) -> None:
    result = subprocess.run([check_msl, "-I", ROOT / "metal", file], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.skipif(sys.platform == "darwin", reason="Apple's own compiler is there")
@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.name))
def test_a_lost_address_space_is_found_in_every_file(file: Path, check_msl: Path, tmp_path: Path) -> None:
    """Else the check above may have looked at nothing."""
    fault = "\ninline float lost(device const float* x) { thread const float* y = x; return *y; }\n"
    planted = tmp_path / file.name
    planted.write_text(file.read_text() + fault)
    result = subprocess.run([check_msl, "-I", ROOT / "metal", planted], capture_output=True, text=True)
    assert result.returncode != 0
    assert f"{file.name}:{len(file.read_text().splitlines()) + 2}" in result.stdout + result.stderr


def test_index_names_every_kernel() -> None:
    kernels = {name for file in FILES for name in KERNEL.findall(file.read_text())}
    assert len(kernels) > 20
    rows = [
        line for line in (ROOT / "metal" / "README.md").read_text().splitlines() if line.startswith("| `")
    ]
    assert kernels == {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_every_launch_has_a_kernel_of_its_family() -> None:
    defined = {(file.stem, name) for file in FILES for name in KERNEL.findall(file.read_text())}
    sources = (ROOT / "csrc" / "metal").glob("*.cpp")
    launched = {
        (family, name)
        for source in sources
        for family, name in re.findall(r'Kernel k\w+\{"(\w+)", "(\w+)"\}', source.read_text())
    }
    assert len(launched) > 20
    assert launched <= defined
