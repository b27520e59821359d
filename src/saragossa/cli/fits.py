"""`saragossa doctor --fits MODEL`: will it fit, with which context; from headers, no weight is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from saragossa.errors import ParameterError

# What the process needs beside weights and cache: interpreter, tokenizer, scratch of a prefill chunk.
WORKING_BYTES = 150 << 20
KV_BYTES = {"bf16": 2, "f32": 4, "u8": 1}
KV_GROUP = 64  # channels of u8 that share a step and a zero, of two bytes each


@dataclass(frozen=True, slots=True)
class Fit:
    """Bytes throughout. context: the tokens asked for; max_context: how many fit, at most the model's own."""

    model: str
    model_type: str
    weight_bytes: int
    kv_bytes_per_token: int
    memory: int
    context: int
    model_context: int
    max_context: int

    @property
    def needed(self) -> int:
        """With the context asked for."""
        return self.weight_bytes + WORKING_BYTES + self.context * self.kv_bytes_per_token

    @property
    def fits(self) -> bool:
        return self.context <= self.max_context


def _head_bytes(head_dim: int, kv_dtype: str) -> int:
    scales = 4 * -(-head_dim // KV_GROUP) if kv_dtype == "u8" else 0
    return head_dim * KV_BYTES[kv_dtype] + scales


def fit(name: str, folder: Path, memory: int, context: int | None, kv_dtype: str) -> Fit:
    """Check the folder as loading would, up to the weights themselves.

    Raises ModelError, ConfigError or WeightsError as loading does, ParameterError on a context that the
    model does not have.
    """
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
    kv = sum(
        2 * layer.attention.kv_heads * _head_bytes(layer.attention.head_dim, kv_dtype)
        for layer in spec.decoder.layers
    )
    room = max(0, memory - weights - WORKING_BYTES) // kv
    return Fit(name, spec.model_type, weights, kv, memory, context or limit, limit, min(limit, room))
