"""Tests of the Metal device. Elsewhere than on a Mac they run on the emulator, in a process of their own:

make test-metal
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from metal import core  # noqa: F401  # before anything imports the installed core
from metal.emulator import Emulator


@pytest.fixture(scope="module")
def emulator() -> Emulator:
    return Emulator()


@pytest.fixture
def checked(emulator: Emulator) -> Iterator[None]:
    """Every access is checked, threads run in random order, and no finding is left."""
    emulator.set("check", True)
    emulator.set("trace", False)
    emulator.set("order", "random")
    yield
    assert emulator.reports() == []


@pytest.fixture
def unchecked(emulator: Emulator) -> Iterator[None]:
    """Quick; but no test may leave a finding."""
    emulator.set("check", False)
    emulator.set("trace", False)
    emulator.set("order", "in_order")
    emulator.reports()
    yield
    assert emulator.reports() == []
    emulator.set("check", False)
