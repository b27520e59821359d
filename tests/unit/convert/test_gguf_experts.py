"""GGUF files of models with experts: qwen3moe comes back as mlx-lm would have it, others are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf.quants import dequantize as reference

from saragossa.errors import ConvertError
from saragossa.weights.bind import BoundTensor, bind
from saragossa.weights.checkpoint import load_spec
from saragossa.weights.convert import convert
from saragossa.weights.convert.floats import to_float32
from saragossa.weights.safetensors import SafetensorsIndex
from tiny_gguf import EXPERT_INNER, EXPERTS, EXPERTS_USED, HIDDEN, Kind, to_gguf, weights_of, write_gguf

ROUTER = "blk.{}.ffn_gate_inp.weight"
FLOAT_ROUTERS = {ROUTER.format(i): Kind.F32 for i in range(2)}  # as llama.cpp leaves them


def load(folder: Path) -> dict[str, BoundTensor]:
    index = SafetensorsIndex.open(folder)
    return {tensor.name: tensor for tensor in bind(load_spec(folder, index), index)}


def config_of(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return result


def read(tensor: BoundTensor) -> np.ndarray:
    """Values in float32, stacks as the rows of one matrix; dequantised by the definition of the layout."""
    parts = []
    for part in tensor.parts:
        raw = np.fromfile(part.file, np.uint8, part.nbytes, offset=part.offset)
        parts.append(raw.view({"F32": "<f4", "F16": "<f2", "BF16": "<u2", "U32": "<u4"}[part.dtype]))
    if tensor.kind == "dense":
        return to_float32(parts[0], tensor.dtype).reshape(tensor.shape)
    rows, cols = tensor.shape
    stream = np.unpackbits(parts[0].view(np.uint8).reshape(rows, -1), axis=1, bitorder="little")
    codes = (stream.reshape(rows, cols, tensor.bits) << np.arange(tensor.bits, dtype=np.uint8)).sum(2)
    scales, biases = (to_float32(p, tensor.dtype).reshape(rows, -1, 1) for p in parts[1:])
    groups = codes.reshape(rows, -1, tensor.group_size).astype(np.float32)
    return (groups * scales + biases).reshape(rows, cols)


def test_floats_come_back_as_they_were(tmp_path: Path) -> None:
    weights = weights_of("qwen3moe", tied=False)
    changes = {"qwen3moe.expert_weights_norm": True, "qwen3moe.expert_gating_func": 1}
    write_gguf(tmp_path / "in.gguf", "qwen3moe", weights, changes=changes)
    convert(tmp_path / "in.gguf", tmp_path / "out", progress=False)
    config = config_of(tmp_path / "out")
    assert config["model_type"] == "qwen3_moe"
    assert (config["num_experts"], config["num_experts_per_tok"]) == (EXPERTS, EXPERTS_USED)
    assert (config["moe_intermediate_size"], config["norm_topk_prob"]) == (EXPERT_INNER, True)
    bound = load(tmp_path / "out")
    found = {name + ".weight" if len(t.shape) == 2 else name: read(t) for name, t in bound.items()}
    assert set(found) == set(weights)
    for name, value in weights.items():
        assert np.array_equal(found[name].reshape(value.shape), value), name


@pytest.mark.parametrize("kind", [Kind.Q4_0, Kind.Q5_1, Kind.Q8_0])
def test_lossless_kinds_keep_every_value(tmp_path: Path, kind: Kind) -> None:
    weights = weights_of("qwen3moe")
    stored = write_gguf(tmp_path / "in.gguf", "qwen3moe", weights, kind=kind, kinds=FLOAT_ROUTERS)
    convert(tmp_path / "in.gguf", tmp_path / "out", progress=False)
    bound = load(tmp_path / "out")
    assert config_of(tmp_path / "out")["quantization"]["model.layers.0.mlp.gate"] is False
    assert bound["model.layers.0.mlp.gate"].dtype == "F32"
    for gguf_name, name in zip(to_gguf("qwen3moe", weights), weights, strict=True):
        if "_exps" in gguf_name:
            expected = reference(stored[gguf_name].reshape(-1, stored[gguf_name].shape[-1]), kind)
            assert np.array_equal(read(bound[name.removesuffix(".weight")]), expected), name


def test_k_quants_of_experts_are_close(tmp_path: Path) -> None:
    weights = weights_of("qwen3moe")
    kinds = FLOAT_ROUTERS | {f"blk.{i}.ffn_down_exps.weight": Kind.Q6_K for i in range(2)}
    stored = write_gguf(tmp_path / "in.gguf", "qwen3moe", weights, kind=Kind.Q4_0, kinds=kinds)
    convert(tmp_path / "in.gguf", tmp_path / "out", progress=False)
    tensor = load(tmp_path / "out")["model.layers.1.mlp.switch_mlp.down_proj"]
    rows = stored["blk.1.ffn_down_exps.weight"].reshape(EXPERTS * HIDDEN, -1)
    expected = reference(rows, Kind.Q6_K)
    assert tensor.bits == 8
    error = np.sqrt(np.mean((read(tensor) - expected) ** 2) / np.mean(expected**2))
    assert error < 5e-3


def test_quantised_anew_as_a_folder_would_be(tmp_path: Path) -> None:
    """Routers in 8 bits, overrides by name."""
    write_gguf(tmp_path / "in.gguf", "qwen3moe", weights_of("qwen3moe"))
    overrides = ["*.down_proj=6:32"]
    convert(tmp_path / "in.gguf", tmp_path / "out", bits=4, overrides=overrides, progress=False)
    block = config_of(tmp_path / "out")["quantization"]
    router, down = {"group_size": 64, "bits": 8}, {"group_size": 32, "bits": 6}
    expected = {f"model.layers.{i}.mlp.gate": router for i in range(2)}
    expected |= {f"model.layers.{i}.mlp.switch_mlp.down_proj": down for i in range(2)}
    assert block == {"group_size": 64, "bits": 4, "mode": "affine"} | expected
    assert load(tmp_path / "out")["model.layers.0.mlp.switch_mlp.down_proj"].bits == 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"qwen3moe.expert_count": 0}, r"expert_count is 0; 1 to 4096 is supported"),
        ({"qwen3moe.expert_count": None}, r"lacks the metadata key qwen3moe.expert_count"),
        (
            {"qwen3moe.expert_used_count": EXPERTS + 1},
            r"expert_used_count is 4; 1 to 3, the number of experts",
        ),
        ({"qwen3moe.expert_count": EXPERTS + 1}, r"ffn_gate_inp.weight has the shape \[3, 256\]"),
        ({"qwen3moe.expert_weights_norm": False}, r"expert_weights_norm is False; True is supported"),
        ({"qwen3moe.expert_gating_func": 2}, r"expert_gating_func is 2; 1 \(softmax\) is supported"),
        ({"qwen3moe.expert_group_count": 4}, r"key qwen3moe.expert_group_count is not supported"),
    ],
)
def test_wrong_metadata(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    write_gguf(tmp_path / "in.gguf", "qwen3moe", weights_of("qwen3moe"), changes=changes)
    with pytest.raises(ConvertError, match=message):
        convert(tmp_path / "in.gguf", tmp_path / "out", progress=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("arch", ["qwen3next", "qwen35", "qwen35moe", "gemma4"])
def test_other_families_are_named(tmp_path: Path, arch: str) -> None:
    write_gguf(tmp_path / "in.gguf", arch, weights_of("qwen3"))
    with pytest.raises(
        ConvertError, match=f"GGUF files of the architecture '{arch}' are not imported"
    ) as caught:
        convert(tmp_path / "in.gguf", tmp_path / "out", progress=False)
    assert "Hugging Face" in str(caught.value.cure)
