"""Index of a folder's safetensors files: where every tensor lies, checked before a weight is read.

Format: https://github.com/huggingface/safetensors#format. Eight bytes little-endian header length, a JSON
header `name -> {dtype, shape, data_offsets}`, then the data without holes. Only headers are read here; the
core maps the files by the offsets.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saragossa.errors import WeightsError
from saragossa.files import LFS_BYTES, read_object, refuse_lfs_pointer

log = logging.getLogger("saragossa.weights")

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
MAX_HEADER = 100_000_000  # the format's own limit
MAX_INDEX = 64 << 20
PULL_CURE = "the download looks incomplete: fetch the model again with `saragossa pull`, which resumes"

# Bits of one element.
DTYPE_BITS: Mapping[str, int] = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
    "U32": 32, "I32": 32, "F32": 32,
    "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip

_SHARD = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors$")


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One stored tensor; `offset` counts from the start of `file`, both it and `nbytes` are bytes."""

    name: str
    file: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


class SafetensorsIndex(Mapping[str, TensorEntry]):
    """name -> TensorEntry over all files of a model; `files` are those read, `skipped` those left alone."""

    def __init__(
        self,
        folder: Path,
        entries: Mapping[str, TensorEntry],
        files: tuple[Path, ...],
        skipped: tuple[Path, ...] = (),
    ) -> None:
        self.folder = folder
        self.files = files
        self.skipped = skipped
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> TensorEntry:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @classmethod
    def open(cls, model_dir: str | Path) -> SafetensorsIndex:
        """Read the headers of a model folder's safetensors files.

        The index file, where there is one, is the list of files; without it `model.safetensors`, else a
        complete set of numbered shards, else the only safetensors file there is.

        Raises WeightsError: no weights, a missing shard, a truncated or malformed file, a Git LFS pointer.
        """
        folder = Path(model_dir)
        present = sorted(path for path in folder.glob("*.safetensors") if not path.name.startswith("."))
        weight_map = _read_weight_map(folder / INDEX_NAME)
        if weight_map is not None:
            files = [folder / name for name in sorted(set(weight_map.values()))]
        else:
            files = _files_without_index(folder, present)
        skipped = tuple(path for path in present if path not in files)
        if skipped:
            log.info("not read, not part of the model: %s", ", ".join(path.name for path in skipped))
        missing = [path for path in files if not path.is_file()]
        if missing:
            raise _missing_shard(folder, missing, len(files), indexed=weight_map is not None)
        entries: dict[str, TensorEntry] = {}
        for path in files:
            for entry in read_header(path):
                if weight_map is not None and weight_map.get(entry.name) != path.name:
                    log.info("not read, %s does not list it: %s in %s", INDEX_NAME, entry.name, path.name)
                    continue
                if entry.name in entries:
                    raise WeightsError(
                        f"{path}: tensor {entry.name} is also in {entries[entry.name].file.name}",
                        cure="keep the files of one checkpoint only",
                    )
                entries[entry.name] = entry
        if weight_map is not None:
            _check_listed(folder, weight_map, entries)
        return cls(folder, entries, tuple(files), skipped)


def _read_weight_map(path: Path) -> dict[str, str] | None:
    """tensor -> shard of the index file, None where there is none."""
    if not path.is_file():
        return None
    weight_map = read_object(path, limit=MAX_INDEX, error=WeightsError).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise WeightsError(f"{path}: weight_map is missing or empty, an object tensor -> file is wanted")
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or not shard.endswith(".safetensors") or shard != Path(shard).name:
            raise WeightsError(
                f"{path}: {name} names the file {shard!r}, a .safetensors file beside the index is wanted"
            )
    return weight_map


def _files_without_index(folder: Path, present: list[Path]) -> list[Path]:
    if folder / SINGLE_NAME in present:
        return [folder / SINGLE_NAME]
    for path in present:
        if match := _SHARD.match(path.name):
            count = int(match["count"])
            if not 0 < count <= 10_000:
                raise WeightsError(f"{path}: not a sane number of shards: {count}")
            return [
                folder / f"{match['stem']}-{i:05d}-of-{count:05d}.safetensors" for i in range(1, count + 1)
            ]
    if len(present) == 1:
        return present
    if present:
        names = ", ".join(path.name for path in present[:5])
        raise WeightsError(
            f"{folder}: {len(present)} safetensors files ({names}), no {SINGLE_NAME} and no {INDEX_NAME}",
            cure=PULL_CURE,
        )
    raise _no_weights(folder)


def _no_weights(folder: Path) -> WeightsError:
    if any(folder.glob("*.gguf")):
        return WeightsError(
            f"{folder}: no safetensors file, only GGUF", cure="import it: `saragossa convert FILE.gguf OUT`"
        )
    for pattern in ("*.bin", "*.pt", "*.pth", "*.npz", "*.h5", "*.onnx"):
        if found := next(iter(sorted(folder.glob(pattern))), None):
            return WeightsError(
                f"{folder}: no safetensors file; {found.name} is in a format that is not read",
                cure="use a safetensors version of the model",
            )
    return WeightsError(f"{folder}: no safetensors file{_incomplete(folder)}", cure=PULL_CURE)


def _incomplete(folder: Path) -> str:
    found = sorted(path.name for path in folder.glob("*.incomplete"))
    return f"; {', '.join(found[:3])} was left by an interrupted download" if found else ""


def _missing_shard(folder: Path, missing: list[Path], count: int, *, indexed: bool) -> WeightsError:
    names = ", ".join(path.name for path in missing[:5])
    more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
    source = f", which {INDEX_NAME} names," if indexed else ""
    return WeightsError(
        f"{folder}: {names}{more}{source} is missing ({len(missing)} of {count} files){_incomplete(folder)}",
        cure=PULL_CURE,
    )


def _check_listed(folder: Path, weight_map: Mapping[str, str], entries: Mapping[str, TensorEntry]) -> None:
    lacking = [f"{name} (in {shard})" for name, shard in weight_map.items() if name not in entries]
    if lacking:
        more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
        raise WeightsError(
            f"{folder / INDEX_NAME}: lists tensors that their files lack: {', '.join(lacking[:5])}{more}",
            cure="index and files are of different checkpoints: " + PULL_CURE,
        )


def read_header(path: Path) -> list[TensorEntry]:
    """The tensors of one safetensors file, sorted by offset.

    Raises WeightsError naming the file when it is truncated, a Git LFS pointer, or breaks the format.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(LFS_BYTES)
            refuse_lfs_pointer(path, start, WeightsError)
            length = int.from_bytes(start[:8], "little")
            if size < 8:
                raise WeightsError(f"{path}: only {size} bytes", cure=PULL_CURE)
            if length > size - 8:
                raise WeightsError(
                    f"{path}: its header says {length} bytes, the file has {size}: truncated or no "
                    "safetensors file",
                    cure=PULL_CURE,
                )
            if length > MAX_HEADER:
                raise WeightsError(f"{path}: header of {length} bytes, the format allows {MAX_HEADER}")
            file.seek(8)
            header = file.read(length)
    except OSError as exc:
        raise WeightsError(f"{path}: cannot be read: {exc.strerror or exc}") from exc
    if len(header) < length:
        raise WeightsError(f"{path}: truncated in its header", cure=PULL_CURE)
    return _check_layout(path, _parse_header(path, header), data=8 + length, size=size)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"{twice!r} appears twice")
    return result


def _parse_header(path: Path, header: bytes) -> dict[str, Any]:
    try:
        value = json.loads(header, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as exc:
        raise WeightsError(f"{path}: its header is not valid: {exc}", cure=PULL_CURE) from exc
    if not isinstance(value, dict):
        raise WeightsError(f"{path}: its header is not a JSON object", cure=PULL_CURE)
    value.pop("__metadata__", None)
    return value


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _entry(path: Path, name: str, raw: object, data: int) -> TensorEntry:
    """One header entry, checked on its own."""
    what = f"{path}: tensor {name}"
    if not isinstance(raw, dict) or set(raw) != {"dtype", "shape", "data_offsets"}:
        raise WeightsError(f"{what}: dtype, shape and data_offsets are wanted, found {raw!r:.200}")
    dtype, shape, offsets = raw["dtype"], raw["shape"], raw["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise WeightsError(f"{what}: unknown dtype {dtype!r:.50}; known: {', '.join(DTYPE_BITS)}")
    if not isinstance(shape, list) or len(shape) > 16 or not all(map(_is_size, shape)):
        raise WeightsError(f"{what}: not a shape: {shape!r:.100}")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        raise WeightsError(f"{what}: not a pair of offsets: {offsets!r:.100}")
    begin, end = offsets
    bits = math.prod(shape) * DTYPE_BITS[dtype]
    if bits != (end - begin) * 8:
        raise WeightsError(
            f"{what}: {dtype} {shape} takes {bits / 8:g} bytes, offsets {begin} to {end} hold {end - begin}"
        )
    return TensorEntry(name, path, dtype, tuple(shape), data + begin, end - begin)


def _check_layout(path: Path, header: Mapping[str, Any], *, data: int, size: int) -> list[TensorEntry]:
    """Entries by offset: no hole, no overlap, and the file ends where the last one does."""
    entries = [_entry(path, name, raw, data) for name, raw in header.items()]
    entries.sort(key=lambda entry: (entry.offset, entry.nbytes))
    position = data
    for entry in entries:
        if entry.offset != position:
            kind = "overlaps the tensor before it" if entry.offset < position else "leaves a hole before it"
            raise WeightsError(f"{path}: tensor {entry.name} {kind} (offset {entry.offset}, not {position})")
        position += entry.nbytes
    if size < position:
        raise WeightsError(
            f"{path}: truncated, {size} bytes of the {position} that its header describes", cure=PULL_CURE
        )
    if size > position:
        raise WeightsError(f"{path}: {size - position} bytes after the last tensor", cure=PULL_CURE)
    return entries
