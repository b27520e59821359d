"""Multimodal configs: the text model's part, and what the outer keys add to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from saragossa.errors import ConfigError
from saragossa.models.config_base import Size, config_block, read_config

# Images, video and sound are not read, so nothing of how they are placed matters.
_MEDIA_KEYS = (
    "vision_config", "audio_config", "hidden_size",  # mlx-vlm repeats the text's sizes
    "image_token_id", "video_token_id", "audio_token_id", "image_token_index", "video_token_index",
    "audio_token_index", "vision_start_token_id", "vision_end_token_id", "vision_token_id",
    "boi_token_id", "eoi_token_id", "boi_token_index", "eoi_token_index", "boa_token_id", "eoa_token_id",
    "boa_token_index", "eoa_token_index", "vision_soft_tokens_per_image", "audio_soft_tokens_per_image",
    "language_model_only",
)  # fmt: skip
_MEDIA = (
    "visual.", "vision_tower.", "vision_embedder.", "multi_modal_projector.", "audio_tower.", "embed_audio.",
    "embed_vision.",
)  # fmt: skip
# Prefixes of the towers' tensors.
MEDIA_PREFIXES = tuple(
    f"{outer}{name}" for outer in ("", "model.", "model.language_model.") for name in _MEDIA
)


@dataclass(frozen=True, slots=True)
class Outer:
    """What stands around a text config. tied: None where that says it; dtypes: the first given counts."""

    quantization: Mapping[str, object] | None
    tied: bool | None = None
    dtypes: tuple[str | None, ...] = ()
    ignored: tuple[str, ...] = ()
    where: str = ""


class _OuterConfig(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    text_config: dict[str, Any]
    tie_word_embeddings: bool | None = None
    vocab_size: Size | None = None
    torch_dtype: str | None = None
    dtype: str | None = None


def unwrap(
    raw: Mapping[str, object], text_types: Collection[str], *, tied: bool
) -> tuple[dict[str, Any], Outer]:
    """The text config of a multimodal config.json, and what the outer keys say.

    text_types: accepted text_config.model_type, the default first; tied: where the outer config does not say.
    """
    c = read_config(_OuterConfig, raw, ignored=_MEDIA_KEYS)
    text = dict(c.text_config)
    default = next(iter(text_types))
    kind = text.get("model_type", default)
    if kind not in text_types:
        raise ConfigError(f"text_config.model_type is {kind!r:.50}; {default} is wanted")
    if c.vocab_size is not None and text.setdefault("vocab_size", c.vocab_size) != c.vocab_size:
        raise ConfigError(f"vocab_size is {c.vocab_size}, text_config.vocab_size {text['vocab_size']}")
    # The outer key decides, as in transformers; without it the text's, as in mlx-lm.
    outer_tied = c.tie_word_embeddings
    if outer_tied is None and "tie_word_embeddings" not in text:
        outer_tied = tied
    return text, Outer(
        quantization=config_block(raw, text),
        tied=outer_tied,
        dtypes=(c.dtype, c.torch_dtype),
        ignored=MEDIA_PREFIXES,
        where="text_config.",
    )
