"""Qwen3.5 and 3.6, dense, text: Qwen3-Next's layers with an MLP; the delta nets' projections are apart."""

from __future__ import annotations

from collections.abc import Mapping

from saragossa.models.config_base import Count, Size, config_block, read_config
from saragossa.models.hybrid import FIXED, IGNORED
from saragossa.models.hybrid_model import MtpKeys, dense_model
from saragossa.models.index import Index
from saragossa.models.spec import ModelSpec
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


class Qwen35TextConfig(MtpKeys):
    """config.json with model_type qwen3_5_text, or text_config of qwen3_5."""

    vocab_size: Size = 248_320
    hidden_size: Size = 4096
    intermediate_size: Size = 12_288
    num_hidden_layers: Count = 32
    num_key_value_heads: Count | None = 4


def build_text(
    model_type: str, raw: Mapping[str, object], index: Index, outer: Outer, mtp: bool
) -> ModelSpec:
    """Spec from a text config and what is said around it."""
    c = read_config(Qwen35TextConfig, raw, ignored=IGNORED, fixed=_FIXED, where=outer.where)
    return dense_model(model_type, c, raw, index, outer, mtp=mtp)


def build(raw: Mapping[str, object], index: Index, *, mtp: bool = False) -> ModelSpec:
    """Spec from config.json and the tensors of the checkpoint; mtp: with the MTP head.

    Raises ConfigError, and WeightsError when the head that was asked for is absent.
    """
    outer = Outer(config_block(raw), ignored=MEDIA_PREFIXES)
    return build_text("qwen3_5_text", raw, index, outer, mtp)
