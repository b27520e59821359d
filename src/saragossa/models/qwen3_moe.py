"""Qwen3 MoE (30B-A3B, 235B-A22B, Coder): Qwen3 attention, experts instead of the MLP."""

from __future__ import annotations

from collections.abc import Mapping

from saragossa.errors import ConfigError
from saragossa.models.config_base import (
    Count,
    DecoderConfig,
    Size,
    activation,
    config_block,
    head_dim_of,
    kv_heads_of,
    read_config,
    sliding_layers,
    storage_dtype,
)
from saragossa.models.decoder import model_spec, prefix_of
from saragossa.models.index import Index
from saragossa.models.moe import MOE_IGNORED, MoeConfig, expert_count, is_fused, moe_spec, sparse_layers
from saragossa.models.rope import rope_parameters, rope_spec
from saragossa.models.spec import AttentionSpec, DecoderSpec, LayerSpec, MlpSpec, ModelSpec


class Qwen3MoeConfig(DecoderConfig, MoeConfig):
    """config.json with model_type qwen3_moe."""

    num_key_value_heads: Count | None = 4
    head_dim: Size | None = None
    hidden_act: str = "silu"
    max_position_embeddings: Size = 32_768
    attention_bias: bool = False  # q, k, v and o
    norm_topk_prob: bool = False
    layer_types: list[str] | None = None


# A window that use_sliding_window leaves off is written all the same.
_IGNORED = (*MOE_IGNORED, "sliding_window", "max_window_layers")
_FIXED: Mapping[str, tuple[object, ...]] = {
    "use_sliding_window": (False,),
    "mlp_bias": (False,),
    "shared_expert_intermediate_size": (0, None),
    "use_qk_norm": (True,),
}


def build(raw: Mapping[str, object], index: Index) -> ModelSpec:
    """Spec from config.json and the tensors of the checkpoint. Raises ConfigError."""
    c = read_config(Qwen3MoeConfig, raw, ignored=_IGNORED, fixed=_FIXED)
    if any(sliding_layers(c.layer_types, c.num_hidden_layers) or ()):
        raise ConfigError("layer_types has sliding_attention, but a qwen3_moe model has full attention")
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
    sparse, prefix = sparse_layers(c, c.num_hidden_layers), prefix_of(index)
    experts = expert_count(c, 128, c.num_hidden_layers)

    def layer(i: int) -> LayerSpec:
        if not sparse[i]:
            return LayerSpec(attention, mlp)
        fused = is_fused(f"{prefix}layers.{i}.", index)
        return LayerSpec(attention, None, moe=moe_spec(c, c.hidden_act, experts=experts, fused=fused))

    decoder = DecoderSpec(
        vocab=c.vocab_size,
        hidden=c.hidden_size,
        layers=tuple(layer(i) for i in range(c.num_hidden_layers)),
        ropes=(rope,),
        norm_eps=c.rms_norm_eps,
        max_context=c.max_position_embeddings,
        tied=c.tie_word_embeddings,
    )
    dtype = storage_dtype(c.dtype, c.torch_dtype)
    return model_spec("qwen3_moe", decoder, index, dtype=dtype, quantization=config_block(raw))
