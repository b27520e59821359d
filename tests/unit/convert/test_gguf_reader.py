"""The GGUF parser against the gguf package's writer and against damage."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader

from saragossa.errors import ConvertError
from saragossa.weights.convert.gguf_reader import GgufFile
from tiny_gguf import Kind, weights_of, write_gguf


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def key(name: str, kind: int, form: str, value: Any) -> bytes:
    return text(name) + struct.pack("<I" + form, kind, value)


def tensor(
    name: str, dims: tuple[int, ...] = (32,), kind: int = 0, offset: int = 0, count: int | None = None
) -> bytes:
    sizes = struct.pack(f"<{len(dims)}Q", *dims)
    return (
        text(name)
        + struct.pack("<I", len(dims) if count is None else count)
        + sizes
        + struct.pack("<IQ", kind, offset)
    )


def gguf(path: Path, keys: list[bytes], tensors: list[bytes], data: bytes = bytes(4096), **head: Any) -> Path:
    header = head.get("magic", b"GGUF") + struct.pack(
        "<IQQ",
        head.get("version", 3),
        head.get("tensor_count", len(tensors)),
        head.get("key_count", len(keys)),
    )
    raw = header + b"".join(keys) + b"".join(tensors)
    path.write_bytes(raw + bytes(-len(raw) % 32) + data)
    return path


def test_reads_what_the_package_reads(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    changes = {"some.bool": True, "some.floats": [1.5, -2.0], "some.text": "naïve 東京"}
    write_gguf(path, "qwen3", weights_of("qwen3"), kind=Kind.Q8_0, changes=changes)
    ours, theirs = GgufFile(path), GGUFReader(path)
    fields = {name: field.contents() for name, field in theirs.fields.items() if not name.startswith("GGUF.")}
    assert ours.metadata == fields
    assert list(ours.tensors) == [item.name for item in theirs.tensors]
    for item in theirs.tensors:
        mine = ours.tensors[item.name]
        assert mine.kind == item.tensor_type
        assert list(mine.shape) == list(reversed(item.shape.tolist()))
        assert ours.rows(mine).tobytes() == item.data.tobytes()


def test_every_truncation_is_named(tmp_path: Path) -> None:
    """Cut at each byte of the header and at some in the data: never a traceback, always the file's name."""
    whole = gguf(
        tmp_path / "whole",
        [
            key("general.alignment", 4, "I", 32),
            text("l") + struct.pack("<IIQ", 9, 8, 2) + text("ab") + text("c"),
        ],
        [tensor("x", (32, 4)), tensor("y", (32,), offset=512)],
        bytes(640),
    )
    GgufFile(whole)
    raw = whole.read_bytes()
    path = tmp_path / "cut.gguf"
    for length in [*range(len(raw) - 640), len(raw) - 200, len(raw) - 1]:
        path.write_bytes(raw[:length])
        with pytest.raises(ConvertError, match=r"cut\.gguf"):
            GgufFile(path)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "is no GGUF file: it begins with nothing"),
        (b"\x80\x00\x00\x00\x00\x00\x00\x00{}" * 8, "is no GGUF file: it begins with b'\\\\x80"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a Git LFS pointer"),
        (b"tjgg" + bytes(60), "from before GGUF"),
        (b"GGUF\x03\x00\x00\x00", "truncated in its header"),
        (b"GGUF\x01\x00\x00\x00" + bytes(60), "GGUF version 1; 2 and 3 are supported"),
        (b"GGUF\x04\x00\x00\x00" + bytes(60), "GGUF version 4; 2 and 3 are supported"),
        (b"GGUF\x00\x00\x00\x03" + bytes(60), "big-endian"),
    ],
)
def test_other_files(tmp_path: Path, raw: bytes, message: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(raw)
    with pytest.raises(ConvertError, match=message):
        GgufFile(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match="cannot be read: No such file"):
        GgufFile(tmp_path / "none.gguf")


BIG = 1 << 62


@pytest.mark.parametrize(
    ("keys", "tensors", "message"),
    [
        ([key("a", 4, "I", 1)] * 2, [], "metadata key 'a' appears twice"),
        ([], [tensor("t")] * 2, "tensor 't' appears twice"),
        ([key("a", 13, "I", 1)], [], "metadata key 'a' has the unknown type 13"),
        ([text("a") + struct.pack("<IIQ", 9, 9, 1)], [], "metadata key 'a' is an array of type 9"),
        ([text("a") + struct.pack("<IIQ", 9, 4, BIG)], [], f"metadata key 'a' has {BIG} elements"),
        ([text("a") + struct.pack("<IIQ", 9, 4, 1 << 22)], [], "truncated: its header needs byte"),
        ([text("a") + struct.pack("<IQ", 8, BIG)], [], f"a string of {BIG} bytes"),
        ([struct.pack("<Q", BIG)], [], f"a string of {BIG} bytes"),
        ([key("general.alignment", 4, "I", 24)], [], "general.alignment is 24, not a power of two"),
        ([key("general.alignment", 4, "I", 0)], [], "general.alignment is 0, not a power of two"),
        ([key("split.count", 2, "H", 3)], [], "part of a GGUF split in 3 files"),
        ([], [tensor("t", kind=99)], "tensor t has the unknown type number 99"),
        ([], [tensor("t", offset=8)], "tensor 't' is not aligned to 32"),
        ([], [tensor("t", (32, 0))], "tensor 't' is empty"),
        ([], [tensor("t", (31,), kind=2)], "rows of 31, not a multiple of 32"),
        ([], [tensor("t", (32,) * 5)], "tensor 't' has 5 dimensions"),
        ([], [tensor("t", (), count=0)], "tensor 't' has 0 dimensions"),
        ([], [tensor("t", (BIG, BIG))], "is truncated: tensor t ends at byte"),
        ([], [tensor("t", (1024,), offset=2048)], "is truncated: tensor t ends at byte"),
        ([], [tensor("t", offset=BIG)], "is truncated: tensor t ends at byte"),
    ],
)
def test_damage(tmp_path: Path, keys: list[bytes], tensors: list[bytes], message: str) -> None:
    path = gguf(tmp_path / "bad.gguf", keys, tensors)
    with pytest.raises(ConvertError, match=message) as caught:
        GgufFile(path)
    assert "bad.gguf" in caught.value.message


@pytest.mark.parametrize(("what", "name"), [("key_count", "metadata keys"), ("tensor_count", "tensors")])
def test_counts_are_bounded(tmp_path: Path, what: str, name: str) -> None:
    path = gguf(tmp_path / "many.gguf", [], [], **{what: 1 << 40})
    with pytest.raises(ConvertError, match=f"is damaged: {1 << 40} {name}"):
        GgufFile(path)


def test_random_damage_never_escapes(tmp_path: Path) -> None:
    """Bytes of the header overwritten at random: a clear error or a parse, nothing else."""
    keys = [key("a", 4, "I", 7), key("b", 12, "d", 1.5), text("c") + struct.pack("<IQ", 8, 3) + b"xyz"]
    path = gguf(tmp_path / "a.gguf", keys, [tensor("x", (32, 4)), tensor("y", (64,), 8, 512)])
    raw = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(400):
        damaged = bytearray(raw)
        for at in rng.integers(8, len(raw) - 4096, 2):
            damaged[at] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            file = GgufFile(path)
        except ConvertError:
            refused += 1
        else:
            assert all(file.rows(item).nbytes == item.nbytes for item in file.tensors.values())
    assert 200 < refused < 400
