"""The codes of a u8 cache, as csrc/op_types.h describes them, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
GROUP = 64


def outward(x: Array, *, up: bool) -> Array:
    """To bf16: up away from zero for positive numbers, else towards minus infinity."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    moved = np.full_like(bits, True, bool) if up else bits >> 31 == 1
    bits = np.where(moved & (bits & 0xFFFF != 0), bits + 0x10000, bits) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32)


def encode(x: Array) -> tuple[Array, Array]:
    """x [..., n] as codes u8 [..., n] and steps and zeros u16 (bf16) [..., 2 * groups]."""
    n = x.shape[-1]
    codes, scales = np.zeros(x.shape, np.uint8), []
    for begin in range(0, n, GROUP):
        part = x[..., begin : begin + GROUP].astype(np.float32)
        finite = np.isfinite(part).all(-1, keepdims=True)
        part = np.where(finite, part, np.float32(0))
        zero = outward(part.min(-1, keepdims=True), up=False)
        step = outward((part.max(-1, keepdims=True) - zero) / np.float32(255), up=True)
        step[step < np.finfo(np.float32).tiny] = 0
        inverse = np.divide(np.float32(1), step, out=np.zeros_like(step), where=step > 0)
        code = np.clip(np.rint((part - zero) * inverse), 0, 255)
        codes[..., begin : begin + GROUP] = np.where(finite, code, 0).astype(np.uint8)
        scales += [np.where(finite, s, np.float32(np.nan)) for s in (step, zero)]
    bits = np.concatenate(scales, -1).astype(np.float32).view(np.uint32) >> 16
    return codes, bits.astype(np.uint16)


def decode(codes: Array, scales: Array) -> NDArray[np.float32]:
    values = (scales.astype(np.uint32) << 16).view(np.float32)
    group = np.arange(codes.shape[-1]) // GROUP
    out: NDArray[np.float32] = codes.astype(np.float32) * values[..., 2 * group] + values[..., 2 * group + 1]
    return out
