"""Shapes of real models for the Metal counters.

Dense ones are written out here, the newer families come from tests/golden/real_configs.json.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metal_zeros import text_of

REAL = Path(__file__).parents[1] / "tests" / "golden" / "real_configs.json"


@dataclass(frozen=True)
class Shape:
    """A model's config; `kinds` has one entry a layer: layers with equal entries are alike."""

    name: str
    config: dict[str, Any]
    kinds: tuple[str, ...] = field(default=())

    @property
    def layers(self) -> int:
        return int(text_of(self.config)["num_hidden_layers"])

    def layer_kinds(self) -> tuple[str, ...]:
        return self.kinds or ("layer",) * self.layers

    def changed(self, **text: Any) -> Shape:
        """With other values in its text config."""
        if "text_config" not in self.config:
            return Shape(self.name, self.config | text, self.kinds)
        inner = self.config["text_config"] | text
        return Shape(self.name, self.config | {"text_config": inner}, self.kinds)

    def with_layers(self, kinds: tuple[str, ...]) -> Shape:
        """A model of these layers only."""
        types = {"layer_types": list(kinds)} if self.kinds else {}
        other = self.changed(num_hidden_layers=len(kinds), **types)
        return Shape(self.name, other.config, kinds if self.kinds else ())


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


# Families beyond dense attention; the figures of others are for these (bench/metal_roofline.py).
_REAL = ("Qwen3.6-35B-A3B", "Qwen3.6-27B", "Qwen3-30B-A3B", "Gemma-4-26B-A4B", "Gemma-4-31B")


def _real(name: str, config: dict[str, Any]) -> Shape:
    text = config.get("text_config", config)
    text.pop("full_attention_interval", None)  # layer_types says it
    return Shape(name.lower(), config, tuple(text.get("layer_types") or ()))


_MODELS: dict[str, Any] = json.loads(REAL.read_text())["models"]
FAMILIES = tuple(_real(name, _MODELS[name]["config"]) for name in _REAL)
