"""Gemma 3, text: four norms a layer (stored as w, used as 1 + w), two ropes, sliding and full layers.

The embedding scale sqrt(hidden_size) stays unrounded, as transformers has it in float32 (it casts the scale
to the dtype of the loaded weights; mlx-lm always rounds it to bfloat16).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from saragossa.errors import ConfigError
from saragossa.models.config_base import (
    Count,
    DecoderConfig,
    Positive,
    Size,
    Softcap,
    activation,
    config_block,
    head_dim_of,
    kv_heads_of,
    read_config,
    sliding_layers,
    storage_dtype,
)
from saragossa.models.decoder import model_spec
from saragossa.models.index import Index
from saragossa.models.rope import merge, rope_parameters, rope_spec
from saragossa.models.spec import AttentionSpec, DecoderSpec, LayerSpec, MlpSpec, ModelSpec, RopeSpec

_KINDS = ("full_attention", "sliding_attention")
FULL, SLIDING = 0, 1  # places in DecoderSpec.ropes


class Gemma3TextConfig(DecoderConfig):
    """config.json with model_type gemma3_text, or text_config of gemma3.

    The Hub's text_configs leave out what equals transformers' defaults, so every key has one.
    """

    vocab_size: Size = 262_208
    hidden_size: Size = 2304
    intermediate_size: Size = 9216
    num_hidden_layers: Count = 26
    num_attention_heads: Count = 8
    num_key_value_heads: Count | None = 4
    head_dim: Size = 256
    hidden_activation: str = "gelu_pytorch_tanh"
    max_position_embeddings: Size = 131_072
    tie_word_embeddings: bool = True
    attention_bias: bool = False
    query_pre_attn_scalar: Positive = 256.0
    sliding_window: Size | None = 4096
    sliding_window_pattern: Size | None = None  # every n-th layer is full; older form of layer_types
    layer_types: list[str] | None = None
    rope_local_base_freq: Positive | None = None  # older form of the sliding layers' rope_theta
    final_logit_softcapping: Softcap | None = None
    attn_logit_softcapping: Softcap | None = None


def _sliding(c: Gemma3TextConfig) -> list[bool]:
    sliding = sliding_layers(c.layer_types, c.num_hidden_layers)
    if sliding is None:
        pattern = c.sliding_window_pattern or 6
        sliding = [(i + 1) % pattern != 0 for i in range(c.num_hidden_layers)]
    if any(sliding) and c.sliding_window is None:
        raise ConfigError("sliding_window is null, but there are sliding_attention layers")
    return sliding


def _ropes(c: Gemma3TextConfig) -> tuple[RopeSpec, RopeSpec]:
    """Ropes of the full layers (scaled) and of the sliding ones (never scaled in the older form)."""
    nested = c.rope_parameters
    if nested and not set(nested) <= set(_KINDS):
        raise ConfigError(f"rope_parameters has {sorted(nested)}; {' and '.join(_KINDS)} are wanted")
    full, sliding = (_section(nested, kind) for kind in _KINDS)
    older = rope_parameters(c.model_copy(update={"rope_parameters": None}), theta=0.0)
    older["rope_theta"] = older["rope_theta"] or None
    full = merge(older, full, "the older keys", "rope_parameters.full_attention")
    sliding = merge(
        {"rope_theta": c.rope_local_base_freq}, sliding, "the older keys", "rope_parameters.sliding_attention"
    )
    full.setdefault("rope_theta", 1_000_000.0)
    sliding.setdefault("rope_theta", 10_000.0)
    return (
        rope_spec(full, head_dim=c.head_dim, max_position=c.max_position_embeddings),
        rope_spec(sliding, head_dim=c.head_dim, max_position=c.max_position_embeddings),
    )


def _section(nested: dict[str, Any] | None, kind: str) -> dict[str, Any]:
    section = (nested or {}).get(kind) or {}
    if not isinstance(section, dict):
        raise ConfigError(f"rope_parameters.{kind} is {section!r:.100}; an object is wanted")
    return section


def read_decoder(raw: Mapping[str, object], *, where: str = "") -> tuple[DecoderSpec, str]:
    """Decoder and dtype from a text config; `where` prefixes key names in errors."""
    c = read_config(Gemma3TextConfig, raw, ignored=("_sliding_window_pattern",), where=where)
    head_dim = head_dim_of(c.hidden_size, c.num_attention_heads, c.head_dim)
    attention = AttentionSpec(
        heads=c.num_attention_heads,
        kv_heads=kv_heads_of(c.num_attention_heads, c.num_key_value_heads),
        head_dim=head_dim,
        scale=c.query_pre_attn_scalar**-0.5,
        rope=FULL,
        softcap=c.attn_logit_softcapping or 0.0,
        q_norm=True,
        k_norm=True,
        qkv_bias=c.attention_bias,
        o_bias=c.attention_bias,
    )
    local = replace(attention, rope=SLIDING, window=c.sliding_window or 0)
    mlp = MlpSpec(c.intermediate_size, activation(c.hidden_activation, f"{where}hidden_activation"))
    decoder = DecoderSpec(
        vocab=c.vocab_size,
        hidden=c.hidden_size,
        layers=tuple(
            LayerSpec(local if is_sliding else attention, mlp, post_norms=True) for is_sliding in _sliding(c)
        ),
        ropes=_ropes(c),
        norm_eps=c.rms_norm_eps,
        max_context=c.max_position_embeddings,
        embed_scale=c.hidden_size**0.5,
        final_softcap=c.final_logit_softcapping or 0.0,
        tied=c.tie_word_embeddings,
    )
    return decoder, storage_dtype(c.dtype, c.torch_dtype)


def build(raw: Mapping[str, object], index: Index) -> ModelSpec:
    """Spec from config.json and the tensors of the checkpoint. Raises ConfigError."""
    decoder, dtype = read_decoder(raw)
    quantization = config_block(raw)
    return model_spec("gemma3_text", decoder, index, dtype=dtype, quantization=quantization, plus_one=True)
