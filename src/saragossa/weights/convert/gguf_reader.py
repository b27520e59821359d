"""A bounded GGUF parser: metadata and tensor table of an untrusted file, data memory-mapped.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Versions 2 and 3, little-endian.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from saragossa.errors import ConvertError
from saragossa.files import refuse_lfs_pointer

_MAGIC = b"GGUF"
_OLD_MAGICS = (b"lmgg", b"fmgg", b"tjgg", b"ggml")
_MAX_ENTRIES = 1 << 17  # metadata keys, tensors
_MAX_ARRAY = 1 << 23  # elements
_MAX_KEY = 1 << 16  # bytes
_MAX_STRING = 1 << 26
_MAX_DIMS = 4
_DEFAULT_ALIGNMENT = 32

# GGUF value type -> struct format; 8 is a string, 9 an array
_SCALARS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One row of the tensor table; `shape` in row-major order, as numpy and torch have it."""

    name: str
    kind: GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int
    nbytes: int


class GgufFile:
    """An open GGUF file: `metadata` by key and `tensors` by name."""

    def __init__(self, path: Path) -> None:
        """Raises ConvertError, naming the file, if it is no GGUF, truncated or inconsistent."""
        self.path = path
        try:
            with path.open("rb") as file:
                head = file.read(64)
                _check_head(path, head)
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise ConvertError(f"{path} cannot be read: {error.strerror or error}") from error
        cursor = _Cursor(path, self._map)
        cursor.take(8)
        tensor_count, key_count = cursor.unpack("QQ")
        for what, count in (("tensors", tensor_count), ("metadata keys", key_count)):
            if count > _MAX_ENTRIES:
                raise cursor.corrupt(f"{count} {what}")
        self.metadata: dict[str, Any] = {}
        for _ in range(key_count):
            key = cursor.string(_MAX_KEY)
            if key in self.metadata:
                raise cursor.corrupt(f"metadata key {key!r} appears twice")
            self.metadata[key] = cursor.value(key)
        if (parts := self.metadata.get("split.count", 1)) != 1:
            raise ConvertError(
                f"{path} is part of a GGUF split in {parts} files",
                cure="join them first: llama-gguf-split --merge FIRST_PART OUT.gguf",
            )
        self.tensors = self._read_table(cursor, tensor_count)

    def rows(self, tensor: GgufTensor) -> npt.NDArray[np.uint8]:
        """The stored bytes, [rows, bytes of a row], mapped and not copied; vectors are one row."""
        data = np.frombuffer(self._map, np.uint8, tensor.nbytes, tensor.offset)
        rows = math.prod(tensor.shape[:-1])
        return data.reshape(rows, tensor.nbytes // rows)

    def _read_table(self, cursor: _Cursor, count: int) -> dict[str, GgufTensor]:
        alignment = self.metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise cursor.corrupt(f"general.alignment is {alignment!r}, not a power of two")
        table = [cursor.tensor() for _ in range(count)]
        base = -(-cursor.position // alignment) * alignment
        tensors: dict[str, GgufTensor] = {}
        for row in table:
            if row.name in tensors:
                raise cursor.corrupt(f"tensor {row.name!r} appears twice")
            if row.offset % alignment:
                raise cursor.corrupt(f"tensor {row.name!r} is not aligned to {alignment}")
            end = base + row.offset + row.nbytes
            if end > len(self._map):
                raise ConvertError(
                    f"{self.path} is truncated: tensor {row.name} ends at byte {end}, "
                    f"the file has {len(self._map)}",
                    cure="fetch it again",
                )
            tensors[row.name] = GgufTensor(row.name, row.kind, row.shape, base + row.offset, row.nbytes)
        return tensors


def _check_head(path: Path, head: bytes) -> None:
    refuse_lfs_pointer(path, head, ConvertError)
    if head[:4] in _OLD_MAGICS:
        raise ConvertError(f"{path} is in GGML's format from before GGUF", cure="fetch it as GGUF")
    if head[:4] != _MAGIC:
        found = repr(head[:4]) if head else "nothing"
        raise ConvertError(
            f"{path} is no GGUF file: it begins with {found}, not {_MAGIC!r}",
            cure="give a .gguf file or a Hugging Face model folder",
        )
    if len(head) < 24:
        raise ConvertError(f"{path} is truncated in its header", cure="fetch it again")
    version = struct.unpack_from("<I", head, 4)[0]
    if version in (2, 3):
        return
    if version & 0xFFFF == 0:
        raise ConvertError(f"{path} is a big-endian GGUF", cure="fetch the little-endian file")
    raise ConvertError(f"{path} has GGUF version {version}; 2 and 3 are supported")


class _Cursor:
    """Reads forward through the header; never beyond the end of the file."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.position = 0
        self._data = data

    def corrupt(self, detail: str) -> ConvertError:
        return ConvertError(f"{self.path} is damaged: {detail}", cure="fetch it again")

    def take(self, count: int) -> bytes:
        end = self.position + count
        if end > len(self._data):
            raise ConvertError(
                f"{self.path} is truncated: its header needs byte {end}, the file has {len(self._data)}",
                cure="fetch it again",
            )
        raw = self._data[self.position : end]
        self.position = end
        return raw

    def unpack(self, form: str) -> tuple[Any, ...]:
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))

    def string(self, limit: int = _MAX_STRING) -> str:
        (length,) = self.unpack("Q")
        if length > limit:
            raise self.corrupt(f"a string of {length} bytes at byte {self.position}")
        # Some vocabularies hold pieces that are not valid UTF-8 on their own.
        return self.take(length).decode("utf-8", "replace")

    def value(self, key: str) -> Any:
        (kind,) = self.unpack("I")
        if kind == _STRING:
            return self.string()
        if kind in _SCALARS:
            return self.unpack(_SCALARS[kind])[0]
        if kind != _ARRAY:
            raise self.corrupt(f"metadata key {key!r} has the unknown type {kind}")
        kind, length = self.unpack("IQ")
        if length > _MAX_ARRAY:
            raise self.corrupt(f"metadata key {key!r} has {length} elements")
        if kind == _STRING:
            return [self.string() for _ in range(length)]
        if kind not in _SCALARS:
            raise self.corrupt(f"metadata key {key!r} is an array of type {kind}")
        return list(self.unpack(f"{length}{_SCALARS[kind]}"))

    def tensor(self) -> GgufTensor:
        """A row of the table; its offset still counts from the start of the data."""
        name = self.string(_MAX_KEY)
        (dims,) = self.unpack("I")
        if not 1 <= dims <= _MAX_DIMS:
            raise self.corrupt(f"tensor {name!r} has {dims} dimensions")
        shape = tuple(reversed(self.unpack(f"{dims}Q")))
        kind, offset = self.unpack("IQ")
        try:
            kind = GGMLQuantizationType(kind)
        except ValueError:
            raise ConvertError(f"{self.path}: tensor {name} has the unknown type number {kind}") from None
        if 0 in shape:
            raise self.corrupt(f"tensor {name!r} is empty")
        block, block_bytes = GGML_QUANT_SIZES[kind]
        if shape[-1] % block:
            raise self.corrupt(
                f"tensor {name!r} of type {kind.name} has rows of {shape[-1]}, not a multiple of {block}"
            )
        return GgufTensor(name, kind, shape, offset, math.prod(shape) // block * block_bytes)
