"""Qwen3.5 and 3.6 with experts, text: Qwen3-Next's layers; the delta nets' projections are apart."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from saragossa.models.config_base import Count, Size, config_block, read_config, storage_dtype
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
from saragossa.models.wrapped import MEDIA_PREFIXES, Outer

MTP = True


class Qwen35MoeTextConfig(HybridConfig, MoeConfig):
    """config.json with model_type qwen3_5_moe_text, or text_config of qwen3_5_moe."""

    vocab_size: Size = 248_320
    hidden_size: Size = 2048
    intermediate_size: Size = 5632  # of layers without experts, which published models do not have
    num_hidden_layers: Count = 40
    moe_intermediate_size: Size = 512
    shared_expert_intermediate_size: int = Field(default=512, ge=0)
    mtp_num_hidden_layers: int | None = Field(default=None, ge=0, le=64)


def build_text(
    model_type: str, raw: Mapping[str, object], index: Index, outer: Outer, mtp: bool
) -> ModelSpec:
    """Spec from a text config and what is said around it."""
    ignored = (*IGNORED, *MOE_IGNORED)
    c = read_config(Qwen35MoeTextConfig, raw, ignored=ignored, fixed=FIXED, where=outer.where)
    experts, prefix = expert_count(c, 256, c.num_hidden_layers), prefix_of(index)
    sparse = sparse_layers(c, c.num_hidden_layers)

    def moe(layer: str) -> MoeSpec:
        shared = c.shared_expert_intermediate_size
        return moe_spec(c, c.hidden_act, experts=experts, fused=is_fused(layer, index), shared=shared)

    layers = layers_of(c, lambda i: moe(f"{prefix}layers.{i}.") if sparse[i] else None)
    decoder = decoder_of(c, layers, tied=c.tie_word_embeddings if outer.tied is None else outer.tied)
    mtp_prefix = mtp_prefix_of(index) or MTP_PREFIXES[0]
    if mtp:
        dedicated_embeddings(raw)
        head = moe(f"{mtp_prefix}layers.0.")
        decoder = add_mtp(decoder, c, index, c.mtp_num_hidden_layers, head, mtp_prefix)
    quantization = outer.quantization
    return model_spec(
        model_type,
        decoder,
        index,
        dtype=storage_dtype(*outer.dtypes, c.dtype, c.torch_dtype),
        quantization=quantization,
        plus_one=norms_are_plus_one(index, quantization),
        mtp_prefix=mtp_prefix,
        ignored=(*outer.ignored, *(() if mtp else MTP_PREFIXES)),
    )


def build(raw: Mapping[str, object], index: Index, *, mtp: bool = False) -> ModelSpec:
    """Spec from config.json and the tensors of the checkpoint; mtp: with the MTP head.

    Raises ConfigError, and WeightsError when the head that was asked for is absent.
    """
    outer = Outer(config_block(raw), ignored=MEDIA_PREFIXES)
    return build_text("qwen3_5_moe_text", raw, index, outer, mtp)
