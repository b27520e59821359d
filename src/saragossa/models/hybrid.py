"""What Qwen3-Next and Qwen3.5 share: gated delta nets with a gated full attention every few layers.

Norms are stored as w - 1 in Hugging Face's files and as w in MLX's, which nothing in config.json says. The
files differ in the convolution too ([channels, 1, width] against [channels, width, 1]), so that decides, as
in mlx-lm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pydantic import Field

from saragossa.errors import ConfigError
from saragossa.models.config_base import (
    Count,
    DecoderConfig,
    Size,
    activation,
    head_dim_of,
    kv_heads_of,
)
from saragossa.models.decoder import prefix_of
from saragossa.models.index import Index
from saragossa.models.rope import rope_parameters, rope_spec
from saragossa.models.spec import AttentionSpec, DecoderSpec, DeltaSpec, LayerSpec, MlpSpec, MoeSpec, RopeSpec
from saragossa.models.tensors import is_mlx_conv

MOST_CONV_WIDTH = 16  # kMostConvWidth of csrc/op_types.h
FULL, LINEAR = "full_attention", "linear_attention"
IGNORED = ("mamba_ssm_dtype", "mtp_use_dedicated_embeddings")  # the state is float32 here
FIXED: Mapping[str, tuple[object, ...]] = {
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "use_sliding_window": (False,),
    "sliding_window": (None,),
    "attn_output_gate": (True,),
    "output_gate_type": ("swish", "silu", None),  # of the delta nets
}


class HybridConfig(DecoderConfig):
    """config.json, or text_config, of a model with gated delta nets. Defaults are transformers'."""

    num_attention_heads: Count = 16
    num_key_value_heads: Count | None = 2
    head_dim: Size | None = 256
    hidden_act: str = "silu"
    max_position_embeddings: Size = 32_768
    linear_conv_kernel_dim: int = Field(default=4, ge=2, le=MOST_CONV_WIDTH)
    linear_key_head_dim: Size = 128
    linear_value_head_dim: Size = 128
    linear_num_key_heads: Count = 16
    linear_num_value_heads: Count = 32
    layer_types: list[str] | None = None
    full_attention_interval: Count | None = None  # older form of layer_types


def full_layers(c: HybridConfig) -> list[bool]:
    """Whether a layer attends; the others are delta nets. Raises ConfigError when both forms differ."""
    layers = c.num_hidden_layers
    by_interval = [(i + 1) % (c.full_attention_interval or 4) == 0 for i in range(layers)]
    if c.layer_types is None:
        return by_interval
    for kind in c.layer_types:
        if kind not in (FULL, LINEAR):
            raise ConfigError(f"layer_types has {kind!r:.50}; supported: {FULL}, {LINEAR}")
    if len(c.layer_types) != layers:
        raise ConfigError(f"layer_types has {len(c.layer_types)} entries, num_hidden_layers is {layers}")
    full = [kind == FULL for kind in c.layer_types]
    if c.full_attention_interval is not None and full != by_interval:
        raise ConfigError(
            f"layer_types and full_attention_interval {c.full_attention_interval} contradict each other"
        )
    return full


def attention_of(c: HybridConfig) -> AttentionSpec:
    head_dim = head_dim_of(c.hidden_size, c.num_attention_heads, c.head_dim)
    return AttentionSpec(
        heads=c.num_attention_heads,
        kv_heads=kv_heads_of(c.num_attention_heads, c.num_key_value_heads),
        head_dim=head_dim,
        scale=head_dim**-0.5,
        rope=0,
        q_norm=True,
        k_norm=True,
        gate=True,
    )


def delta_of(c: HybridConfig) -> DeltaSpec:
    keys, values = c.linear_num_key_heads, c.linear_num_value_heads
    if values % keys:
        raise ConfigError(f"linear_num_value_heads {values} is no multiple of linear_num_key_heads {keys}")
    return DeltaSpec(
        keys, values, c.linear_key_head_dim, c.linear_value_head_dim, conv_width=c.linear_conv_kernel_dim
    )


def rope_of(c: HybridConfig) -> RopeSpec:
    parameters = rope_parameters(c, partial=0.25)
    head_dim = head_dim_of(c.hidden_size, c.num_attention_heads, c.head_dim)
    return rope_spec(parameters, head_dim=head_dim, max_position=c.max_position_embeddings, mrope=True)


def layers_of(c: HybridConfig, moe: Callable[[int], MoeSpec | None]) -> tuple[LayerSpec, ...]:
    """moe: the experts of a layer, None where it has an MLP."""
    attention, delta = attention_of(c), delta_of(c)
    mlp = MlpSpec(c.intermediate_size, activation(c.hidden_act, "hidden_act"))

    def layer(i: int, full: bool) -> LayerSpec:
        experts = moe(i)
        return LayerSpec(
            attention if full else None,
            mlp if experts is None else None,
            delta=None if full else delta,
            moe=experts,
        )

    return tuple(layer(i, full) for i, full in enumerate(full_layers(c)))


def decoder_of(c: HybridConfig, layers: tuple[LayerSpec, ...], *, tied: bool) -> DecoderSpec:
    return DecoderSpec(
        vocab=c.vocab_size,
        hidden=c.hidden_size,
        layers=layers,
        ropes=(rope_of(c),),
        norm_eps=c.rms_norm_eps,
        max_context=c.max_position_embeddings,
        tied=tied,
    )


def norms_are_plus_one(index: Index, quantization: Mapping[str, object] | None) -> bool:
    """Whether norms are stored as w - 1. Without a convolution: not in a quantised or MLX-named file."""
    prefix = prefix_of(index)
    convs = [name for name in index if name.startswith(prefix) and name.endswith("linear_attn.conv1d.weight")]
    if convs:
        return not all(is_mlx_conv(name, index) for name in convs)
    return quantization is None and prefix != "language_model.model."
