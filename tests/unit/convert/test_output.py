"""The output folder: whole or absent, whatever happens."""

from __future__ import annotations

import errno
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from saragossa.errors import ConvertError
from saragossa.weights.convert import convert, writer
from saragossa.weights.convert.output import output_folder
from tiny_gguf import weights_of, write_gguf

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.gguf"
    write_gguf(path, "llama", weights_of("llama"))
    return path


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_appears_at_the_end_with_ordinary_permissions(tmp_path: Path) -> None:
    with output_folder(tmp_path / "out", 0) as folder:
        assert folder.parent == tmp_path
        assert folder.name.startswith(".out.")
        assert not (tmp_path / "out").exists()
        (folder / "file").write_text("x")
    assert left(tmp_path) == ["out"]
    (tmp_path / "plain").mkdir()
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("kind", ["folder", "empty folder", "file", "dangling link"])
def test_never_overwrites(tmp_path: Path, source: Path, kind: str) -> None:
    out = tmp_path / "out"
    if kind == "file":
        out.write_text("keep")
    elif kind == "dangling link":
        out.symlink_to(tmp_path / "nowhere")
    else:
        out.mkdir()
        if kind == "folder":
            (out / "keep").touch()
    before = left(tmp_path)
    with pytest.raises(ConvertError, match="exists already"):
        convert(source, out, progress=False)
    assert left(tmp_path) == before


def test_does_not_overwrite_what_appeared_meanwhile(tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match="exists already"), output_folder(tmp_path / "out", 0):
        (tmp_path / "out").mkdir()
    assert left(tmp_path) == ["out"]


def test_parent_must_exist(tmp_path: Path, source: Path) -> None:
    with pytest.raises(ConvertError, match=r"does not exist \(create it first"):
        convert(source, tmp_path / "a" / "b", progress=False)
    assert left(tmp_path) == ["in.gguf"]


def test_disk_space_is_checked_before(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 10**9 - 10**6, 10**6))
    with pytest.raises(ConvertError, match=r"needs 0\.\d\d GB, the disk has 0\.00 GB free"):
        convert(source, tmp_path / "out", progress=False)
    assert left(tmp_path) == ["in.gguf"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk filled up while .*nothing was kept"),
        (OSError(errno.EIO, "Input/output error"), "could not be written: Input/output error"),
        (KeyboardInterrupt(), None),
        (MemoryError(), None),
    ],
    ids=["full disk", "broken disk", "ctrl-c", "no memory"],
)
def test_a_failure_midway_leaves_nothing(
    tmp_path: Path,
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    message: str | None,
) -> None:
    write_job, calls = writer._write_job, 0

    def fails_later(*args: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            assert [name for name in left(tmp_path) if name.startswith(".out.")]
            raise error
        write_job(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(writer, "_write_job", fails_later)
    with pytest.raises(ConvertError if message else type(error), match=message):
        convert(source, tmp_path / "out", progress=False)
    assert calls == 5
    assert left(tmp_path) == ["in.gguf"]


def test_unwritable_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> str:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    with (
        pytest.raises(ConvertError, match="out could not be written: Permission denied"),
        output_folder(tmp_path / "out", 0),
    ):
        raise AssertionError("not reached")


def test_progress_goes_to_stderr(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    convert(source, tmp_path / "loud")
    out, err = capsys.readouterr()
    assert out == ""
    assert "100%" in err
    convert(source, tmp_path / "quiet", progress=False)
    assert capsys.readouterr() == ("", "")
