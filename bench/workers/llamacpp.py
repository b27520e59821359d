"""llama.cpp through llama-cpp-python, on a GGUF file; greedy over its logits."""

from __future__ import annotations

from typing import Any

import llama_cpp
import numpy as np
from common import Job, main


class LlamaCpp:
    """One context; the cache is cleared before a prompt."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._context = model._ctx.ctx
        self._vocab = model.n_vocab()

    def prefill(self, ids: list[int]) -> int:
        self._model.reset()
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)
        self._model.eval(ids)
        return self._argmax()

    def step(self, token: int) -> int:
        self._model.eval([token])
        return self._argmax()

    def _argmax(self) -> int:
        logits = llama_cpp.llama_get_logits_ith(self._context, -1)  # waits for the computation
        return int(np.ctypeslib.as_array(logits, shape=(self._vocab,)).argmax())


def load(job: Job) -> tuple[LlamaCpp, dict[str, Any]]:
    model = llama_cpp.Llama(
        job.model,
        n_ctx=job.context,
        n_batch=512,
        n_ubatch=512,
        n_threads=job.threads,
        n_threads_batch=job.threads,
        logits_all=False,
        verbose=False,
    )
    features = llama_cpp.llama_print_system_info().decode().replace(" = 1", "").replace(" |", ",").strip(" ,")
    return LlamaCpp(model), {"engine": f"llama-cpp-python {llama_cpp.__version__} ({features})"}


if __name__ == "__main__":
    main(load)
