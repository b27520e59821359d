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
    gate: bool = False  # the output is multiplied by sigmoid of a projection of its own, `q_gate`
    v_norm: bool = False  # RMS norm of v heads, without a weight
    v_is_k: bool = False  # no v projection: v is k before its norm and rope
    kv_from: int | None = None  # keys and values are those of that layer; no k, v of its own


@dataclass(frozen=True, slots=True)
class DeltaSpec:
    """Gated delta net: causal convolution of q, k, v, then the gated delta rule (arXiv 2412.06464).

    value_heads is a multiple of key_heads; value head h goes with key head h / (value_heads / key_heads).
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_width: int

    @property
    def channels(self) -> int:
        """Of the convolution: q, k and v."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


@dataclass(frozen=True, slots=True)
class MlpSpec:
    """Gated MLP: down(act(gate(x)) * up(x))."""

    intermediate: int
    activation: Activation = "silu"
    bias: bool = False


@dataclass(frozen=True, slots=True)
class MoeSpec:
    """Mixture of gated MLPs: softmax over all experts, the top_k best, and one that all tokens use."""

    experts: int
    top_k: int
    intermediate: int  # of an expert
    activation: Activation = "silu"
    renormalize: bool = True  # the weights of the chosen experts sum to one
    shared_intermediate: int = 0  # 0: no shared expert
    shared_gate: bool = False  # it is multiplied by sigmoid of a projection to one value
    fused_gate_up: bool = False  # one tensor, an expert's gate rows, then its up rows
    router_norm: bool = False  # Gemma 4: the router has a norm of its own input, and a scale of each expert


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """Pre-norm block: attention or a delta net, then an MLP, experts, or both (Gemma 4: added).

    `post_norms` adds Gemma's norms on each branch's output.
    """

    attention: AttentionSpec | None
    mlp: MlpSpec | None
    post_norms: bool = False
    delta: DeltaSpec | None = None
    moe: MoeSpec | None = None
    per_layer_input: int = 0  # Gemma 4: width of this layer's own input of each token; 0: none
    layer_scalar: bool = False  # Gemma 4: the residual stream is multiplied by a value behind the layer


@dataclass(frozen=True, slots=True)
class MtpSpec:
    """Multi-token prediction (Qwen3.5): a token more from the last state and the next token's embedding.

    x = fc([norm(embedding), norm(hidden)]), then the layers, a norm, and the model's own head.
    """

    layers: tuple[LayerSpec, ...]


@dataclass(frozen=True, slots=True)
class BlockSpec:
    """A block drafter (DFlash, arXiv 2602.06036): layers of its own, the decoder's embedding and head.

    Its keys and values of a token come from norm(fc(states behind the decoder's layers `taps`)); of a block
    of `size` tokens, the drawn one and then `mask`, each row sees all.
    """

    layers: tuple[LayerSpec, ...]
    taps: tuple[int, ...]
    size: int
    mask: int


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """A decoder: embedding, layers, final norm, head."""

    vocab: int
    hidden: int
    layers: tuple[LayerSpec, ...]
    ropes: tuple[RopeSpec, ...]
    norm_eps: float
    max_context: int  # max_position_embeddings
    embed_scale: float = 1.0  # multiplies the embedding
    final_softcap: float = 0.0  # on the logits; 0: none
    tied: bool = False  # the head is the embedding
    per_layer_vocab: int = 0  # Gemma 4: rows of the table of per-layer inputs; 0: there are none
    mtp: MtpSpec | None = None
    block: BlockSpec | None = None


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor that the decoder needs.

    role: the core's name: `embed`, `norm`, `head`, and `layers.{i}.{part}` with these parts, a linear's bias
      being `{role}.bias`:
      both kinds of mixer: attn_norm, attn_post_norm;
      attention: q, q_gate, k, v, o, q_norm, k_norm;
      delta net: delta_qkv, delta_z, delta_b, delta_a, delta_conv [channels, width], delta_a_log,
      delta_dt_bias, delta_norm, delta_out;
      MLP: mlp_norm, gate, up, down, mlp_post_norm;
      experts, stacked along the rows: router, experts_gate, experts_up [experts * intermediate, hidden]
      (or experts_gate_up [experts * 2 * intermediate, hidden]), experts_down [experts * hidden,
      intermediate];
      shared_gate_proj, shared_up, shared_down, shared_gate [1, hidden];
      Gemma 4: router_norm, router_scale [experts], moe_norm (of the experts' input), moe_post_norm,
      dense_post_norm (of each branch), per_layer_gate, per_layer_proj, per_layer_norm, layer_scalar [1].
      Gemma 4, once: per_layer_embed, per_layer_model_proj, per_layer_model_norm.
      Block drafter: block.fc [hidden, taps * hidden], block.hidden_norm, block.norm,
      `block.layers.{i}.{part}`.
      MTP: mtp.fc [hidden, 2 * hidden], mtp.embed_norm, mtp.hidden_norm, mtp.norm, `mtp.layers.{i}.{part}`.
    name: the checkpoint's name without the `.weight` suffix for modules
      (`model.layers.0.self_attn.q_proj`), with it for plain tensors (`model.norm.weight`, `...q_proj.bias`).
    shape: [out, in] of a linear or embedding as unquantised, [n] of a vector, [channels, width] of a
      convolution.
    module: a linear or embedding, which may be quantised.
    plus_one: stored as w, used as 1 + w (Gemma norms).
    rows: of `name`, which has `stored_rows` of them, the ranges (start, count) that make up this tensor, in
      order; empty: all. More than one range is copied at load.
    stack: instead of `name`: modules whose rows follow each other (experts stored one by one); copied at
      load.
    stored: shape in the checkpoint where it differs from `shape` (a convolution, experts in three
      dimensions).
    factor: multiplies a vector at load.
    """

    role: str
    name: str
    shape: tuple[int, ...]
    module: bool = False
    plus_one: bool = False
    rows: tuple[tuple[int, int], ...] = ()
    stored_rows: int = 0
    stack: tuple[str, ...] = ()
    stored: tuple[int, ...] | None = None
    factor: float = 1.0


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
