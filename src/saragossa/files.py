"""Bounded reading of a model folder's small files, with errors that name the file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from saragossa.errors import ModelError, SaragossaError

MAX_OBJECT_BYTES = 32 << 20  # some tokenizer_config.json list many tokens
_LFS_POINTER = b"version https://git-lfs"
LFS_BYTES = len(_LFS_POINTER)  # of a file's start, enough for `refuse_lfs_pointer`

Error = type[SaragossaError]


def refuse_lfs_pointer(path: Path, head: bytes, error: Error) -> None:
    """Raise `error` if `head`, the start of `path`, is what Git leaves where a large file was not fetched."""
    if head.startswith(_LFS_POINTER):
        raise error(
            f"{path} is a Git LFS pointer, not the file itself",
            cure="run `git lfs pull` in its folder, or fetch the model with `saragossa pull`",
        )


def check_file(path: Path, limit: int, error: Error = ModelError) -> None:
    """Refuse `path`, which a library is going to read, if it has more than `limit` bytes or is a pointer."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(LFS_BYTES)
    except OSError as exc:
        raise _unreadable(path, exc, error) from exc
    refuse_lfs_pointer(path, head, error)
    if size > limit:
        raise _too_large(path, limit, error)


def read_text(path: Path, limit: int, error: Error = ModelError) -> str:
    """The UTF-8 text of `path`, at most `limit` bytes."""
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as exc:
        raise _unreadable(path, exc, error) from exc
    refuse_lfs_pointer(path, data, error)
    if len(data) > limit:
        raise _too_large(path, limit, error)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise error(f"{path} is not UTF-8: byte {exc.start}") from exc


def read_object(path: Path, *, limit: int = MAX_OBJECT_BYTES, error: Error = ModelError) -> dict[str, Any]:
    """The JSON object that `path` holds. Raises `error`: unreadable, too large, no JSON, no object.

    NaN and infinities, which Python writes, are read: whoever uses a value checks it and names its key.
    """
    text = read_text(path, limit, error)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise error(f"{path} is not valid JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise error(f"{path} holds a JSON {type(value).__name__}, an object is expected")
    return value


def read_optional_object(
    path: Path, *, limit: int = MAX_OBJECT_BYTES, error: Error = ModelError
) -> dict[str, Any]:
    """`read_object`, or an empty one if the file does not exist."""
    if not os.path.lexists(path):  # a broken link or a folder of that name is an error, not an absence
        return {}
    return read_object(path, limit=limit, error=error)


def _unreadable(path: Path, exc: OSError, error: Error) -> SaragossaError:
    return error(f"{path}: cannot be read: {exc.strerror or exc}")


def _too_large(path: Path, limit: int, error: Error) -> SaragossaError:
    return error(f"{path} is larger than {limit} bytes, which is no sane size for this file")
