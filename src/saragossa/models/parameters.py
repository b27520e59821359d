"""How many parameters a model has, and how many of them a token goes through."""

from __future__ import annotations

import math
from typing import NamedTuple

from saragossa.models.spec import DecoderSpec, ModelSpec


class Parameters(NamedTuple):
    """total: all that are loaded; active: without the experts that a token does not choose."""

    total: int
    active: int

    def __str__(self) -> str:
        if self.active == self.total:
            return short(self.total)
        return f"{short(self.total)}, {short(self.active)} active"


def short(count: int) -> str:
    """For people: 596M, 30.5B."""
    value, unit = (count / 1e9, "B") if count >= 999_500_000 else (count / 1e6, "M")
    return f"{value:.1f}{unit}" if value < 99.95 else f"{value:.0f}{unit}"


def parameters(spec: ModelSpec) -> Parameters:
    """Counted from the tensors' shapes; a tied head is the embedding and counts once."""
    total = active = 0
    for item in spec.tensors:
        count = math.prod(item.shape)
        total += count
        active += _share(spec.decoder, item.role, count)
    return Parameters(total, active)


def _share(decoder: DecoderSpec, role: str, count: int) -> int:
    """Of `count` parameters those that a token goes through."""
    owner, _, part = role.rpartition(".")
    if not part.startswith("experts_"):
        return count
    outer, _, number = owner.rpartition(".")
    layers = decoder.mtp.layers if decoder.mtp is not None and outer.startswith("mtp") else decoder.layers
    moe = layers[int(number)].moe
    assert moe is not None
    return count // moe.experts * moe.top_k
