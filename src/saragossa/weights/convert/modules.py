"""Jobs for the modules of a checkpoint: kept as they are, or quantised row by row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from saragossa.errors import ConvertError
from saragossa.weights.quantization import Format

from .floats import Array, from_float32, to_float32
from .microscaling import quantize_mx
from .quantize import pack, quantize
from .writer import Entry, Job


def plain_job(name: str, dtype: str, shape: tuple[int, ...], load: Callable[[], Array]) -> Job:
    """A tensor that is written at once."""

    def chunks() -> Iterator[tuple[Array, ...]]:
        yield (load(),)

    return Job((Entry(name, dtype, shape),), chunks, math.prod(shape))


def quantized_outputs(name: str, shape: tuple[int, ...], to: Format, scale_dtype: str) -> tuple[Entry, ...]:
    """What replaces `name` (`....weight`, [..., out, in]): packed words, scales, biases if affine."""
    *rows, cols = shape
    module = name.removesuffix(".weight")
    words = Entry(name, "U32", (*rows, cols * to.bits // 32))
    groups = (*rows, cols // to.group_size)
    if to.mode != "affine":
        return words, Entry(module + ".scales", "U8", groups)
    return (
        words,
        Entry(module + ".scales", scale_dtype, groups),
        Entry(module + ".biases", scale_dtype, groups),
    )


def quantized_job(source: Job, to: Format, scale_dtype: str | None = None) -> Job:
    """`source`, which writes one float weight [..., out, in] row by row, quantised.

    The scales of affine have the matrix's dtype, as with MLX, or `scale_dtype`.
    Raises ConvertError while it runs, naming the tensor, at a weight that is not finite.
    """
    (entry,) = source.outputs
    stored = scale_dtype or entry.dtype

    def chunks() -> Iterator[tuple[Array, ...]]:
        for (array,) in source.chunks():
            weights = to_float32(array, entry.dtype)
            if not np.isfinite(weights).all():
                raise ConvertError(f"tensor {entry.name} holds a value that is not finite")
            if to.mode != "affine":
                mx = quantize_mx(weights, to.mode, entry.dtype)
                yield pack(mx.codes, to.bits), mx.scales
                continue
            q = quantize(weights, to.bits, to.group_size)
            yield pack(q.codes, to.bits), from_float32(q.scales, stored), from_float32(q.biases, stored)

    outputs = quantized_outputs(entry.name, entry.shape, to, stored)
    return Job(outputs, chunks, source.parameters)
