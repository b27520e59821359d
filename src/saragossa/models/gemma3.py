"""Gemma 3, multimodal: its text part; the vision tower and the projector are not loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict

from saragossa.errors import ConfigError
from saragossa.models.config_base import Size, config_block, read_config, storage_dtype
from saragossa.models.decoder import model_spec
from saragossa.models.gemma3_text import read_decoder
from saragossa.models.index import Index
from saragossa.models.spec import ModelSpec

_VISION = (
    "vision_tower.",
    "multi_modal_projector.",
    "model.vision_tower.",
    "model.multi_modal_projector.",
)
# Images are not read, so nothing of how they are placed matters.
_IMAGE_KEYS = (
    "vision_config",
    "mm_tokens_per_image",
    "boi_token_index",
    "eoi_token_index",
    "image_token_index",
    "boi_token_id",
    "eoi_token_id",
    "image_token_id",
    "hidden_size",  # mlx-vlm repeats the text's sizes
)


class Gemma3Config(BaseModel):
    """config.json with model_type gemma3."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    text_config: dict[str, Any]
    tie_word_embeddings: bool = True
    vocab_size: Size | None = None
    torch_dtype: str | None = None
    dtype: str | None = None


def build(raw: Mapping[str, object], index: Index) -> ModelSpec:
    """Spec from config.json and the tensors of the checkpoint. Raises ConfigError."""
    c = read_config(Gemma3Config, raw, ignored=_IMAGE_KEYS)
    text = dict(c.text_config)
    kind = text.get("model_type", "gemma3_text")
    if kind != "gemma3_text":
        raise ConfigError(f"text_config.model_type is {kind!r:.50}; gemma3_text is wanted")
    if c.vocab_size is not None and text.setdefault("vocab_size", c.vocab_size) != c.vocab_size:
        raise ConfigError(f"vocab_size is {c.vocab_size}, text_config.vocab_size {text['vocab_size']}")
    decoder, text_dtype = read_decoder(text, where="text_config.")
    # The outer key decides, as in transformers.
    decoder = replace(decoder, tied=c.tie_word_embeddings)
    dtype = storage_dtype(c.dtype, c.torch_dtype, text_dtype)
    quantization = config_block(raw, text)
    return model_spec(
        "gemma3", decoder, index, dtype=dtype, quantization=quantization, plus_one=True, ignored=_VISION
    )
