"""load_spec and describe: what a folder must be, and what is said when it is something else."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from saragossa.errors import ConfigError, ModelError, WeightsError
from saragossa.models import llama
from saragossa.weights.checkpoint import describe, load_spec
from saragossa.weights.safetensors import SafetensorsIndex
from tiny_checkpoints import config, dense, write_model, write_safetensors


def model(folder: Path, **changes: Any) -> Path:
    raw = config("llama", **changes)
    return write_model(folder, raw, dense(llama.build(config("llama"), {})))


def test_a_folder_loads(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    assert load_spec(folder) == load_spec(str(folder), SafetensorsIndex.open(folder))
    assert load_spec(folder).model_type == "llama"


@pytest.mark.parametrize(
    ("kind", "message", "cure"),
    [
        ("missing", "no such folder", ""),
        ("empty", "an empty folder", "saragossa pull"),
        ("gguf file", "a GGUF file, a model folder is wanted", "saragossa convert"),
        ("other file", "a file, a model folder is wanted", "folder"),
        ("gguf inside", "no config.json, but a GGUF file", "saragossa convert"),
        ("no config", "no config.json", ""),
    ],
)
def test_what_is_no_model_folder(tmp_path: Path, kind: str, message: str, cure: str) -> None:
    path = tmp_path / "x"
    if kind in ("empty", "gguf inside", "no config"):
        path.mkdir()
    if kind == "gguf file":
        path.write_bytes(b"GGUF\x03\0\0\0")
    elif kind == "other file":
        path.write_text("hello")
    elif kind == "gguf inside":
        (path / "model.gguf").write_bytes(b"GGUF\x03\0\0\0")
    elif kind == "no config":
        (path / "README.md").write_text("hello")
    with pytest.raises(ModelError, match=message) as error:
        load_spec(path)
    assert str(path) in error.value.message
    assert cure in (error.value.cure or "")


@pytest.mark.parametrize("config_too", [False, True])
@pytest.mark.parametrize(
    "weights", ["adapter_model.safetensors", "adapters.safetensors", "adapter_model.bin"]
)
def test_an_adapter_is_no_model(tmp_path: Path, weights: str, config_too: bool) -> None:
    folder = model(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / weights)
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    if not config_too:
        (folder / "config.json").unlink()
    with pytest.raises(
        ModelError, match="a LoRA adapter without its model; adapters are not supported"
    ) as error:
        load_spec(folder)
    assert "merge it into its base model first" in (error.value.cure or "")
    assert describe(folder).problem == error.value.message


def test_a_model_with_an_adapter_beside_it_loads(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    (folder / "adapter_config.json").write_text("{}")
    (folder / "adapters.safetensors").touch()
    assert load_spec(folder).model_type == "llama"


def test_unsupported_architecture_lists_the_supported(tmp_path: Path) -> None:
    folder = model(tmp_path / "m", model_type="mamba2")
    with pytest.raises(ModelError, match="architecture 'mamba2' is not supported") as error:
        load_spec(folder)
    assert error.value.cure is not None
    assert error.value.cure.startswith("supported: gemma3, gemma3_text, gemma4, gemma4_text, ")
    assert error.value.cure.endswith(", qwen3_moe, qwen3_next")


@pytest.mark.parametrize("model_type", ["rope", "spec", "config_base", "../llama", "", "llama.x"])
def test_a_model_type_is_no_module_name(tmp_path: Path, model_type: str) -> None:
    with pytest.raises(ModelError, match="is not supported"):
        load_spec(model(tmp_path / "m", model_type=model_type))


def test_model_type_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config.json: model_type is missing"):
        load_spec(model(tmp_path / "m", model_type=...))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "holds a JSON list, an object is expected"),
        ('{"model_type": NaN}', "model_type is missing"),
        ("[" * 100_000, "not valid JSON"),
        ("version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        (" " * (9 << 20), "larger than"),
    ],
    ids=["cut", "list", "nan", "deep", "lfs", "large"],
)
def test_config_json_that_is_none(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=message) as error:
        load_spec(tmp_path)
    assert "config.json" in error.value.message


def test_config_errors_name_the_file(tmp_path: Path) -> None:
    folder = model(tmp_path / "m", hidden_act="relu")
    with pytest.raises(ConfigError) as error:
        load_spec(folder)
    assert error.value.message.startswith(f"{folder / 'config.json'}: hidden_act is 'relu'")


def test_describe(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    found = describe(folder)
    assert (found.model_type, found.quantization, found.supported) == ("llama", "bfloat16", True)
    assert found.nbytes == sum(path.stat().st_size for path in folder.iterdir())
    block = {"bits": 4, "group_size": 64, "lm_head": {"bits": 6, "group_size": 64}}
    assert describe(model(tmp_path / "q", quantization=block)).quantization == "4-bit, group size 64, mixed"
    gptq = describe(model(tmp_path / "g", quantization_config={"quant_method": "gptq", "bits": 4}))
    assert (gptq.quantization, gptq.supported) == ("gptq", False)
    assert gptq.problem is not None
    assert "'gptq' is not supported" in gptq.problem


@pytest.mark.parametrize("kind", ["missing", "file", "bad json", "odd types", "no weights", "unsupported"])
def test_describe_never_raises(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "m"
    if kind == "file":
        path.write_text("x")
    elif kind != "missing":
        path.mkdir()
        texts = {"bad json": "{", "odd types": '{"model_type": ["x"], "text_config": 3, "dtype": {}}'}
        raw = config("llama" if kind == "no weights" else "mamba2")
        (path / "config.json").write_text(texts.get(kind, json.dumps(raw)))
    found = describe(path)
    assert not found.supported
    assert found.problem


def test_weights_are_looked_at_before_the_spec(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match="no safetensors file"):
        load_spec(folder)
    write_safetensors(folder / "model.safetensors", {})
    assert load_spec(folder).tensors[0].name == "model.embed_tokens"


def test_import_is_light() -> None:
    code = (
        "import sys, saragossa.models as m; m.supported(); heavy = {'pydantic', 'numpy', 'huggingface_hub'};"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
