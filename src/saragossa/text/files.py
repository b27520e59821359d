"""Bounded reading of a model folder's small files, with errors that name the file."""

from __future__ import annotations

import json
import os
from pathlib import Path

from saragossa.errors import ModelError, TokenizerError

MAX_TOKENIZER_BYTES = 256 << 20  # the largest known tokenizer.json has 35 MB
MAX_CONFIG_BYTES = 32 << 20
MAX_TEMPLATE_BYTES = 1 << 20
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"


def check_file(path: Path, limit: int, error: type[ModelError] = TokenizerError) -> None:
    """Refuse `path` if it is larger than `limit` bytes or only a Git LFS pointer."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(len(_LFS_POINTER))
    except OSError as e:
        raise error(f"{path}: cannot be read: {e.strerror or e}") from e
    if head == _LFS_POINTER:
        raise error(f"{path} is a Git LFS pointer, not the file", cure="run `git lfs pull` in its folder")
    if size > limit:
        raise error(f"{path} has {size} bytes, at most {limit} are read")


def read_text(path: Path, limit: int, error: type[ModelError] = TokenizerError) -> str:
    """The UTF-8 text of `path`; at most `limit` bytes."""
    check_file(path, limit, error)
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise error(f"{path} is not UTF-8: byte {e.start}") from e
    except OSError as e:
        raise error(f"{path}: cannot be read: {e.strerror or e}") from e


def read_object(
    path: Path, *, limit: int = MAX_CONFIG_BYTES, error: type[ModelError] = TokenizerError
) -> dict[str, object]:
    """The JSON object in `path`; an empty one if the file does not exist."""
    if not os.path.lexists(path):  # a broken link or a folder of that name is an error, not an absence
        return {}
    try:
        value = json.loads(read_text(path, limit, error))
    except (ValueError, RecursionError) as e:
        raise error(f"{path} is not valid JSON: {e}") from e
    if not isinstance(value, dict):
        raise error(f"{path} holds a JSON {type(value).__name__}, an object is expected")
    return value
