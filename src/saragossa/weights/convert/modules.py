"""Jobs for the modules of a checkpoint: kept as they are, or quantised row by row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from saragossa.errors import ConvertError

from .floats import Array, from_float32, to_float32
from .quantize import pack, quantize
from .writer import Entry, Job


def plain_job(name: str, dtype: str, shape: tuple[int, ...], load: Callable[[], Array]) -> Job:
    """A tensor that is written at once."""

    def chunks() -> Iterator[tuple[Array, ...]]:
        yield (load(),)

    return Job((Entry(name, dtype, shape),), chunks, math.prod(shape))


def quantized_outputs(
    name: str, shape: tuple[int, ...], bits: int, group_size: int, scale_dtype: str
) -> tuple[Entry, Entry, Entry]:
    """The packed words, scales and biases that replace the weight `name` (`....weight`), [..., out, in]."""
    *rows, cols = shape
    module = name.removesuffix(".weight")
    return (
        Entry(name, "U32", (*rows, cols * bits // 32)),
        Entry(module + ".scales", scale_dtype, (*rows, cols // group_size)),
        Entry(module + ".biases", scale_dtype, (*rows, cols // group_size)),
    )


def quantized_job(source: Job, bits: int, group_size: int, scale_dtype: str | None = None) -> Job:
    """`source`, which writes one float weight [..., out, in] row by row, quantised.

    The scales have the matrix's dtype, as with MLX, or `scale_dtype`.
    Raises ConvertError while it runs, naming the tensor, at a weight that is not finite.
    """
    (entry,) = source.outputs
    stored = scale_dtype or entry.dtype

    def chunks() -> Iterator[tuple[Array, ...]]:
        for (array,) in source.chunks():
            weights = to_float32(array, entry.dtype)
            if not np.isfinite(weights).all():
                raise ConvertError(f"tensor {entry.name} holds a value that is not finite")
            q = quantize(weights, bits, group_size)
            yield pack(q.codes, bits), from_float32(q.scales, stored), from_float32(q.biases, stored)

    outputs = quantized_outputs(entry.name, entry.shape, bits, group_size, stored)
    return Job(outputs, chunks, source.parameters)
