"""Llama 1 to 3.x and what shares its architecture (SmolLM2, TinyLlama, Yi)."""

from __future__ import annotations

from collections.abc import Mapping

from saragossa.models.config_base import (
    Count,
    DecoderConfig,
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
from saragossa.models.rope import rope_parameters, rope_spec
from saragossa.models.spec import AttentionSpec, DecoderSpec, LayerSpec, MlpSpec, ModelSpec


class LlamaConfig(DecoderConfig):
    """config.json with model_type llama."""

    num_key_value_heads: Count | None = None
    head_dim: Size | None = None
    hidden_act: str = "silu"
    max_position_embeddings: Size = 2048
    attention_bias: bool = False  # q, k, v and o
    mlp_bias: bool = False


def build(raw: Mapping[str, object], index: Index) -> ModelSpec:
    """Spec from config.json and the tensors of the checkpoint. Raises ConfigError."""
    c = read_config(LlamaConfig, raw)
    head_dim = head_dim_of(c.hidden_size, c.num_attention_heads, c.head_dim)
    rope = rope_spec(rope_parameters(c), head_dim=head_dim, max_position=c.max_position_embeddings)
    attention = AttentionSpec(
        heads=c.num_attention_heads,
        kv_heads=kv_heads_of(c.num_attention_heads, c.num_key_value_heads),
        head_dim=head_dim,
        scale=head_dim**-0.5,
        rope=0,
        qkv_bias=c.attention_bias,
        o_bias=c.attention_bias,
    )
    mlp = MlpSpec(c.intermediate_size, activation(c.hidden_act, "hidden_act"), bias=c.mlp_bias)
    decoder = DecoderSpec(
        vocab=c.vocab_size,
        hidden=c.hidden_size,
        layers=(LayerSpec(attention, mlp),) * c.num_hidden_layers,
        ropes=(rope,),
        norm_eps=c.rms_norm_eps,
        max_context=c.max_position_embeddings,
        tied=c.tie_word_embeddings,
    )
    dtype = storage_dtype(c.dtype, c.torch_dtype)
    return model_spec("llama", decoder, index, dtype=dtype, quantization=config_block(raw))
