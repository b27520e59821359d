"""Experts in the configs of Qwen3 and later, in the older keys and in transformers 5's."""

from __future__ import annotations

from pydantic import BaseModel, Field

from saragossa.errors import ConfigError
from saragossa.models.config_base import Count, Size, activation
from saragossa.models.experts import expert_form
from saragossa.models.index import Index
from saragossa.models.spec import MoeSpec

_MOST = 1 << 18  # experts of all layers; published models have up to 31 thousand
# Training only.
MOE_IGNORED = ("output_router_logits", "router_aux_loss_coef", "router_jitter_noise")


class MoeConfig(BaseModel):
    """Keys of the experts; a model file sets its own defaults."""

    num_experts: Count | None = None
    num_local_experts: Count | None = None  # transformers 5 writes this one
    num_experts_per_tok: Count = 8
    moe_intermediate_size: Size = 768
    norm_topk_prob: bool = True
    decoder_sparse_step: int = Field(default=1, ge=1)
    mlp_only_layers: list[int] | None = None


def expert_count(c: MoeConfig, default: int, layers: int) -> int:
    """num_experts in either spelling. Raises ConfigError when they differ."""
    left, right = c.num_experts, c.num_local_experts
    if left is not None and right is not None and left != right:
        raise ConfigError(f"num_experts is {left} and num_local_experts {right}; they must be equal")
    return checked_count(left or right or default, layers)


def checked_count(experts: int, layers: int) -> int:
    """`experts`, unless a list of all of them would not be sane."""
    if experts * layers > _MOST:
        raise ConfigError(f"{layers} layers of {experts} experts each; supported are {_MOST} experts in all")
    return experts


def sparse_layers(c: MoeConfig, layers: int) -> list[bool]:
    """Whether a layer has experts; the others have an MLP."""
    dense = set(c.mlp_only_layers or ())
    if wrong := sorted(i for i in dense if not 0 <= i < layers):
        raise ConfigError(f"mlp_only_layers has {wrong[0]}; layers are 0 to {layers - 1}")
    return [i not in dense and (i + 1) % c.decoder_sparse_step == 0 for i in range(layers)]


def moe_spec(c: MoeConfig, hidden_act: str, *, experts: int, fused: bool, shared: int = 0) -> MoeSpec:
    """The experts of a layer; shared: width of the one that all tokens use. Raises ConfigError."""
    if c.num_experts_per_tok > experts:
        raise ConfigError(f"num_experts_per_tok is {c.num_experts_per_tok}, there are {experts} experts")
    return MoeSpec(
        experts=experts,
        top_k=c.num_experts_per_tok,
        intermediate=c.moe_intermediate_size,
        activation=activation(hidden_act, "hidden_act"),
        renormalize=c.norm_topk_prob,
        shared_intermediate=shared,
        shared_gate=shared > 0,
        fused_gate_up=fused,
    )


def is_fused(layer: str, index: Index, *, gemma: bool = False) -> bool:
    """Whether the experts of the layer with this prefix keep gate and up in one tensor."""
    return expert_form(layer, gemma).is_fused(index)
