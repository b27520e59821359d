"""transformers on torch's CPU backend, on the unquantised folder."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import transformers
from common import Job, main


class Torch:
    """A fresh cache a prompt."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._cache: Any = None

    def prefill(self, ids: list[int]) -> int:
        self._cache = None
        return self._forward(ids)

    def step(self, token: int) -> int:
        return self._forward([token])

    def _forward(self, ids: list[int]) -> int:
        with torch.inference_mode():
            out = self._model(
                torch.tensor([ids]), past_key_values=self._cache, use_cache=True, logits_to_keep=1
            )
        self._cache = out.past_key_values
        return int(out.logits[0, -1].argmax())


def load(job: Job) -> tuple[Torch, dict[str, Any]]:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(job.threads)
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        job.model, dtype=getattr(torch, job.dtype)
    ).eval()
    return Torch(model), {
        "engine": f"torch {torch.__version__}, transformers {transformers.__version__}, {job.dtype}"
    }


if __name__ == "__main__":
    main(load)
