"""Tiny model folders for tests: configs of every architecture in both forms, and a safetensors writer."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from saragossa.models.spec import ModelSpec

BITS = {"F32": 32, "F16": 16, "BF16": 16, "U32": 32, "U8": 8, "I64": 64}
Stored = tuple[str, tuple[int, ...], bytes]

SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
}
# What transformers writes beside them and inference does not need.
NOISE: dict[str, Any] = {
    "architectures": ["SomethingForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": [2, 3],
    "pad_token_id": None,
    "initializer_range": 0.02,
    "transformers_version": "5.24.0",
    "use_cache": True,
}


def config(model_type: str, /, **changes: Any) -> dict[str, Any]:
    """A config.json in transformers 5's form; `changes` replace keys, a value of ... removes one."""
    result = {**SIZES, **NOISE, "model_type": model_type, "dtype": "bfloat16"}
    result["rope_parameters"] = {"rope_theta": 1e5, "rope_type": "default"}
    if model_type == "llama":
        result |= {"hidden_act": "silu", "pretraining_tp": 1, "attention_bias": False, "mlp_bias": False}
    elif model_type == "mistral":
        result |= {"hidden_act": "silu", "sliding_window": None, "head_dim": 32}
    elif model_type in ("qwen2", "qwen3"):
        result |= {"hidden_act": "silu", "use_sliding_window": False, "sliding_window": None}
        result |= {"max_window_layers": 2, "layer_types": ["full_attention"] * 3}
        result |= {"head_dim": 32, "attention_bias": False} if model_type == "qwen3" else {}
    elif model_type == "gemma3_text":
        result |= gemma3_keys()
    elif model_type == "gemma3":
        text = {**result, **gemma3_keys(), "model_type": "gemma3_text"}
        result = {**NOISE, "model_type": "gemma3", "dtype": "bfloat16", "text_config": text}
        result |= {"vision_config": {"model_type": "siglip_vision_model"}, "mm_tokens_per_image": 4}
        result |= {"boi_token_index": 5, "eoi_token_index": 6, "image_token_index": 7}
    result |= changes
    return {key: value for key, value in result.items() if value is not ...}


def gemma3_keys() -> dict[str, Any]:
    """Keys of a Gemma 3 text config in transformers 5's form: layers sliding, full, sliding."""
    return {
        "_sliding_window_pattern": 2,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "attention_bias": False,
        "head_dim": 32,
        "hidden_activation": "gelu_pytorch_tanh",
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "query_pre_attn_scalar": 64,
        "rope_parameters": {
            "full_attention": {"rope_theta": 1e6, "rope_type": "linear", "factor": 8.0},
            "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"},
        },
        "sliding_window": 16,
        "tie_word_embeddings": True,
        "use_bidirectional_attention": False,
    }


def nbytes(dtype: str, shape: tuple[int, ...]) -> int:
    return math.prod(shape) * BITS[dtype] // 8


def stored(dtype: str, *shape: int, fill: int = 0) -> Stored:
    """A tensor whose bytes are all `fill`."""
    return dtype, shape, bytes([fill]) * nbytes(dtype, shape)


def affine(
    name: str, shape: tuple[int, ...], bits: int, group_size: int, dtype: str = "BF16"
) -> dict[str, Stored]:
    """The triple of a quantised module [out, in]."""
    out, inputs = shape
    return {
        f"{name}.weight": stored("U32", out, inputs * bits // 32),
        f"{name}.scales": stored(dtype, out, inputs // group_size),
        f"{name}.biases": stored(dtype, out, inputs // group_size),
    }


def microscaled(name: str, shape: tuple[int, ...], bits: int) -> dict[str, Stored]:
    """mxfp4 or mxfp8: words and scales of a module [out, in]."""
    out, inputs = shape
    return {
        f"{name}.weight": stored("U32", out, inputs * bits // 32),
        f"{name}.scales": stored("U8", out, inputs // 32),
    }


def dense(spec: ModelSpec, dtype: str = "BF16") -> dict[str, Stored]:
    """Every tensor of a spec as floats."""
    return {
        f"{item.name}.weight" if item.module else item.name: stored(dtype, *item.shape)
        for item in spec.tensors
    }


def header_of(tensors: Mapping[str, Stored]) -> dict[str, Any]:
    position, header = 0, {}
    for name, (dtype, shape, data) in tensors.items():
        end = position + len(data)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, end]}
        position = end
    return header


def write_raw(path: Path, header: bytes, data: bytes) -> None:
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


def write_safetensors(path: Path, tensors: Mapping[str, Stored]) -> None:
    header = {"__metadata__": {"format": "pt"}, **header_of(tensors)}
    write_raw(path, json.dumps(header).encode(), b"".join(data for _, _, data in tensors.values()))


def write_index(folder: Path, shards: Mapping[str, Mapping[str, Stored]]) -> None:
    """Shards and the index that lists them."""
    for name, tensors in shards.items():
        write_safetensors(folder / name, tensors)
    weight_map = {tensor: name for name, tensors in shards.items() for tensor in tensors}
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": weight_map})
    )


def write_model(folder: Path, config_json: Mapping[str, Any], tensors: Mapping[str, Stored]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_json))
    write_safetensors(folder / "model.safetensors", tensors)
    return folder
