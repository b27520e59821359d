"""Builds the emulator's kernel side for its own tests."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from metal_emulator.tests.kernel_runner import Runner

EMULATOR = Path(__file__).parents[1]
BUILD = EMULATOR.parents[1] / "build" / "emulator"


@pytest.fixture(scope="session")
def emulator_build() -> Path:
    """The build folder, with the runner and check_msl in it."""
    if not shutil.which("clang++-19") or not shutil.which("cmake"):
        pytest.skip(
            "the Metal emulator needs clang++-19 and cmake: apt install clang-19 libclang-rt-19-dev lld-19"
        )
    if not (BUILD / "CMakeCache.txt").exists():
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        configure = ["cmake", "-S", EMULATOR, "-B", BUILD, *generator, "-DEMULATOR_HOST=OFF"]
        subprocess.run([*configure, "-DCMAKE_CXX_COMPILER=clang++-19", "-DSARAGOSSA_WERROR=ON"], check=True)
    subprocess.run(
        ["cmake", "--build", BUILD, "-j", "2", "--target", "emulator_runner", "check_msl"], check=True
    )
    return BUILD


@pytest.fixture(scope="session")
def session_runner(emulator_build: Path) -> Runner:
    return Runner(emulator_build / "libemulator_runner.so")


@pytest.fixture
def runner(session_runner: Runner) -> Iterator[Runner]:
    """Unchecked; a test that leaves findings fails."""
    session_runner.reports()
    session_runner.counters()
    yield session_runner
    assert session_runner.reports() == []


@pytest.fixture
def checked(runner: Runner) -> Iterator[Runner]:
    with runner.settings(check=True):
        yield runner
