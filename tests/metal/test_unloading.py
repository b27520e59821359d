"""The emulator unmaps kernels with the device that used them: a process may have only so many mappings."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

import saragossa
from metal import core  # noqa: F401  # puts the emulator's core in place

MODEL = Path(__file__).parents[1] / "golden" / "checkpoints" / "llama-q4g32"
MAPS = Path("/proc/self/maps")


def mapped() -> int:
    gc.collect()
    return sum("library.so" in line for line in MAPS.read_text().splitlines())


@pytest.mark.skipif(not MAPS.exists(), reason="the emulator runs on Linux only")
def test_a_device_that_goes_takes_its_kernels_along() -> None:
    before = mapped()
    with saragossa.LLM(MODEL, device="metal") as llm:
        llm.generate([2, 5, 7], max_tokens=2)
        assert mapped() > before
    del llm
    assert mapped() == before
