"""Qwen3.5 and 3.6 with experts, multimodal (35B-A3B): the text part; the vision tower is not loaded."""

from __future__ import annotations

from collections.abc import Mapping

from saragossa.models.config_base import config_block
from saragossa.models.index import Index
from saragossa.models.qwen3_5_moe_text import build_text
from saragossa.models.spec import ModelSpec
from saragossa.models.wrapped import MEDIA_PREFIXES, Outer, unwrap

MTP = True


def build(raw: Mapping[str, object], index: Index, *, mtp: bool = False) -> ModelSpec:
    """Spec from config.json and the tensors of the checkpoint; mtp: with the MTP head.

    Raises ConfigError, and WeightsError when the head that was asked for is absent.
    """
    if "text_config" not in raw:  # mlx-lm takes a flat one
        outer = Outer(config_block(raw), ignored=MEDIA_PREFIXES)
        return build_text("qwen3_5_moe", raw, index, outer, mtp)
    text, outer = unwrap(raw, ("qwen3_5_moe_text", "qwen3_5_moe"), tied=False)
    return build_text("qwen3_5_moe", text, index, outer, mtp)
