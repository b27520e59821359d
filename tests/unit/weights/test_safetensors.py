"""The safetensors index: headers, shards, and every way in which a download can be broken."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from saragossa.errors import WeightsError
from saragossa.weights.safetensors import SafetensorsIndex, TensorEntry, read_header
from tiny_checkpoints import header_of, nbytes, stored, write_index, write_raw, write_safetensors

TWO = {"a": stored("F32", 2, 3), "b": stored("BF16", 4)}


def broken(
    tmp_path: Path, header: dict[str, Any] | bytes, data: bytes = bytes(32)
) -> pytest.ExceptionInfo[WeightsError]:
    path = tmp_path / "model.safetensors"
    write_raw(path, header if isinstance(header, bytes) else json.dumps(header).encode(), data)
    with pytest.raises(WeightsError) as error:
        SafetensorsIndex.open(tmp_path)
    assert str(path) in error.value.message
    return error


def test_offsets_are_those_of_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {"a": stored("F32", 2, 3, fill=1), "b": stored("BF16", 4, fill=2)})
    index = SafetensorsIndex.open(tmp_path)
    assert dict(index)["a"] == TensorEntry("a", path, "F32", (2, 3), index["a"].offset, 24)
    data = path.read_bytes()
    for name, fill in (("a", 1), ("b", 2)):
        entry = index[name]
        assert data[entry.offset : entry.offset + entry.nbytes] == bytes([fill]) * entry.nbytes
    assert index.files == (path,)


def test_scalars_empty_tensors_and_odd_types(tmp_path: Path) -> None:
    tensors = {"scalar": stored("F32"), "empty": stored("F32", 0, 7), "bytes": stored("U8", 3)}
    write_safetensors(tmp_path / "model.safetensors", tensors)
    index = SafetensorsIndex.open(tmp_path)
    assert {name: entry.nbytes for name, entry in index.items()} == {"scalar": 4, "empty": 0, "bytes": 3}


def test_padded_header(tmp_path: Path) -> None:
    write_raw(tmp_path / "model.safetensors", json.dumps(header_of(TWO)).encode() + b"    ", bytes(32))
    assert set(SafetensorsIndex.open(tmp_path)) == {"a", "b"}


def test_order_in_the_header_does_not_matter(tmp_path: Path) -> None:
    header = dict(reversed(header_of(TWO).items()))
    write_raw(tmp_path / "model.safetensors", json.dumps(header).encode(), bytes(32))
    assert [entry.name for entry in read_header(tmp_path / "model.safetensors")] == ["a", "b"]


@pytest.mark.parametrize("size", [0, 4, 7])
def test_a_few_bytes(tmp_path: Path, size: int) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(size))
    with pytest.raises(WeightsError, match=f"only {size} bytes") as error:
        SafetensorsIndex.open(tmp_path)
    assert "looks incomplete" in (error.value.cure or "")


def test_header_longer_than_the_file(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes((1000).to_bytes(8, "little") + b"{}")
    with pytest.raises(WeightsError, match=r"header says 1000 bytes, the file has 10") as error:
        SafetensorsIndex.open(tmp_path)
    assert "looks incomplete" in (error.value.cure or "")


def test_header_above_the_format_limit(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:  # sparse: nothing is written
        file.write((100_000_001).to_bytes(8, "little"))
        file.truncate(100_000_100)
    with pytest.raises(WeightsError, match="the format allows 100000000"):
        SafetensorsIndex.open(tmp_path)


def test_data_cut_short(tmp_path: Path) -> None:
    error = broken(tmp_path, header_of(TWO), bytes(31))
    assert "truncated" in error.value.message
    assert "looks incomplete" in (error.value.cure or "")


def test_bytes_after_the_last_tensor(tmp_path: Path) -> None:
    assert "1 bytes after the last tensor" in broken(tmp_path, header_of(TWO), bytes(33)).value.message


def test_git_lfs_pointer(tmp_path: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    (tmp_path / "model.safetensors").write_bytes(pointer)
    with pytest.raises(WeightsError, match="a Git LFS pointer") as error:
        SafetensorsIndex.open(tmp_path)
    assert "git lfs pull" in (error.value.cure or "")


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8), **more: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"{", "not valid"),
        (b"\xff\xfe", "not valid"),
        (b"[" * 50_000, "not valid"),
        (b"[]", "not a JSON object"),
        (b'{"a": %s, "a": %s}' % ((json.dumps(entry()).encode(),) * 2), "'a' appears twice"),
        ({"a": 3}, "dtype, shape and data_offsets are wanted"),
        ({"a": {"dtype": "F32", "shape": [2]}}, "dtype, shape and data_offsets are wanted"),
        ({"a": entry(extra=1)}, "dtype, shape and data_offsets are wanted"),
        ({"a": entry("Q4")}, "unknown dtype 'Q4'"),
        ({"a": entry(["F32"])}, "unknown dtype"),
        ({"a": entry(shape=2)}, "not a shape"),
        ({"a": entry(shape=[-2])}, "not a shape"),
        ({"a": entry(shape=[2.0])}, "not a shape"),
        ({"a": entry(shape=[True, 2])}, "not a shape"),
        ({"a": entry(shape=[1] * 17)}, "not a shape"),
        ({"a": entry(offsets=[0])}, "not a pair of offsets"),
        ({"a": entry(offsets=[0, 1 << 70])}, "not a pair of offsets"),
        ({"a": entry(offsets=[8, 0])}, "takes 8 bytes"),
        ({"a": entry(shape=[3])}, r"takes 12 bytes, offsets 0 to 8 hold 8"),
        ({"a": entry(), "b": entry(offsets=[4, 12])}, "tensor b overlaps"),
        ({"a": entry(), "b": entry(offsets=[0, 8])}, "overlaps"),
        ({"a": entry(), "b": entry(offsets=[12, 20])}, "tensor b leaves a hole"),
        ({"a": entry(offsets=[4, 12])}, "tensor a leaves a hole"),
    ],
)
def test_malformed_headers(tmp_path: Path, header: dict[str, Any] | bytes, message: str) -> None:
    assert message in broken(tmp_path, header).value.message


# --- folders ---

SHARDS = {
    "model-00001-of-00003.safetensors": {"a": stored("F32", 2)},
    "model-00002-of-00003.safetensors": {"b": stored("F32", 2)},
    "model-00003-of-00003.safetensors": {"c": stored("F32", 2)},
}


def test_shards(tmp_path: Path) -> None:
    write_index(tmp_path, SHARDS)
    index = SafetensorsIndex.open(tmp_path)
    assert {name: entry.file.name for name, entry in index.items()} == dict(zip("abc", SHARDS, strict=True))
    assert [path.name for path in index.files] == list(SHARDS)


@pytest.mark.parametrize("indexed", [True, False])
def test_missing_shard(tmp_path: Path, indexed: bool) -> None:
    write_index(tmp_path, SHARDS)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    (tmp_path / "abc123.incomplete").write_bytes(b"x")
    if not indexed:
        (tmp_path / "model.safetensors.index.json").unlink()
    with pytest.raises(WeightsError) as error:
        SafetensorsIndex.open(tmp_path)
    assert "model-00002-of-00003.safetensors" in error.value.message
    assert "is missing (1 of 3 files)" in error.value.message
    assert "abc123.incomplete was left by an interrupted download" in error.value.message
    assert "looks incomplete" in (error.value.cure or "")
    assert ("index.json" in error.value.message) == indexed


def test_dangling_link_is_a_missing_shard(tmp_path: Path) -> None:
    write_index(tmp_path, SHARDS)
    shard = tmp_path / "model-00003-of-00003.safetensors"
    shard.unlink()
    shard.symlink_to(tmp_path / "blobs" / "gone")
    with pytest.raises(WeightsError, match="model-00003-of-00003"):
        SafetensorsIndex.open(tmp_path)


def test_index_lists_what_a_shard_lacks(tmp_path: Path) -> None:
    write_index(tmp_path, SHARDS)
    write_safetensors(tmp_path / "model-00002-of-00003.safetensors", {"x": stored("F32", 2)})
    with pytest.raises(WeightsError, match=r"lists tensors that their files lack: b \(in model-00002"):
        SafetensorsIndex.open(tmp_path)


def test_stray_files_are_not_read_but_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_index(tmp_path, SHARDS)
    strays = ["adapter_model.safetensors", "consolidated.safetensors", "model.safetensors"]
    for name in strays:
        (tmp_path / name).write_bytes(b"never opened")
    with caplog.at_level(logging.INFO, logger="saragossa"):
        index = SafetensorsIndex.open(tmp_path)
    assert set(index) == {"a", "b", "c"}
    assert [path.name for path in index.skipped] == strays
    assert all(name in caplog.text for name in strays)


def test_tensor_that_the_index_gives_to_another_shard(tmp_path: Path) -> None:
    write_index(tmp_path, SHARDS)
    write_safetensors(
        tmp_path / "model-00001-of-00003.safetensors", {"a": stored("F32", 2), "b": stored("F32", 9)}
    )
    assert SafetensorsIndex.open(tmp_path)["b"].shape == (2,)


def test_shards_without_an_index(tmp_path: Path) -> None:
    write_index(tmp_path, SHARDS)
    (tmp_path / "model.safetensors.index.json").unlink()
    assert set(SafetensorsIndex.open(tmp_path)) == {"a", "b", "c"}
    write_safetensors(tmp_path / "model-00001-of-00003.safetensors", {"c": stored("F32", 2)})
    with pytest.raises(WeightsError, match="tensor c is also in model-00001"):
        SafetensorsIndex.open(tmp_path)


def test_single_file_wins_over_others(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", TWO)
    (tmp_path / "consolidated.safetensors").write_bytes(b"never opened")
    assert set(SafetensorsIndex.open(tmp_path)) == {"a", "b"}
    (tmp_path / "model.safetensors").rename(tmp_path / "weights.safetensors")
    with pytest.raises(WeightsError, match=r"2 safetensors files .* no model.safetensors"):
        SafetensorsIndex.open(tmp_path)
    (tmp_path / "consolidated.safetensors").unlink()
    assert set(SafetensorsIndex.open(tmp_path)) == {"a", "b"}


@pytest.mark.parametrize(
    ("name", "message", "cure"),
    [
        (None, "no safetensors file", "saragossa pull"),
        ("model.gguf", "only GGUF", "saragossa convert"),
        ("pytorch_model.bin", "pytorch_model.bin is in a format that is not read", "safetensors version"),
        ("x.incomplete", "x.incomplete was left by an interrupted download", "looks incomplete"),
    ],
)
def test_no_weights(tmp_path: Path, name: str | None, message: str, cure: str) -> None:
    if name:
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(WeightsError, match=message) as error:
        SafetensorsIndex.open(tmp_path)
    assert cure in (error.value.cure or "")


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "weight_map is missing"),
        ({"weight_map": {}}, "weight_map is missing or empty"),
        ({"weight_map": []}, "weight_map is missing"),
        ({"weight_map": {"a": 3}}, "a names the file 3"),
        ({"weight_map": {"a": "../other.safetensors"}}, "beside the index is wanted"),
        ({"weight_map": {"a": "/etc/passwd"}}, "beside the index is wanted"),
        ({"weight_map": {"a": "sub/x.safetensors"}}, "beside the index is wanted"),
    ],
)
def test_bad_index(tmp_path: Path, index: dict[str, Any], message: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(WeightsError, match=message):
        SafetensorsIndex.open(tmp_path)


def test_helper_sizes() -> None:
    assert nbytes("BF16", (4, 2)) == 16
