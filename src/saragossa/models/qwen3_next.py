"""Qwen3-Next (80B-A3B): gated delta nets and gated attention, experts in every layer, one shared."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from saragossa.models.config_base import Size, config_block, read_config, storage_dtype
from saragossa.models.decoder import model_spec, prefix_of
from saragossa.models.hybrid import (
    FIXED,
    IGNORED,
    HybridConfig,
    decoder_of,
    layers_of,
    norms_are_plus_one,
)
from saragossa.models.index import Index
from saragossa.models.moe import MOE_IGNORED, MoeConfig, expert_count, is_fused, moe_spec, sparse_layers
from saragossa.models.mtp import PREFIXES as MTP_PREFIXES
from saragossa.models.mtp import add_mtp, dedicated_embeddings
from saragossa.models.mtp import prefix_of as mtp_prefix_of
from saragossa.models.spec import ModelSpec, MoeSpec

MTP = True


class Qwen3NextConfig(HybridConfig, MoeConfig):
    """config.json with model_type qwen3_next."""

    intermediate_size: Size = 5632  # of layers without experts
    num_experts_per_tok: int = Field(default=10, gt=0, le=4096)
    moe_intermediate_size: Size = 512
    shared_expert_intermediate_size: int = Field(default=512, ge=0)
    num_nextn_predict_layers: int | None = Field(default=None, ge=0, le=64)
    mtp_num_hidden_layers: int | None = Field(default=None, ge=0, le=64)


def build(raw: Mapping[str, object], index: Index, *, mtp: bool = False) -> ModelSpec:
    """Spec from config.json and the tensors of the checkpoint; mtp: with the MTP head.

    Raises ConfigError, and WeightsError when the head that was asked for is absent.
    """
    c = read_config(Qwen3NextConfig, raw, ignored=(*IGNORED, *MOE_IGNORED), fixed=FIXED)
    experts, prefix = expert_count(c, 512, c.num_hidden_layers), prefix_of(index)
    sparse = sparse_layers(c, c.num_hidden_layers)

    def moe(layer: str) -> MoeSpec:
        shared = c.shared_expert_intermediate_size
        return moe_spec(c, c.hidden_act, experts=experts, fused=is_fused(layer, index), shared=shared)

    layers = layers_of(c, lambda i: moe(f"{prefix}layers.{i}.") if sparse[i] else None)
    decoder = decoder_of(c, layers, tied=c.tie_word_embeddings)
    mtp_prefix = mtp_prefix_of(index) or MTP_PREFIXES[0]
    if mtp:
        dedicated_embeddings(raw)
        said = c.mtp_num_hidden_layers if c.num_nextn_predict_layers is None else c.num_nextn_predict_layers
        decoder = add_mtp(decoder, c, index, said, moe(f"{mtp_prefix}layers.0."), mtp_prefix)
    quantization = config_block(raw)
    return model_spec(
        "qwen3_next",
        decoder,
        index,
        dtype=storage_dtype(c.dtype, c.torch_dtype),
        quantization=quantization,
        plus_one=norms_are_plus_one(index, quantization),
        fused_delta=True,
        mtp_prefix=mtp_prefix,
        ignored=() if mtp else MTP_PREFIXES,
    )
