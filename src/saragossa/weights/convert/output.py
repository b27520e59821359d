"""The output folder of a conversion: complete under its name, or not there at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from saragossa.errors import ConvertError

_SLACK = 64 << 20  # bytes beside the weights: tokenizer, config, the file system's own


def check_absent(dst: Path) -> None:
    """Raises ConvertError if `dst` exists or its parent does not."""
    if dst.exists() or dst.is_symlink():
        raise ConvertError(f"{dst} exists already", cure="remove it or choose another output folder")
    if not dst.parent.is_dir():
        raise ConvertError(
            f"the folder {dst.parent}, where {dst.name} would be written, does not exist",
            cure=f"create it first: mkdir -p '{dst.parent}'",
        )


@contextlib.contextmanager
def output_folder(dst: Path, needed: int) -> Iterator[Path]:
    """Yields a hidden folder beside `dst`, which becomes `dst` when the block ends well.

    needed: bytes about to be written. On any error, Ctrl-C included, the hidden folder is removed.
    Raises ConvertError where `dst` exists, the disk is too small or writing fails.
    """
    check_absent(dst)
    free = shutil.disk_usage(dst.parent).free
    if free < needed + _SLACK:
        raise ConvertError(
            f"{dst} needs {_gb(needed + _SLACK)}, the disk has {_gb(free)} free",
            cure="free some space or write to another disk",
        )
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{dst.name}.", suffix=".tmp", dir=dst.parent))
    except OSError as error:
        raise _write_error(dst, error) from error
    try:
        yield folder
        _sync(folder)
        folder.chmod(0o777 & ~_umask())
        check_absent(dst)  # another process may have been quicker
        folder.rename(dst)
        _sync_one(dst.parent)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise _write_error(dst, error) from error
        raise


def _write_error(dst: Path, error: OSError) -> ConvertError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ConvertError(
            f"the disk filled up while {dst} was written; nothing was kept",
            cure="free some space or write to another disk",
        )
    return ConvertError(f"{dst} could not be written: {error.strerror or error}")


def _sync(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        _sync_one(path)
    _sync_one(folder)


def _sync_one(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _gb(count: int) -> str:
    return f"{count / 1e9:.2f} GB"
