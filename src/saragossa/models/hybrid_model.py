"""What the model files of Qwen3-Next and Qwen3.5 end with: experts, the MTP head, the whole spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pydantic import Field

from saragossa.models.config_base import Size, activation, storage_dtype
from saragossa.models.decoder import model_spec, prefix_of
from saragossa.models.hybrid import HybridConfig, decoder_of, layers_of, norms_are_plus_one
from saragossa.models.index import Index
from saragossa.models.moe import MoeConfig, expert_count, is_fused, moe_spec, sparse_layers
from saragossa.models.mtp import PREFIXES as MTP_PREFIXES
from saragossa.models.mtp import add_mtp, dedicated_embeddings
from saragossa.models.mtp import prefix_of as mtp_prefix_of
from saragossa.models.spec import MlpSpec, ModelSpec, MoeSpec
from saragossa.models.wrapped import Outer


class MtpKeys(HybridConfig):
    """With the layers of the MTP head."""

    mtp_num_hidden_layers: int | None = Field(default=None, ge=0, le=64)


class ExpertKeys(MtpKeys, MoeConfig):
    """With the keys of the experts."""

    moe_intermediate_size: Size = 512
    shared_expert_intermediate_size: int = Field(default=512, ge=0, lt=1 << 31)


def dense_model(
    model_type: str, c: MtpKeys, raw: Mapping[str, object], index: Index, outer: Outer, *, mtp: bool
) -> ModelSpec:
    """Spec of a model whose layers have an MLP."""
    mlp = MlpSpec(c.intermediate_size, activation(c.hidden_act, "hidden_act"))
    said = c.mtp_num_hidden_layers
    return _model(model_type, c, raw, index, outer, lambda _: None, (lambda _: mlp) if mtp else None, said)


def expert_model(
    model_type: str,
    c: ExpertKeys,
    raw: Mapping[str, object],
    index: Index,
    outer: Outer,
    *,
    experts: int,
    mtp: bool,
    said: int | None,
    fused_delta: bool = False,
) -> ModelSpec:
    """Spec of a model with experts; experts: their number by default, said: layers of the head."""
    count, sparse = expert_count(c, experts, c.num_hidden_layers), sparse_layers(c, c.num_hidden_layers)
    prefix, shared = prefix_of(index), c.shared_expert_intermediate_size

    def moe(layer: str) -> MoeSpec:
        return moe_spec(c, c.hidden_act, experts=count, fused=is_fused(layer, index), shared=shared)

    def of_layer(i: int) -> MoeSpec | None:
        return moe(f"{prefix}layers.{i}.") if sparse[i] else None

    return _model(model_type, c, raw, index, outer, of_layer, moe if mtp else None, said, fused_delta)


def _model(
    model_type: str,
    c: HybridConfig,
    raw: Mapping[str, object],
    index: Index,
    outer: Outer,
    moe: Callable[[int], MoeSpec | None],
    head: Callable[[str], MlpSpec | MoeSpec] | None,
    said: int | None,
    fused_delta: bool = False,
) -> ModelSpec:
    """head: the MLP or the experts of the MTP head's layer with a prefix; None: without the head."""
    tied = c.tie_word_embeddings if outer.tied is None else outer.tied
    decoder = decoder_of(c, layers_of(c, moe), tied=tied)
    mtp_prefix = mtp_prefix_of(index) or MTP_PREFIXES[0]
    if head is not None:
        dedicated_embeddings(raw)
        decoder = add_mtp(decoder, c, index, said, head(f"{mtp_prefix}layers.0."), mtp_prefix)
    return model_spec(
        model_type,
        decoder,
        index,
        dtype=storage_dtype(*outer.dtypes, c.dtype, c.torch_dtype),
        quantization=outer.quantization,
        plus_one=norms_are_plus_one(index, outer.quantization),
        fused_delta=fused_delta,
        mtp_prefix=mtp_prefix,
        ignored=(*outer.ignored, *(() if head is not None else MTP_PREFIXES)),
    )
