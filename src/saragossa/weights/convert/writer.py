"""Writes safetensors files from row chunks, so that memory stays at one chunk."""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tqdm import tqdm

from .floats import STORAGE, Array

SHARD_BYTES = 5 << 30  # as mlx-lm and the Hub's older files
_DATA_ALIGN = 64  # the first tensor of a file starts on a cache line
CHUNK_ELEMENTS = 1 << 18  # of float32, so that the working set stays in the L2 cache


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor to be written: safetensors dtype name and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * STORAGE[self.dtype].itemsize


@dataclass(frozen=True, slots=True)
class Job:
    """What one source tensor becomes.

    outputs: the tensors written, which share all dimensions but the last.
    chunks: makes the rows in order, one array for each output at a time; of a stack those of one matrix
      after another.
    parameters: elements of the source tensor.
    """

    outputs: tuple[Entry, ...]
    chunks: Callable[[], Iterator[tuple[Array, ...]]]
    parameters: int

    @property
    def nbytes(self) -> int:
        return sum(entry.nbytes for entry in self.outputs)


def row_ranges(rows: int, cols: int) -> Iterator[slice]:
    """Cuts [rows, cols] in ranges of rows of about CHUNK_ELEMENTS elements."""
    step = max(1, CHUNK_ELEMENTS // max(1, cols))
    for start in range(0, rows, step):
        yield slice(start, min(rows, start + step))


def write_checkpoint(
    folder: Path, jobs: Sequence[Job], *, progress: bool, shard_bytes: int = SHARD_BYTES
) -> None:
    """Writes model.safetensors, or shards of at most `shard_bytes` and their index."""
    shards = _shards(jobs, shard_bytes)
    total = sum(job.nbytes for job in jobs)
    with tqdm(
        total=total,
        unit="B",
        unit_scale=True,
        unit_divisor=1000,
        desc="converting",
        disable=not progress,
        file=sys.stderr,
        mininterval=0.1 if sys.stderr.isatty() else 10.0,
    ) as bar:
        weight_map: dict[str, str] = {}
        for number, shard in enumerate(shards, 1):
            name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
            if len(shards) == 1:
                name = "model.safetensors"
            _write_file(folder / name, shard, bar)
            weight_map |= {entry.name: name for job in shard for entry in job.outputs}
    if len(shards) > 1:
        metadata = {"total_size": total, "total_parameters": sum(job.parameters for job in jobs)}
        index = {"metadata": metadata, "weight_map": dict(sorted(weight_map.items()))}
        write_json(folder / "model.safetensors.index.json", index)


def write_json(path: Path, value: object, *, compact: bool = False) -> None:
    """Writes UTF-8 JSON; `compact` for big files."""
    text = json.dumps(
        value,
        ensure_ascii=False,
        indent=None if compact else 2,
        separators=(",", ":") if compact else None,
    )
    path.write_text(text + "\n", encoding="utf-8")


def _shards(jobs: Sequence[Job], limit: int) -> list[list[Job]]:
    shards: list[list[Job]] = []
    size = 0
    for job in jobs:
        if not shards or size + job.nbytes > limit:
            shards.append([])
            size = 0
        shards[-1].append(job)
        size += job.nbytes
    return shards


def _write_file(path: Path, jobs: Sequence[Job], bar: tqdm[Any]) -> None:
    entries = [entry for job in jobs for entry in job.outputs]
    # Wide items first: then every tensor is aligned to its item size without holes.
    entries.sort(key=lambda entry: -STORAGE[entry.dtype].itemsize)
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    offsets: dict[str, int] = {}
    end = 0
    for entry in entries:
        offsets[entry.name] = end
        header[entry.name] = {
            "dtype": entry.dtype,
            "shape": list(entry.shape),
            "data_offsets": [end, end + entry.nbytes],
        }
        end += entry.nbytes
    raw = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    raw += b" " * (-(len(raw) + 8) % _DATA_ALIGN)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(raw)))
        file.write(raw)
        base = file.tell()
        for job in jobs:
            _write_job(file, job, [base + offsets[entry.name] for entry in job.outputs], bar)


def _write_job(file: IO[bytes], job: Job, positions: list[int], bar: tqdm[Any]) -> None:
    ends = [position + entry.nbytes for position, entry in zip(positions, job.outputs, strict=True)]
    for arrays in job.chunks():
        for i, (entry, array) in enumerate(zip(job.outputs, arrays, strict=True)):
            data = array.astype(STORAGE[entry.dtype], order="C", copy=False).tobytes()
            file.seek(positions[i])
            file.write(data)
            positions[i] += len(data)
            bar.update(len(data))
    if positions != ends:
        raise AssertionError(f"{job.outputs[0].name}: {positions} written of {ends}")
