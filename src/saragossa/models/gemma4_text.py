"""Gemma 4, text: Gemma 3's norms without the +1; head size, rope and key heads of their own for full layers.

What else differs: values are normed, and in full layers may be the keys (attention_k_eq_v); the last layers
may take an earlier one's keys and values; experts stand beside the MLP; small models feed each layer an
embedding of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from saragossa.errors import ConfigError
from saragossa.models.config_base import (
    Count,
    DecoderConfig,
    Size,
    Softcap,
    activation,
    config_block,
    read_config,
    storage_dtype,
)
from saragossa.models.decoder import model_spec, prefix_of
from saragossa.models.gemma4_layers import Gemma4Layers
from saragossa.models.index import Index
from saragossa.models.moe import checked_count, is_fused
from saragossa.models.spec import DecoderSpec, LayerSpec, MlpSpec, ModelSpec, MoeSpec
from saragossa.models.wrapped import MEDIA_PREFIXES, Outer

_FIXED: Mapping[str, tuple[object, ...]] = {
    "use_bidirectional_attention": (None, False, "vision"),  # images only
    "attention_bias": (False,),
    "rope_scaling": (None,),
    "rope_traditional": (False,),
    "attn_logit_softcapping": (None,),
}


class Gemma4TextConfig(DecoderConfig):
    """config.json with model_type gemma4_text, or text_config of gemma4. Defaults are transformers'."""

    vocab_size: Size = 262_144
    hidden_size: Size = 2304
    intermediate_size: Size = 9216
    num_hidden_layers: Count = 30
    num_attention_heads: Count = 8
    num_key_value_heads: Count = 4
    head_dim: Size = 256
    hidden_activation: str = "gelu_pytorch_tanh"
    max_position_embeddings: Size = 131_072
    tie_word_embeddings: bool = True
    sliding_window: Size = 512
    sliding_window_pattern: Size | None = None  # every n-th layer is full; older form of layer_types
    layer_types: list[str] | None = None
    per_layer_config: dict[str, dict[str, Any]] | None = None  # sizes of single layers
    global_head_dim: Size | None = None  # older form: of full layers
    num_global_key_value_heads: Count | None = None
    final_logit_softcapping: Softcap | None = None
    attention_k_eq_v: bool = False
    num_kv_shared_layers: int = Field(default=0, ge=0)
    use_double_wide_mlp: bool = False
    vocab_size_per_layer_input: Size = 262_144
    hidden_size_per_layer_input: int | None = Field(default=256, ge=0)
    enable_moe_block: bool = False
    num_experts: Count | None = None
    num_local_experts: Count | None = None
    top_k_experts: Count | None = None
    num_experts_per_tok: Count | None = None
    moe_intermediate_size: Size | None = None


def _same(c: Gemma4TextConfig, left: str, right: str) -> int | None:
    """A number with two spellings."""
    a, b = getattr(c, left), getattr(c, right)
    if a is not None and b is not None and a != b:
        raise ConfigError(f"{left} is {a} and {right} {b}; they must be equal")
    value: int | None = a if a is not None else b
    return value


def _moe(c: Gemma4TextConfig, fused: bool) -> MoeSpec | None:
    if not c.enable_moe_block:
        return None
    experts, top_k = (
        _same(c, "num_experts", "num_local_experts"),
        _same(c, "top_k_experts", "num_experts_per_tok"),
    )
    for key, value in (
        ("num_experts", experts),
        ("top_k_experts", top_k),
        ("moe_intermediate_size", c.moe_intermediate_size),
    ):
        if value is None:
            raise ConfigError(f"{key} is missing, but enable_moe_block is true")
    assert experts is not None
    assert top_k is not None
    assert c.moe_intermediate_size is not None
    if top_k > experts:
        raise ConfigError(f"top_k_experts is {top_k}, there are {experts} experts")
    return MoeSpec(
        checked_count(experts, c.num_hidden_layers),
        top_k,
        c.moe_intermediate_size,
        activation(c.hidden_activation, "hidden_activation"),
        fused_gate_up=fused,
        router_norm=True,
    )


def _decoder(c: Gemma4TextConfig, index: Index, *, tied: bool, where: str) -> DecoderSpec:
    kinds = Gemma4Layers(c)
    act = activation(c.hidden_activation, f"{where}hidden_activation")
    width = c.hidden_size_per_layer_input or 0
    prefix = prefix_of(index)

    def layer(i: int) -> LayerSpec:
        attention = kinds.attention(i)
        wide = c.use_double_wide_mlp and attention.kv_from is not None
        return LayerSpec(
            attention,
            MlpSpec(c.intermediate_size * (2 if wide else 1), act),
            post_norms=True,
            moe=_moe(c, is_fused(f"{prefix}layers.{i}.", index, gemma=True)),
            per_layer_input=width,
            layer_scalar=True,
        )

    return DecoderSpec(
        vocab=c.vocab_size,
        hidden=c.hidden_size,
        layers=tuple(layer(i) for i in range(c.num_hidden_layers)),
        ropes=kinds.ropes,
        norm_eps=c.rms_norm_eps,
        max_context=c.max_position_embeddings,
        embed_scale=c.hidden_size**0.5,
        final_softcap=c.final_logit_softcapping or 0.0,
        tied=tied,
        per_layer_vocab=c.vocab_size_per_layer_input if width else 0,
    )


def build_text(
    model_type: str,
    raw: Mapping[str, object],
    index: Index,
    outer: Outer,
    *,
    config: type[Gemma4TextConfig] = Gemma4TextConfig,
    fixed: Mapping[str, tuple[object, ...]] | None = None,
) -> ModelSpec:
    """Spec from a text config and what is said around it."""
    c = read_config(config, raw, fixed={**_FIXED, **(fixed or {})}, where=outer.where)
    tied = c.tie_word_embeddings if outer.tied is None else outer.tied
    return model_spec(
        model_type,
        _decoder(c, index, tied=tied, where=outer.where),
        index,
        dtype=storage_dtype(*outer.dtypes, c.dtype, c.torch_dtype),
        quantization=outer.quantization,
        ignored=outer.ignored,
    )


def build(raw: Mapping[str, object], index: Index) -> ModelSpec:
    """Spec from config.json and the tensors of the checkpoint. Raises ConfigError."""
    return build_text("gemma4_text", raw, index, Outer(config_block(raw), ignored=MEDIA_PREFIXES))
