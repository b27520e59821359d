"""Shapes of real models for the Metal counters, and checkpoints of zeros that have them.

A checkpoint here is a config.json and a sparse safetensors file: nothing lies on the disk, every byte
reads as zero.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saragossa.models import read_architecture
from saragossa.models.spec import ModelSpec

GROUP = 64
BITS = 4


@dataclass(frozen=True)
class Shape:
    """A model's config; `kinds` has one entry a layer: layers with equal entries are alike."""

    name: str
    config: dict[str, Any]
    kinds: tuple[str, ...] = field(default=())

    @property
    def layers(self) -> int:
        return int(self.config["num_hidden_layers"])

    def layer_kinds(self) -> tuple[str, ...]:
        return self.kinds or ("layer",) * self.layers

    def with_layers(self, kinds: tuple[str, ...]) -> dict[str, Any]:
        """The config of a model of these layers only."""
        config = self.config | {"num_hidden_layers": len(kinds)}
        if self.kinds:
            config["layer_types"] = list(kinds)
        return config


def _llama(name: str, **config: Any) -> Shape:
    base = {
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 4096,
        "rope_theta": 1e6,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    }
    return Shape(name, base | config)


_GEMMA_LAYERS = 18
SHAPES = (
    _llama(
        "qwen3-0.6b",
        model_type="qwen3",
        vocab_size=151936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        attention_bias=False,
    ),
    _llama(
        "smollm2-135m",
        model_type="llama",
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
    ),
    _llama(
        "qwen3-4b",
        model_type="qwen3",
        vocab_size=151936,
        hidden_size=2560,
        intermediate_size=9728,
        num_hidden_layers=36,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        attention_bias=False,
    ),
    _llama(
        "llama-3.2-1b",
        model_type="llama",
        vocab_size=128256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=64,
    ),
    _llama(
        "qwen2.5-0.5b",
        model_type="qwen2",
        vocab_size=151936,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
    ),
    Shape(
        "gemma3-270m",
        {
            "model_type": "gemma3_text",
            "vocab_size": 262144,
            "hidden_size": 640,
            "intermediate_size": 2048,
            "num_hidden_layers": _GEMMA_LAYERS,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 256,
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": 256,
            "sliding_window": 512,
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1e6,
            "rope_local_base_freq": 1e4,
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
        },
        tuple("full_attention" if (i + 1) % 6 == 0 else "sliding_attention" for i in range(_GEMMA_LAYERS)),
    ),
)


def write_zeros(folder: Path, config: dict[str, Any]) -> ModelSpec:
    """A checkpoint of `config` in 4 bits, all zeros; returns its spec."""
    folder.mkdir(parents=True)
    block = {"group_size": GROUP, "bits": BITS, "mode": "affine"}
    text = config | {
        "quantization": block,
        "quantization_config": block,
        "eos_token_id": 1,
        "bos_token_id": 0,
    }
    (folder / "config.json").write_text(json.dumps(text))
    spec = read_architecture(folder).spec(["model.embed_tokens.weight"])
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    at = 0
    for name, dtype, shape, nbytes in _stored(spec):
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + nbytes]}
        at += nbytes
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        file.truncate(8 + len(encoded) + at)
    return spec


def _stored(spec: ModelSpec) -> Iterator[tuple[str, str, list[int], int]]:
    """Name, dtype, shape and bytes of each stored tensor, the widest elements first."""
    modules = [t for t in spec.tensors if t.module]
    for t in modules:
        rows, width = t.shape
        yield f"{t.name}.weight", "U32", [rows, width * BITS // 32], rows * width * BITS // 8
    for t in modules:
        rows, width = t.shape
        for part in ("scales", "biases"):
            yield f"{t.name}.{part}", "BF16", [rows, width // GROUP], 2 * rows * width // GROUP
    for t in spec.tensors:
        if not t.module:
            yield t.name, "BF16", list(t.shape), 2 * t.shape[0]
