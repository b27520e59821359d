"""mlx-lm on MLX's CPU backend, on the same 4-bit folder, in float32: bfloat16 is slower still there."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx
from common import Job, main
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model


class Mlx:
    """A fresh cache a prompt."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._cache: Any = None

    def prefill(self, ids: list[int]) -> int:
        self._cache = make_prompt_cache(self._model)
        return self._forward(ids)

    def step(self, token: int) -> int:
        return self._forward([token])

    def _forward(self, ids: list[int]) -> int:
        logits = self._model(mx.array([ids]), cache=self._cache)
        return int(mx.argmax(logits[0, -1]).item())


def load(job: Job) -> tuple[Mlx, dict[str, Any]]:
    mx.set_default_device(mx.cpu)
    mx.disable_compile()  # on Linux it would call a compiler at run time
    model, _ = load_model(Path(job.model))
    model.set_dtype(mx.float32)
    return Mlx(model), {"engine": f"mlx {version('mlx')}, mlx-lm {version('mlx-lm')}, cpu"}


if __name__ == "__main__":
    main(load)
