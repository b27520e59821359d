"""Qwen2 and Qwen2.5: Llama with biases on q, k and v; upper layers may have a sliding window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

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


class Qwen2Config(DecoderConfig):
    """config.json with model_type qwen2; qwen3 has these keys too."""

    num_key_value_heads: Count | None = 32
    head_dim: Size | None = None
    hidden_act: str = "silu"
    max_position_embeddings: Size = 32_768
    use_sliding_window: bool = False
    sliding_window: Size | None = 4096
    max_window_layers: int = 28  # layers below it see everything
    layer_types: list[str] | None = None


def windows(c: Qwen2Config) -> list[int]:
    """Window of each layer, 0 for full attention; `layer_types` wins over `max_window_layers`."""
    window = (c.sliding_window or 0) if c.use_sliding_window else 0
    sliding = sliding_layers(c.layer_types, c.num_hidden_layers)
    if sliding is None:
        sliding = [window > 0 and i >= c.max_window_layers for i in range(c.num_hidden_layers)]
    if any(sliding) and not window:
        raise ConfigError(
            "layer_types has sliding_attention, but use_sliding_window is false or sliding_window null"
        )
    return [window if is_sliding else 0 for is_sliding in sliding]


def build(raw: Mapping[str, object], index: Index) -> ModelSpec:
    """Spec from config.json and the tensors of the checkpoint. Raises ConfigError."""
    c = read_config(Qwen2Config, raw, fixed={"attention_bias": (True,), "mlp_bias": (False,)})
    head_dim = head_dim_of(c.hidden_size, c.num_attention_heads, c.head_dim)
    rope = rope_spec(rope_parameters(c), head_dim=head_dim, max_position=c.max_position_embeddings)
    attention = AttentionSpec(
        heads=c.num_attention_heads,
        kv_heads=kv_heads_of(c.num_attention_heads, c.num_key_value_heads),
        head_dim=head_dim,
        scale=head_dim**-0.5,
        rope=0,
        qkv_bias=True,
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
    return model_spec("qwen2", decoder, index, dtype=dtype, quantization=config_block(raw))
