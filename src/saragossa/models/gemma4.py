"""Gemma 4, multimodal (E2B, E4B, 26B-A4B, 31B): its text part; vision and audio towers are not loaded."""

from __future__ import annotations

from collections.abc import Mapping

from saragossa.models.gemma4_text import build_text
from saragossa.models.index import Index
from saragossa.models.spec import ModelSpec
from saragossa.models.wrapped import unwrap


def build(raw: Mapping[str, object], index: Index) -> ModelSpec:
    """Spec from config.json and the tensors of the checkpoint. Raises ConfigError."""
    text, outer = unwrap(raw, ("gemma4_text",), tied=True)
    return build_text("gemma4", text, index, outer)
