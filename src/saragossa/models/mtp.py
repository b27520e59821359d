"""The multi-token prediction head that Qwen3-Next and Qwen3.5 checkpoints may carry beside the decoder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from saragossa.errors import ConfigError, WeightsError
from saragossa.models.hybrid import HybridConfig, attention_of
from saragossa.models.index import Index
from saragossa.models.spec import DecoderSpec, LayerSpec, MlpSpec, MoeSpec, MtpSpec

# In the order of preference; all are known, and left alone when the head is not asked for.
PREFIXES = (
    "mtp.",
    "model.mtp.",
    "language_model.mtp.",
    "model.language_model.mtp.",
    "language_model.model.mtp.",
)


def prefix_of(index: Index) -> str | None:
    """Prefix of the head's tensors, None in a checkpoint without one."""
    return next((prefix for prefix in PREFIXES if f"{prefix}fc.weight" in index), None)


def add_mtp(
    decoder: DecoderSpec, c: HybridConfig, index: Index, said: int | None, mlp: MlpSpec | MoeSpec, prefix: str
) -> DecoderSpec:
    """The decoder with its head, whose layers attend.

    said: how many layers the config names, None: as many as there are. Raises ConfigError or WeightsError.
    """
    if said == 0:
        raise ConfigError("mtp_num_hidden_layers is 0: this model has no MTP head, which was asked for")
    if f"{prefix}fc.weight" not in index:
        raise WeightsError(
            f"the MTP head was asked for, but its weights are absent: no {prefix}fc.weight",
            cure="use a checkpoint that keeps them (mlx-lm drops them), or do without the head",
        )
    pattern = re.compile(rf"{re.escape(prefix)}layers\.(\d+)\.")
    found = {int(match[1]) for name in index if (match := pattern.match(name))}
    count = said or len(found) or 1
    moe = mlp if isinstance(mlp, MoeSpec) else None
    layer = LayerSpec(attention_of(c), mlp if isinstance(mlp, MlpSpec) else None, moe=moe)
    return replace(decoder, mtp=MtpSpec((layer,) * count))


def dedicated_embeddings(raw: Mapping[str, object]) -> None:
    """Raises ConfigError for a head with an embedding of its own."""
    if raw.get("mtp_use_dedicated_embeddings"):
        raise ConfigError("mtp_use_dedicated_embeddings is true; only false is supported")
