"""Bounded reading of the JSON files of a model folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from saragossa.errors import ModelError

LFS_MAGIC = b"version https://git-lfs"
LFS_CURE = "run `git lfs pull` in the model's folder, or fetch the model with `saragossa pull`"


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")


def read_json_object(path: Path, *, max_bytes: int, error: type[ModelError] = ModelError) -> dict[str, Any]:
    """The object that a JSON file holds.

    Raises `error` naming the file: missing, larger than `max_bytes`, a Git LFS pointer, no JSON, no object.
    """
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as exc:
        raise error(f"{path}: cannot be read: {exc.strerror or exc}") from exc
    if len(data) > max_bytes:
        raise error(f"{path}: larger than {max_bytes} bytes, which is no sane size for this file")
    if data.startswith(LFS_MAGIC):
        raise error(f"{path}: a Git LFS pointer, not the file itself", cure=LFS_CURE)
    try:
        value = json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as exc:
        raise error(f"{path}: not valid JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise error(f"{path}: a JSON object is wanted, found {type(value).__name__}")
    return value
