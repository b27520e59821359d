"""Hugging Face folders: byte-equal to what `mlx_lm.convert` wrote, and refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny_checkpoints as tiny
from saragossa.errors import ConfigError, ConvertError, ModelError, UsageError, WeightsError
from saragossa.text.template import ChatTemplate
from saragossa.weights.bind import bind
from saragossa.weights.checkpoint import load_spec
from saragossa.weights.convert import convert
from saragossa.weights.convert import writer as writer_module
from saragossa.weights.convert.floats import STORAGE
from saragossa.weights.convert.writer import Entry, Job
from saragossa.weights.safetensors import SafetensorsIndex

CHECKPOINTS = Path(__file__).parents[2] / "golden" / "checkpoints"
# Folders that `mlx_lm.convert` made; mixed ones need its predicates and are not ours to make.
MLX = sorted(
    path.name
    for path in CHECKPOINTS.iterdir()
    if re.fullmatch(r"(?!.*mixed).+-(q\d+g\d+|mxfp[48])", path.name) and path.is_dir()
)


def contents(folder: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Every tensor: dtype, shape, bytes."""
    index = SafetensorsIndex.open(folder)
    out = {}
    for name, entry in index.items():
        with entry.file.open("rb") as file:
            file.seek(entry.offset)
            out[name] = entry.dtype, entry.shape, file.read(entry.nbytes)
    return out


def model(folder: Path, **changes: Any) -> Path:
    """A tiny llama in bf16 with weights that are not all the same."""
    config = tiny.config("llama", **changes)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    tiny.write_safetensors(folder / "model.safetensors", {})
    spec = load_spec(folder)
    rng = np.random.default_rng(0)
    tensors = {}
    for name, (dtype, shape, _) in tiny.dense(spec).items():
        floats = rng.standard_normal(shape).astype(np.float32) * np.float32(0.1)
        tensors[name] = dtype, shape, (floats.view(np.uint32) >> 16).astype("<u2").tobytes()
    tiny.write_safetensors(folder / "model.safetensors", tensors)
    return folder


def rewrite(folder: Path, changes: Mapping[str, tiny.Stored]) -> None:
    tiny.write_safetensors(folder / "model.safetensors", {**contents(folder), **changes})


def test_there_are_mlx_folders() -> None:
    assert len(MLX) >= 8


@pytest.mark.parametrize("name", MLX)
def test_equals_mlx_lm(name: str, tmp_path: Path) -> None:
    found = re.fullmatch(r"(.+)-q(\d)g(\d+)", name)
    if found:
        base: str = found[1]
        options: dict[str, Any] = {"bits": int(found[2]), "group_size": int(found[3])}
    else:
        base, mode = name.rsplit("-", 1)
        options = {"mode": mode}
    report = convert(CHECKPOINTS / base, tmp_path / "out", **options, progress=False)
    ours, theirs = contents(tmp_path / "out"), contents(CHECKPOINTS / name)
    assert set(ours) == set(theirs)
    assert [key for key in theirs if ours[key] != theirs[key]] == []
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    expected = json.loads((CHECKPOINTS / name / "config.json").read_text())
    assert config["quantization"] == config["quantization_config"] == expected["quantization"]
    assert report.nbytes == sum(len(data) for _, _, data in ours.values())
    index = SafetensorsIndex.open(tmp_path / "out")
    assert bind(load_spec(tmp_path / "out", index), index)


def test_other_files_come_along(tmp_path: Path) -> None:
    source = CHECKPOINTS / "llama"
    convert(source, tmp_path / "out", bits=4, progress=False)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"):
        assert (tmp_path / "out" / name).read_bytes() == (source / name).read_bytes()


def test_without_bits_the_weights_stay(tmp_path: Path) -> None:
    source = model(tmp_path / "in")
    convert(source, tmp_path / "out", progress=False)
    assert contents(tmp_path / "out") == contents(source)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert "quantization" not in config


def test_dtype_casts_and_says_so(tmp_path: Path) -> None:
    source = model(tmp_path / "in")
    convert(source, tmp_path / "out", dtype="f16", progress=False)
    before, after = contents(source), contents(tmp_path / "out")
    for name, (dtype, shape, data) in after.items():
        assert (dtype, shape) == ("F16", before[name][1])
        exact = (np.frombuffer(before[name][2], "<u2").astype(np.uint32) << 16).view(np.float32)
        assert np.array_equal(np.frombuffer(data, "<f2"), exact.astype(np.float16))
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "float16"


def test_group_sizes_that_do_not_divide_leave_modules_as_mlx_does(tmp_path: Path) -> None:
    """Hidden size 64 and group size 128: only down_proj, whose rows have 128, is quantised."""
    source = model(tmp_path / "in")
    report = convert(source, tmp_path / "out", bits=4, group_size=128, progress=False)
    kinds = {name: dtype for name, (dtype, _, _) in contents(tmp_path / "out").items()}
    assert [name for name, dtype in kinds.items() if dtype == "U32"] == [
        f"model.layers.{i}.mlp.down_proj.weight" for i in range(3)
    ]
    assert "model.embed_tokens" in report.skipped
    assert len(report.skipped) == 2 + 3 * 6
    index = SafetensorsIndex.open(tmp_path / "out")
    assert bind(load_spec(tmp_path / "out", index), index)


def test_group_size_that_divides_nothing_is_refused(tmp_path: Path) -> None:
    source = model(tmp_path / "in", intermediate_size=192)
    with pytest.raises(ConvertError, match="group size 128 divides the rows of none"):
        convert(source, tmp_path / "out", bits=4, group_size=128, progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_tied_head_is_dropped(tmp_path: Path) -> None:
    source = model(tmp_path / "in", tie_word_embeddings=True)
    rewrite(source, {"lm_head.weight": contents(source)["model.embed_tokens.weight"]})
    convert(source, tmp_path / "out", bits=4, progress=False)
    assert not [name for name in contents(tmp_path / "out") if name.startswith("lm_head")]


def test_vision_towers_are_dropped_and_the_prefix_is_mlx_s(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "config.json").write_text(json.dumps(tiny.config("gemma3", tie_word_embeddings=True)))
    plain = tiny.write_model(tmp_path / "plain", tiny.config("gemma3_text"), {})
    names = tiny.dense(load_spec(plain))
    tensors = {"model.language_model." + name.removeprefix("model."): value for name, value in names.items()}
    tensors["model.vision_tower.x.weight"] = tiny.stored("BF16", 4, 4)
    tiny.write_safetensors(source / "model.safetensors", tensors)
    convert(source, tmp_path / "out", bits=8, group_size=32, progress=False)
    found = contents(tmp_path / "out")
    assert all(name.startswith("language_model.model.") for name in found)
    assert "vision_config" not in json.loads((tmp_path / "out" / "config.json").read_text())
    index = SafetensorsIndex.open(tmp_path / "out")
    assert bind(load_spec(tmp_path / "out", index), index)


def test_shards_have_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = model(tmp_path / "in")
    convert(source, tmp_path / "whole", bits=4, progress=False)
    write = writer_module.write_checkpoint
    monkeypatch.setattr(
        "saragossa.weights.convert.run.write_checkpoint",
        lambda folder, jobs, progress: write(folder, jobs, progress=progress, shard_bytes=20_000),
    )
    convert(source, tmp_path / "sharded", bits=4, progress=False)
    files = sorted(path.name for path in (tmp_path / "sharded").glob("*.safetensors"))
    assert len(files) > 2
    assert files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    index = json.loads((tmp_path / "sharded" / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == set(files)
    assert contents(tmp_path / "sharded") == contents(tmp_path / "whole")
    assert index["metadata"]["total_size"] == sum(len(d) for _, _, d in contents(tmp_path / "whole").values())


def test_tensors_are_aligned_to_their_items(tmp_path: Path) -> None:
    """An odd number of two-byte items must not shift the four-byte ones that come after it."""

    def job(name: str, dtype: str, count: int) -> Job:
        values = np.arange(count).astype(STORAGE[dtype])
        return Job((Entry(name, dtype, (count,)),), lambda: iter([(values,)]), count)

    jobs = [job("a", "BF16", 3), job("b", "F32", 5), job("c", "F16", 2), job("d", "U32", 2)]
    writer_module.write_checkpoint(tmp_path, jobs, progress=False)
    entries = SafetensorsIndex.open(tmp_path)
    assert [e.name for e in entries.values() if e.offset % STORAGE[e.dtype].itemsize] == []
    assert min(entry.offset for entry in entries.values()) % 64 == 0
    assert np.frombuffer(contents(tmp_path)["b"][2], "<f4").tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("key", "scales"), [("torch_dtype", "BF16"), ("dtype", "F32")])
def test_float32_weights_are_cast_where_mlx_does_it(tmp_path: Path, key: str, scales: str) -> None:
    """mlx-lm casts to `torch_dtype` before it quantises; transformers 5's `dtype` it does not read."""
    source = model(tmp_path / "in")
    bf16 = contents(source)
    convert(source, tmp_path / "f32", dtype="f32", progress=False)
    rewrite(source, contents(tmp_path / "f32"))
    (source / "config.json").write_text(json.dumps(tiny.config("llama", **{"dtype": ..., key: "bfloat16"})))
    convert(source, tmp_path / "out", bits=4, progress=False)
    found = contents(tmp_path / "out")
    assert found["model.embed_tokens.scales"][0] == scales
    assert (found["model.norm.weight"] == bf16["model.norm.weight"]) is (scales == "BF16")


def test_further_chat_templates_come_along(tmp_path: Path) -> None:
    source = model(tmp_path / "in")
    (source / "chat_template.jinja").write_text("a")
    (source / "additional_chat_templates").mkdir()
    (source / "additional_chat_templates" / "tool_use.jinja").write_text("b")
    (source / "additional_chat_templates" / "README.md").write_text("c")
    convert(source, tmp_path / "out", bits=4, progress=False)
    assert ChatTemplate.from_dir(tmp_path / "out").templates == {"default": "a", "tool_use": "b"}
    assert sorted(path.name for path in tmp_path.glob("out/additional_chat_templates/*")) == [
        "tool_use.jinja"
    ]


@pytest.mark.parametrize(
    "block",
    [{"group_size": 64, "bits": 4}, {"quant_method": "gptq", "bits": 4}],
    ids=["affine", "gptq"],
)
@pytest.mark.parametrize("key", ["quantization", "quantization_config"])
def test_a_quantised_source_is_refused(tmp_path: Path, key: str, block: dict[str, Any]) -> None:
    source = model(tmp_path / "in")
    (source / "config.json").write_text(json.dumps(tiny.config("llama", **{key: block})))
    with pytest.raises(ConvertError, match=rf"is quantised already: {key} in config.json says (4 bits|gptq)"):
        convert(source, tmp_path / "out", bits=4, progress=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_weight_that_is_not_finite_is_refused(tmp_path: Path, value: float) -> None:
    source = model(tmp_path / "in")
    name = "model.layers.1.mlp.up_proj.weight"
    dtype, shape, data = contents(source)[name]
    bad = np.frombuffer(data, "<u2").copy()
    bad[77] = np.array([value], np.float32).view(np.uint32)[0] >> 16
    rewrite(source, {name: (dtype, shape, bad.tobytes())})
    with pytest.raises(ConvertError, match=rf"tensor {name} holds a value that is not finite"):
        convert(source, tmp_path / "out", bits=4, progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_float16_overflow_is_refused(tmp_path: Path) -> None:
    source = model(tmp_path / "in")
    rewrite(source, {"model.norm.weight": ("F32", (64,), np.full(64, 65520.0, "<f4").tobytes())})
    with pytest.raises(ConvertError, match=r"model.norm.weight: a value is beyond float16's range"):
        convert(source, tmp_path / "out", dtype="float16", progress=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 7}, "bits 7 is not supported"),
        ({"bits": 4, "group_size": 16}, "group size 16 is not supported"),
        ({"dtype": "int8"}, "dtype 'int8' is not supported"),
    ],
)
def test_bad_options(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        convert(tmp_path, tmp_path / "out", progress=False, **options)
    assert caught.value.exit_code == 2


def test_folders_that_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match="does not exist"):
        convert(tmp_path / "none", tmp_path / "out", progress=False)
    (tmp_path / "folder").mkdir()
    with pytest.raises(ModelError, match="an empty folder"):
        convert(tmp_path / "folder", tmp_path / "out", progress=False)
    (tmp_path / "folder" / "model.gguf").touch()
    with pytest.raises(ModelError, match="but a GGUF file"):
        convert(tmp_path / "folder", tmp_path / "out", progress=False)
    (tmp_path / "folder" / "config.json").write_text('{"model_type": "rwkv"}')
    with pytest.raises(ModelError, match="architecture 'rwkv' is not supported"):
        convert(tmp_path / "folder", tmp_path / "out", bits=4, progress=False)
    assert not (tmp_path / "out").exists()


def test_weights_are_checked_before_anything_is_written(tmp_path: Path) -> None:
    source = model(tmp_path / "in")
    tensors = contents(source)
    del tensors["model.layers.2.self_attn.k_proj.weight"]
    tiny.write_safetensors(source / "model.safetensors", tensors)
    with pytest.raises(WeightsError, match=r"missing model.layers.2.self_attn.k_proj.weight"):
        convert(source, tmp_path / "out", bits=4, progress=False)
    (source / "config.json").write_text(json.dumps(tiny.config("llama", surprising=1)))
    with pytest.raises(ConfigError, match="surprising"):
        convert(source, tmp_path / "out", bits=4, progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
