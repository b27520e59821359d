"""What a model file sees of a checkpoint: names of stored tensors and their shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Stored(Protocol):
    """A stored tensor; `weights.safetensors.TensorEntry` is one."""

    @property
    def shape(self) -> tuple[int, ...]: ...


Index = Mapping[str, Stored]
