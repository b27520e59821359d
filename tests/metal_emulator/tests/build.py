"""The build of the emulator for its own tests: that of `make build-metal` where it is there, else its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EMULATOR = Path(__file__).parents[1]
ROOT = EMULATOR.parents[1]
CORE = ROOT / "build" / "metal"
ALONE = ROOT / "build" / "emulator"

# The tools of the virtual environment first.
ENVIRONMENT = os.environ | {
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
}


def build(*targets: str) -> Path:
    """The folder that holds these targets, built."""
    path = ENVIRONMENT["PATH"]
    if not shutil.which("clang++-19", path=path) or not shutil.which("cmake", path=path):
        pytest.skip("the Metal emulator needs clang++-19 and cmake: tools/install_clang.sh")
    folder, out = (CORE, CORE / "tests" / "metal_emulator")
    if not (CORE / "build.ninja").exists():
        folder = out = ALONE
        if not (ALONE / "CMakeCache.txt").exists():
            generator = ["-G", "Ninja"] if shutil.which("ninja", path=path) else []
            options = ["-DCMAKE_CXX_COMPILER=clang++-19", "-DSARAGOSSA_WERROR=ON"]
            run(["cmake", "-S", str(EMULATOR), "-B", str(ALONE), *generator, *options])
    run(["cmake", "--build", str(folder), "-j", "2", "--target", *targets])
    return out


def run(command: list[str]) -> None:
    """A build step; its output is the failure's text."""
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
