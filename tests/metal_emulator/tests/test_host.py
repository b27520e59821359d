"""Runs the cases of tests/host/*.cpp, metal-cpp against the emulator, one process each."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from metal_emulator.tests.build import build

EMULATOR = Path(__file__).parents[1]
CASE = re.compile(r'^HOST_(?:DEATH_)?TEST\(\s*(\w+)(?:,\s*"([^"]*)")?\s*\)', re.MULTILINE)


def cases() -> Iterator[tuple[str, str]]:
    """Name and, for a case that must abort, what it says on stderr."""
    for source in sorted((EMULATOR / "tests" / "host").glob("test_*.cpp")):
        for match in CASE.finditer(source.read_text(encoding="utf-8")):
            yield match[1], match[2] or ""


@pytest.fixture(scope="session")
def program() -> Path:
    return build("emulator_host_tests", "emulator_host_module") / "emulator_host_tests"


def test_a_python_module_can_load_it(program: Path) -> None:
    module = ctypes.CDLL(str(program.parent / "libemulator_host_module.so"))
    assert module.has_constants()
    assert module.compiles()


def test_the_program_has_these_cases(program: Path) -> None:
    listed = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout
    assert sorted(tuple(line.split("\t")) for line in listed.splitlines()) == sorted(cases())


@pytest.mark.parametrize(("name", "death"), [pytest.param(*case, id=case[0]) for case in cases()])
def test_host(program: Path, name: str, death: str) -> None:
    kept = {"SARAGOSSA_METAL_EMULATOR_CACHE", "SARAGOSSA_METAL_EMULATOR_CLANG"}
    environment = {
        k: v for k, v in os.environ.items() if k in kept or not k.startswith("SARAGOSSA_METAL_EMULATOR_")
    }
    run = subprocess.run(
        [program, name], capture_output=True, text=True, timeout=120, env=environment, check=False
    )
    if death:
        assert run.returncode == -6, f"{name} was to abort, it ended with {run.returncode}\n{run.stderr}"
        assert death in run.stderr
    else:
        assert run.returncode == 0, run.stderr
