"""`saragossa doctor --fits MODEL`: will it fit, with which context; from headers, no weight is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from saragossa.errors import ParameterError

# What the process needs beside weights and cache: interpreter, tokenizer, scratch of a prefill chunk.
WORKING_BYTES = 150 << 20


@dataclass(frozen=True, slots=True)
class Fit:
    """Bytes throughout. context: the tokens asked for; max_context: how many fit, at most the model's own.

    kv_bytes: keys and values of that context (layers with a window keep little more than it);
    kv_bytes_per_token: while all layers keep a token; state_bytes: one state of the recurrent layers,
    whatever the context; mark_bytes: what a session keeps for rewinds and drafts at most; least_bytes: all
    of one token.
    """

    model: str
    model_type: str
    parameters: int
    active_parameters: int
    weight_bytes: int
    kv_bytes_per_token: int
    kv_bytes: int
    state_bytes: int
    mark_bytes: int
    least_bytes: int
    memory: int
    context: int
    model_context: int
    max_context: int

    @property
    def needed(self) -> int:
        """With the context asked for."""
        return self.weight_bytes + WORKING_BYTES + self.kv_bytes + self.state_bytes + self.mark_bytes

    @property
    def fits(self) -> bool:
        return self.context <= self.max_context


def fit(name: str, folder: Path, memory: int, context: int | None, kv_dtype: str) -> Fit:
    """Check the folder as loading would, up to the weights themselves.

    Raises ModelError, ConfigError or WeightsError as loading does, ParameterError on a context that the
    model does not have.
    """
    from saragossa.engine.memory import sequence_bytes
    from saragossa.models.parameters import parameters
    from saragossa.weights.bind import bind
    from saragossa.weights.checkpoint import load_spec
    from saragossa.weights.safetensors import SafetensorsIndex

    spec = load_spec(folder)
    limit = spec.decoder.max_context
    if context is not None and context > limit:
        raise ParameterError(
            "context", f"--context: found {context}, accepted is 1 to {limit}, the model's own"
        )
    weights = sum(tensor.nbytes for tensor in bind(spec, SafetensorsIndex.open(folder)))
    cost = sequence_bytes(spec.decoder, kv_dtype)
    count = parameters(spec)
    return Fit(
        model=name,
        model_type=spec.model_type,
        parameters=count.total,
        active_parameters=count.active,
        weight_bytes=weights,
        kv_bytes_per_token=cost.per_token,
        kv_bytes=cost.kv(context or limit),
        state_bytes=cost.recurrent,
        mark_bytes=cost.marks(context or limit),
        least_bytes=weights + WORKING_BYTES + cost.kv(1) + cost.recurrent + cost.marks(1),
        memory=memory,
        context=context or limit,
        model_context=limit,
        max_context=cost.largest(memory - weights - WORKING_BYTES, limit),
    )
