"""Mistral 7B, Nemo, Small: Llama without biases, with a sliding window on all layers or on none."""

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
from saragossa.models.decoder import model_spec
from saragossa.models.index import Index
from saragossa.models.rope import rope_parameters, rope_spec
from saragossa.models.spec import AttentionSpec, DecoderSpec, LayerSpec, MlpSpec, ModelSpec


class MistralConfig(DecoderConfig):
    """config.json with model_type mistral. A sliding_window that is left out is 4096, null is none."""

    num_key_value_heads: Count | None = 8
    head_dim: Size | None = None
    hidden_act: str = "silu"
    max_position_embeddings: Size = 131_072
    sliding_window: Size | None = 4096
    layer_types: list[str] | None = None


def build(raw: Mapping[str, object], index: Index) -> ModelSpec:
    """Spec from config.json and the tensors of the checkpoint. Raises ConfigError."""
    c = read_config(MistralConfig, raw, fixed={"attention_bias": (False,), "mlp_bias": (False,)})
    sliding = sliding_layers(c.layer_types, c.num_hidden_layers)
    if sliding is not None and any(is_sliding != (c.sliding_window is not None) for is_sliding in sliding):
        raise ConfigError(
            "layer_types and sliding_window contradict each other; a mistral model has the window on all "
            "layers or (sliding_window null) on none"
        )
    head_dim = head_dim_of(c.hidden_size, c.num_attention_heads, c.head_dim)
    rope = rope_spec(rope_parameters(c), head_dim=head_dim, max_position=c.max_position_embeddings)
    attention = AttentionSpec(
        heads=c.num_attention_heads,
        kv_heads=kv_heads_of(c.num_attention_heads, c.num_key_value_heads),
        head_dim=head_dim,
        scale=head_dim**-0.5,
        rope=0,
        window=c.sliding_window or 0,
    )
    mlp = MlpSpec(c.intermediate_size, activation(c.hidden_act, "hidden_act"))
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
    return model_spec("mistral", decoder, index, dtype=dtype, quantization=config_block(raw))
