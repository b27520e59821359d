"""The emulator's own interface (tests/metal_emulator/include/emulator.h), by ctypes."""

from __future__ import annotations

import ctypes
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIBRARY = Path(__file__).parents[2] / "build" / "metal" / "tests" / "metal_emulator" / "libmetal_emulator.so"


@dataclass(frozen=True)
class Report:
    """A finding of a checker."""

    kind: str
    count: int
    text: str


class Emulator:
    """Settings, findings and counters of the emulator in this process."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(LIBRARY))
        self._library.emulator_reports.restype = ctypes.c_char_p
        self._library.emulator_counters.restype = ctypes.c_char_p
        self._library.emulator_live_objects.restype = ctypes.c_char_p

    def set(self, name: str, value: object) -> None:
        """A setting by its name in lower case; see tests/metal_emulator/src/kernel/settings.h."""
        text = str(int(value)) if isinstance(value, bool) else str(value)
        if self._library.emulator_set(name.encode(), text.encode()) != 0:
            raise ValueError(f"the emulator has no setting {name}={text}")

    def reports(self) -> list[Report]:
        """Findings since the last call."""
        rows = [line.split("\t", 2) for line in self._library.emulator_reports().decode().splitlines()]
        return [Report(kind, int(count), text) for kind, count, text in rows]

    def counters(self, *, reset: bool = False) -> dict[str, Any]:
        """Counters since the last reset."""
        value: dict[str, Any] = json.loads(self._library.emulator_counters(int(reset)))
        return value
