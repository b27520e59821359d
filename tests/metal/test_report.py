"""`doctor --metal-report` on the Metal device: every part runs, and what fails is told."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from metal.emulator import Emulator
from saragossa.cli import metal_report
from saragossa.cli.main import main

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "tests" / "golden" / "checkpoints" / "llama-q4g32"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PREFILL": (16,), "DEPTHS": (0, 16), "TOKENS": 4, "REPEAT": 1}.items():
        monkeypatch.setattr(metal_report, name, value)


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    emulator = Emulator()
    emulator.set("check", False)
    yield emulator
    emulator.set("fail_compile_of", "")
    emulator.set("fail_compile", -1)
    emulator.reports()


def test_every_part_of_the_report(tmp_path: Path) -> None:
    file = tmp_path / "report.md"
    assert main(["doctor", "--metal-report", str(file), "--model", str(MODEL)]) == 0
    data = json.loads(file.with_suffix(".json").read_text())
    parts = {part["title"].split(":")[0]: part for part in data["sections"]}
    families = {path.stem for path in (ROOT / "metal").glob("*.metal")}
    compiled = {row[0] for row in parts["Kernels"]["rows"]}
    assert compiled | {"matmul_tensor"} == families  # not every GPU takes that one
    assert len(parts["Self-check"]["rows"]) == len(metal_report.PATHS)
    times = parts["GPU time by kernel"]["rows"]
    assert {row[0] for row in times} == {"prefill", "decode"}
    assert ("decode", "sample_scan", "16") in {tuple(row[:3]) for row in times}
    assert all(float(row[3]) > 0 for row in times if row[1] == "matvec")
    assert {row[0] for row in parts["Speed"]["rows"]} == {"metal", "cpu"}
    assert all(part["ok"] is True for title, part in parts.items() if title != "mlx-lm")
    text = file.read_text()
    assert "## Kernels: ok" in text
    assert data["facts"]["gpu"] in text


@pytest.mark.skipif(sys.platform == "darwin", reason="the emulator refuses on request")
def test_what_does_not_compile_is_told(emulator: Emulator, tmp_path: Path) -> None:
    emulator.set("fail_compile_of", "sample_scan")
    file = tmp_path / "report.md"
    assert main(["doctor", "--metal-report", str(file)]) == 1
    text = file.read_text()
    assert "## Kernels: FAILED" in text
    assert "sample: " in text
    assert "## Speed of a model: not tried" in text


def test_a_wrong_path_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metal_report, "TOLERANCE", 0.0)
    section = metal_report.checked()
    assert section.ok is False
    assert all("FAILED" in row[2] for row in section.rows)
