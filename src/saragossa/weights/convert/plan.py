"""What a conversion is going to write, decided before anything is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saragossa.weights.quantization import Format

from .writer import Job


@dataclass(frozen=True, slots=True)
class Plan:
    """The output folder.

    jobs: the tensors; json_files: values by file name; copies: files taken over as they are, by
    their name in the output; skipped: modules left unquantised because the group size does not
    divide their rows.
    """

    jobs: Sequence[Job]
    json_files: Mapping[str, Any]
    copies: Mapping[str, Path] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()


def quantization_block(of: Format) -> dict[str, Any]:
    """config.json's `quantization` as mlx-lm writes it."""
    return {"group_size": of.group_size, "bits": of.bits, "mode": of.mode}
