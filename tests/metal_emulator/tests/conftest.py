"""Builds the emulator's kernel side for its own tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from metal_emulator.tests.build import build
from metal_emulator.tests.kernel_runner import Runner


@pytest.fixture(scope="session")
def emulator_build() -> Path:
    """The build folder, with the runner and check_msl in it."""
    return build("emulator_runner", "check_msl")


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
