"""The typed specification that a model file hands to the core: plain values, no behaviour.

A model file turns a checkpoint's config.json into a `ModelSpec`. Nothing below the model files
knows a model's name. The C++ side reads these dataclasses by field name
(csrc/python/bind_spec.cpp), so a field renamed here is renamed there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Activation = Literal["silu", "gelu_tanh"]


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary embedding, half-split (NeoX) pairing: channel i rotates with i + dims / 2.

    `inv_freq` has dims / 2 entries in float32 precision; channels from `dims` on are left alone.
    `attention_factor` multiplies cos and sin (YaRN).
    """

    dims: int
    inv_freq: tuple[float, ...]
    attention_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """Grouped-query attention of one layer."""

    heads: int
    kv_heads: int
    head_dim: int
    scale: float  # multiplies q.k, e.g. head_dim ** -0.5
    rope: int  # index into DecoderSpec.ropes
    window: int = 0  # keys a query sees, itself included; 0: all
    softcap: float = 0.0  # cap * tanh(score / cap); 0: none
    q_norm: bool = False  # RMS norm over head_dim before rope
    k_norm: bool = False
    qkv_bias: bool = False
    o_bias: bool = False


@dataclass(frozen=True, slots=True)
class MlpSpec:
    """Gated MLP: down(act(gate(x)) * up(x))."""

    intermediate: int
    activation: Activation = "silu"
    bias: bool = False


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """Pre-norm block; `post_norms` adds Gemma's norms on each branch's output."""

    attention: AttentionSpec
    mlp: MlpSpec
    post_norms: bool = False


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """A dense decoder: embedding, layers, final norm, head."""

    vocab: int
    hidden: int
    layers: tuple[LayerSpec, ...]
    ropes: tuple[RopeSpec, ...]
    norm_eps: float
    max_context: int  # max_position_embeddings
    embed_scale: float = 1.0  # multiplies the embedding
    final_softcap: float = 0.0  # on the logits; 0: none
    tied: bool = False  # the head is the embedding


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor that the decoder needs.

    role: the core's name: `embed`, `norm`, `head`, `layers.{i}.{part}` with part one of
      attn_norm, q, k, v, o, q_norm, k_norm, attn_post_norm, mlp_norm, gate, up, down, mlp_post_norm;
      a linear's bias is `{role}.bias`.
    name: the checkpoint's name without the `.weight` suffix for modules (`model.layers.0.self_attn.q_proj`),
      with it for plain tensors (`model.norm.weight`, `...q_proj.bias`).
    shape: [out, in] of a linear or embedding as unquantised, [n] of a vector.
    module: a linear or embedding, which may be quantised.
    plus_one: stored as w, used as 1 + w (Gemma norms).
    """

    role: str
    name: str
    shape: tuple[int, ...]
    module: bool = False
    plus_one: bool = False


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What a model file returns."""

    model_type: str
    decoder: DecoderSpec
    tensors: tuple[TensorSpec, ...]
    # Checkpoint tensors that are known and not needed (vision towers, rotary buffers): prefixes.
    ignored_prefixes: tuple[str, ...] = ()
    # The checkpoint may ship a head although it is tied: tied wins, a warning if the values differ.
    tied_head_name: str | None = None
    quantization: Mapping[str, object] | None = field(default=None, hash=False)
    dtype: str = "bfloat16"  # config's torch_dtype / dtype
