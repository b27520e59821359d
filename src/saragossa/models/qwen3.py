"""Qwen3 dense: norms on q and k per head, a head_dim of its own, no biases by default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from saragossa.models.config_base import (
    Size,
    activation,
    config_block,
    head_dim_of,
    kv_heads_of,
    read_config,
    storage_dtype,
)
from saragossa.models.decoder import model_spec
from saragossa.models.index import Index
from saragossa.models.qwen2 import Qwen2Config, windows
from saragossa.models.rope import rope_parameters, rope_spec
from saragossa.models.spec import AttentionSpec, DecoderSpec, LayerSpec, MlpSpec, ModelSpec


class Qwen3Config(Qwen2Config):
    """config.json with model_type qwen3."""

    head_dim: Size | None = 128
    attention_bias: bool = False  # q, k, v and o


def build(raw: Mapping[str, object], index: Index) -> ModelSpec:
    """Spec from config.json and the tensors of the checkpoint. Raises ConfigError."""
    c = read_config(Qwen3Config, raw, fixed={"mlp_bias": (False,)})
    head_dim = head_dim_of(c.hidden_size, c.num_attention_heads, c.head_dim)
    rope = rope_spec(rope_parameters(c), head_dim=head_dim, max_position=c.max_position_embeddings)
    attention = AttentionSpec(
        heads=c.num_attention_heads,
        kv_heads=kv_heads_of(c.num_attention_heads, c.num_key_value_heads),
        head_dim=head_dim,
        scale=head_dim**-0.5,
        rope=0,
        q_norm=True,
        k_norm=True,
        qkv_bias=c.attention_bias,
        o_bias=c.attention_bias,
    )
    mlp = MlpSpec(c.intermediate_size, activation(c.hidden_act, "hidden_act"))
    decoder = DecoderSpec(
        vocab=c.vocab_size,
        hidden=c.hidden_size,
        layers=tuple(LayerSpec(replace(attention, window=window), mlp) for window in windows(c)),
        ropes=(rope,),
        norm_eps=c.rms_norm_eps,
        max_context=c.max_position_embeddings,
        tied=c.tie_word_embeddings,
    )
    dtype = storage_dtype(c.dtype, c.torch_dtype)
    return model_spec("qwen3", decoder, index, dtype=dtype, quantization=config_block(raw))
