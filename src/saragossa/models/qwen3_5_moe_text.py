"""Qwen3.5 and 3.6 with experts, text: Qwen3-Next's layers; the delta nets' projections are apart."""

from __future__ import annotations

from collections.abc import Mapping

from saragossa.models.config_base import Count, Size, config_block, read_config
from saragossa.models.hybrid import FIXED, IGNORED
from saragossa.models.hybrid_model import ExpertKeys, expert_model
from saragossa.models.index import Index
from saragossa.models.moe import MOE_IGNORED
from saragossa.models.spec import ModelSpec
from saragossa.models.wrapped import MEDIA_PREFIXES, Outer

MTP = True


class Qwen35MoeTextConfig(ExpertKeys):
    """config.json with model_type qwen3_5_moe_text, or text_config of qwen3_5_moe."""

    vocab_size: Size = 248_320
    hidden_size: Size = 2048
    intermediate_size: Size = 5632  # of layers without experts, which published models do not have
    num_hidden_layers: Count = 40


def build_text(
    model_type: str, raw: Mapping[str, object], index: Index, outer: Outer, mtp: bool
) -> ModelSpec:
    """Spec from a text config and what is said around it."""
    ignored = (*IGNORED, *MOE_IGNORED)
    c = read_config(Qwen35MoeTextConfig, raw, ignored=ignored, fixed=FIXED, where=outer.where)
    said = c.mtp_num_hidden_layers
    return expert_model(model_type, c, raw, index, outer, experts=256, mtp=mtp, said=said)


def build(raw: Mapping[str, object], index: Index, *, mtp: bool = False) -> ModelSpec:
    """Spec from config.json and the tensors of the checkpoint; mtp: with the MTP head.

    Raises ConfigError, and WeightsError when the head that was asked for is absent.
    """
    outer = Outer(config_block(raw), ignored=MEDIA_PREFIXES)
    return build_text("qwen3_5_moe_text", raw, index, outer, mtp)
