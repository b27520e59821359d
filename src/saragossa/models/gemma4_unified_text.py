"""Gemma 4 unified (12B), text: Gemma 4 without experts and without per-layer inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from saragossa.models.config_base import Size, config_block
from saragossa.models.gemma4_text import Gemma4TextConfig, build_text
from saragossa.models.index import Index
from saragossa.models.spec import ModelSpec
from saragossa.models.wrapped import MEDIA_PREFIXES, Outer


class Gemma4UnifiedTextConfig(Gemma4TextConfig):
    """config.json with model_type gemma4_unified_text, or text_config of gemma4_unified."""

    max_position_embeddings: Size = 262_144
    sliding_window: Size = 1024
    hidden_size_per_layer_input: int | None = Field(default=0, ge=0, le=0)
    enable_moe_block: Literal[False] = False


def build_unified(model_type: str, raw: Mapping[str, object], index: Index, outer: Outer) -> ModelSpec:
    """Spec from a text config and what is said around it."""
    return build_text(model_type, raw, index, outer, config=Gemma4UnifiedTextConfig)


def build(raw: Mapping[str, object], index: Index) -> ModelSpec:
    """Spec from config.json and the tensors of the checkpoint. Raises ConfigError."""
    return build_unified("gemma4_unified_text", raw, index, Outer(config_block(raw), ignored=MEDIA_PREFIXES))
