"""Qwen3.5 and 3.6, dense, text: Qwen3-Next's layers with an MLP; the delta nets' projections are apart."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from saragossa.models.config_base import (
    Count,
    Size,
    activation,
    config_block,
    read_config,
    storage_dtype,
)
from saragossa.models.decoder import model_spec
from saragossa.models.hybrid import (
    FIXED,
    IGNORED,
    HybridConfig,
    decoder_of,
    layers_of,
    norms_are_plus_one,
)
from saragossa.models.index import Index
from saragossa.models.mtp import PREFIXES as MTP_PREFIXES
from saragossa.models.mtp import add_mtp, dedicated_embeddings
from saragossa.models.mtp import prefix_of as mtp_prefix_of
from saragossa.models.spec import MlpSpec, ModelSpec
from saragossa.models.wrapped import MEDIA_PREFIXES, Outer

MTP = True
_FIXED: Mapping[str, tuple[object, ...]] = {
    **FIXED,
    # Some writers give the dense models the keys of the others.
    "num_experts": (0, None),
    "num_local_experts": (0, None),
    "mlp_only_layers": ([], None),
    "decoder_sparse_step": (1, None),
}


class Qwen35TextConfig(HybridConfig):
    """config.json with model_type qwen3_5_text, or text_config of qwen3_5."""

    vocab_size: Size = 248_320
    hidden_size: Size = 4096
    intermediate_size: Size = 12_288
    num_hidden_layers: Count = 32
    num_key_value_heads: Count | None = 4
    mtp_num_hidden_layers: int | None = Field(default=None, ge=0, le=64)


def build_text(
    model_type: str, raw: Mapping[str, object], index: Index, outer: Outer, mtp: bool
) -> ModelSpec:
    """Spec from a text config and what is said around it."""
    c = read_config(Qwen35TextConfig, raw, ignored=IGNORED, fixed=_FIXED, where=outer.where)
    tied = c.tie_word_embeddings if outer.tied is None else outer.tied
    decoder = decoder_of(c, layers_of(c, lambda _: None), tied=tied)
    mtp_prefix = mtp_prefix_of(index) or MTP_PREFIXES[0]
    if mtp:
        dedicated_embeddings(raw)
        mlp = MlpSpec(c.intermediate_size, activation(c.hidden_act, "hidden_act"))
        decoder = add_mtp(decoder, c, index, c.mtp_num_hidden_layers, mlp, mtp_prefix)
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
    return build_text("qwen3_5_text", raw, index, outer, mtp)
