"""Gemma 4 unified (12B), multimodal without towers: its text part."""

from __future__ import annotations

from collections.abc import Mapping

from saragossa.models.gemma4_unified_text import build_unified
from saragossa.models.index import Index
from saragossa.models.spec import ModelSpec
from saragossa.models.wrapped import unwrap


def build(raw: Mapping[str, object], index: Index) -> ModelSpec:
    """Spec from config.json and the tensors of the checkpoint. Raises ConfigError."""
    text, outer = unwrap(raw, ("gemma4_unified_text",), tied=True)
    return build_unified("gemma4_unified", text, index, outer)
