"""Qwen3-Next (80B-A3B): gated delta nets and gated attention, experts in every layer, one shared."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from saragossa.models.config_base import Count, Size, config_block, read_config
from saragossa.models.hybrid import FIXED, IGNORED
from saragossa.models.hybrid_model import ExpertKeys, expert_model
from saragossa.models.index import Index
from saragossa.models.moe import MOE_IGNORED
from saragossa.models.spec import ModelSpec
from saragossa.models.wrapped import Outer

MTP = True


class Qwen3NextConfig(ExpertKeys):
    """config.json with model_type qwen3_next."""

    intermediate_size: Size = 5632  # of layers without experts
    num_experts_per_tok: Count = 10
    num_nextn_predict_layers: int | None = Field(default=None, ge=0, le=64)


def build(raw: Mapping[str, object], index: Index, *, mtp: bool = False) -> ModelSpec:
    """Spec from config.json and the tensors of the checkpoint; mtp: with the MTP head.

    Raises ConfigError, and WeightsError when the head that was asked for is absent.
    """
    c = read_config(Qwen3NextConfig, raw, ignored=(*IGNORED, *MOE_IGNORED), fixed=FIXED)
    said = c.mtp_num_hidden_layers if c.num_nextn_predict_layers is None else c.num_nextn_predict_layers
    outer = Outer(config_block(raw))
    return expert_model("qwen3_next", c, raw, index, outer, experts=512, mtp=mtp, said=said, fused_delta=True)
