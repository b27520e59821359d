"""`doctor --metal-report` without Metal, and its arguments. With Metal: tests/metal/test_report.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from saragossa import _core


def test_without_metal_one_line_says_so(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "metal_available", lambda: False)
    result = cli("doctor", "--metal-report", str(tmp_path / "report.md"))
    assert (result.code, result.out) == (1, "")
    assert result.err.count("\n") == 1
    assert "needs a Mac with a Metal GPU" in result.err
    assert list(tmp_path.iterdir()) == []


def test_model_goes_with_the_report(cli: Any) -> None:
    result = cli("doctor", "--model", "demo")
    assert result.code == 2
    assert "--model goes with --metal-report FILE" in result.err


@pytest.mark.parametrize("name", ["report.json", "no/folder/report.md"])
def test_bad_file_names(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(_core, "metal_available", lambda: True)
    result = cli("doctor", "--metal-report", str(tmp_path / name))
    assert result.code == 2
    assert "accepted is a name in a folder that exists" in result.err
