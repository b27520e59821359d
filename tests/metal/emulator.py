"""The emulator's own interface (tests/metal_emulator/include/emulator.h), by ctypes."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

LIBRARY = Path(__file__).parents[2] / "build" / "metal" / "tests" / "metal_emulator" / "libmetal_emulator.so"

# Settings that change what is checked or the order of what has none.
CHECKERS = ("check", "trace", "order", "seed", "reorder", "workers")


@dataclass(frozen=True)
class Report:
    """A finding of a checker."""

    kind: str
    count: int
    text: str


class Emulator:
    """Settings, findings and counters of the emulator in this process.

    On a Mac there is none: a checker finds nothing, tests that need more than checkers are skipped.
    """

    def __init__(self) -> None:
        self._library: Any = None
        self._checked = False
        if sys.platform == "darwin":
            return
        self._library = ctypes.CDLL(str(LIBRARY))
        self._library.emulator_reports.restype = ctypes.c_char_p
        self._library.emulator_counters.restype = ctypes.c_char_p
        self._library.emulator_live_objects.restype = ctypes.c_char_p

    @property
    def real(self) -> bool:
        """Nothing is emulated: this is a Mac."""
        return self._library is None

    def set(self, name: str, value: object) -> None:
        """A setting by its name in lower case; see tests/metal_emulator/src/kernel/settings.h."""
        if self._library is None:
            if name not in CHECKERS:
                pytest.skip("needs the emulator")
            return
        text = str(int(value)) if isinstance(value, bool) else str(value)
        if self._library.emulator_set(name.encode(), text.encode()) != 0:
            raise ValueError(f"the emulator has no setting {name}={text}")
        if name == "check":
            self._checked = bool(value)

    @contextmanager
    def mac(self, *, gpu_family: int = 9, os_version: str = "26.2") -> Iterator[None]:
        """Plays this Mac, then an M4 with macOS 26.2 again. Family 10, an M5, has tensor operations."""
        self.set("gpu_family", gpu_family)
        self.set("os_version", os_version)
        try:
            yield
        finally:
            self.set("gpu_family", 9)
            self.set("os_version", "26.2")

    @contextmanager
    def traced(self) -> Iterator[dict[str, Any]]:
        """Lists dispatches and counts their bytes, without checks: the counters, there when it ends."""
        checked, counted = self._checked, dict[str, Any]()
        self.set("check", False)
        self.set("trace", True)
        try:
            self.counters(reset=True)
            yield counted
            counted.update(self.counters(reset=True))
        finally:
            self.set("trace", False)
            self.set("check", checked)

    def reports(self) -> list[Report]:
        """Findings since the last call."""
        if self._library is None:
            return []
        rows = [line.split("\t", 2) for line in self._library.emulator_reports().decode().splitlines()]
        return [Report(kind, int(count), text) for kind, count, text in rows]

    def counters(self, *, reset: bool = False) -> dict[str, Any]:
        """Counters since the last reset."""
        if self._library is None:
            pytest.skip("needs the emulator")
        value: dict[str, Any] = json.loads(self._library.emulator_counters(int(reset)))
        return value

    def live_objects(self) -> dict[str, int]:
        """Objective-C objects that were created and not released, by class."""
        if self._library is None:
            pytest.skip("needs the emulator")
        rows = [line.split("\t") for line in self._library.emulator_live_objects().decode().splitlines()]
        return {name: int(count) for name, count in rows}
