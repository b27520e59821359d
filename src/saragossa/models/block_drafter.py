"""DFlash block drafters (arXiv 2602.06036), first version: a checkpoint beside the model that it drafts for.

Qwen3's layers without an embedding or a head; `fc` and `hidden_norm` fuse the states behind some of the
model's layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from saragossa.errors import ConfigError
from saragossa.models.config_base import (
    Count,
    activation,
    config_block,
    head_dim_of,
    kv_heads_of,
    read_config,
    sliding_layers,
    storage_dtype,
)
from saragossa.models.index import Index
from saragossa.models.qwen3 import Qwen3Config
from saragossa.models.rope import rope_parameters, rope_spec
from saragossa.models.spec import (
    AttentionSpec,
    BlockSpec,
    DecoderSpec,
    LayerSpec,
    MlpSpec,
    ModelSpec,
    TensorSpec,
)
from saragossa.models.tensors import LayerTensors

KEY = "dflash_config"  # of config.json: what tells a drafter from a model


class _Dflash(BaseModel):
    """The block of what Qwen3 does not have. Later versions have more keys, which are refused by name."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    target_layer_ids: list[int]
    mask_token_id: int


class _Config(Qwen3Config):
    block_size: int = Field(default=16, ge=2, le=256)  # rows that every draft runs
    num_target_layers: Count | None = None
    dflash_config: dict[str, Any]


def is_block_drafter(config: Mapping[str, object]) -> bool:
    return KEY in config


def attach(target: ModelSpec, raw: Mapping[str, object], index: Index) -> tuple[ModelSpec, ModelSpec]:
    """The target with the drafter in its decoder, and the drafter's own tensors.

    raw: the drafter's config.json, index: its tensors. Raises ConfigError where both do not go together.
    """
    decoder = target.decoder
    c = read_config(_Config, raw, fixed={"mlp_bias": (False,)})
    own = read_config(_Dflash, c.dflash_config, where=f"{KEY}.")
    _check(c, own, decoder)
    head_dim = head_dim_of(c.hidden_size, c.num_attention_heads, c.head_dim)
    attention = AttentionSpec(
        heads=c.num_attention_heads,
        kv_heads=kv_heads_of(c.num_attention_heads, c.num_key_value_heads),
        head_dim=head_dim,
        scale=head_dim**-0.5,
        rope=len(decoder.ropes),
        q_norm=True,
        k_norm=True,
        qkv_bias=c.attention_bias,
        o_bias=c.attention_bias,
    )
    layer = LayerSpec(attention, MlpSpec(c.intermediate_size, activation(c.hidden_act, "hidden_act")))
    block = BlockSpec(
        (layer,) * c.num_hidden_layers, tuple(own.target_layer_ids), c.block_size, own.mask_token_id
    )
    rope = rope_spec(rope_parameters(c), head_dim=head_dim, max_position=c.max_position_embeddings)
    hidden, taps = decoder.hidden, len(block.taps)
    tensors = [
        TensorSpec("block.fc", "fc", (hidden, taps * hidden), module=True),
        TensorSpec("block.hidden_norm", "hidden_norm.weight", (hidden,)),
        TensorSpec("block.norm", "norm.weight", (hidden,)),
    ]
    for i in range(c.num_hidden_layers):
        tensors += LayerTensors(f"block.layers.{i}.", f"layers.{i}.", hidden, index).of(layer)
    decoder = replace(decoder, ropes=(*decoder.ropes, rope), block=block)
    return replace(target, decoder=decoder), ModelSpec(
        "dflash",
        decoder,
        tuple(tensors),
        quantization=config_block(raw),
        dtype=storage_dtype(c.dtype, c.torch_dtype),
    )


def _check(c: _Config, own: _Dflash, target: DecoderSpec) -> None:
    layers = len(target.layers)
    for key, found, wanted in (
        ("hidden_size", c.hidden_size, target.hidden),
        ("vocab_size", c.vocab_size, target.vocab),
        ("rms_norm_eps", c.rms_norm_eps, target.norm_eps),
        ("num_target_layers", layers if c.num_target_layers is None else c.num_target_layers, layers),
    ):
        if found != wanted:
            raise ConfigError(f"{key} is {found}, the model that it is to draft for has {wanted}")
    if any(sliding_layers(c.layer_types, c.num_hidden_layers) or ()) or c.use_sliding_window:
        raise ConfigError(
            "layer_types has sliding_attention; of block drafters only full_attention is supported"
        )
    taps = own.target_layer_ids
    if not taps or taps != sorted(set(taps)) or taps[0] < 0 or taps[-1] >= layers - 1:
        raise ConfigError(
            f"{KEY}.target_layer_ids is {taps!r:.100}; supported are ascending numbers of layers in front of"
            f" the last of {layers}"
        )
    if not 0 <= own.mask_token_id < target.vocab:
        raise ConfigError(f"{KEY}.mask_token_id is {own.mask_token_id}, the vocabulary has {target.vocab}")
