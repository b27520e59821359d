"""MLX's affine quantisation in numpy, bit-equal to `mlx.core.quantize`, and the packing of all modes.

A group of `group_size` neighbours of a row shares a scale s and a bias b: w ~ code * s + b. One end
of the group's range, the one of larger magnitude, becomes exactly representable: it is the bias,
and the scale is stretched so that zero lies on the grid. About half of the scales are negative.
Packed words: the codes of a row as one LSB-first bit stream over little-endian uint32, so that codes of
3, 5 and 6 bits cross words.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from saragossa.errors import UsageError
from saragossa.weights.quantization import MODES, Format

from .floats import F32Array

_MIN_SCALE = np.float32(1e-7)
_U8 = np.uint8

Codes = npt.NDArray[np.uint8]


class Quantized(NamedTuple):
    """codes [rows, cols], scales and biases [rows, cols / group_size] as float32, not yet rounded."""

    codes: Codes
    scales: F32Array
    biases: F32Array


def check_format(bits: int | None, group_size: int | None, mode: str) -> Format | None:
    """The format that these options name, None where they name none.

    Raises UsageError unless the core has it.
    """
    if mode not in MODES:
        raise UsageError(f"mode {mode} is not supported", cure=f"use {', '.join(MODES)}")
    widths, sizes = MODES[mode]
    if mode == "affine" and bits is None:
        if group_size is not None:
            raise UsageError("a group size has no effect without bits", cure="add --bits 4")
        return None
    bits = widths[0] if bits is None else bits
    group_size = (64 if mode == "affine" else sizes[0]) if group_size is None else group_size
    of_mode = "" if mode == "affine" else f" with mode {mode}"
    for what, value, allowed in (("bits", bits, widths), ("group size", group_size, sizes)):
        if value not in allowed:
            listed = ", ".join(map(str, allowed[:-1])) + " or " if len(allowed) > 1 else ""
            raise UsageError(f"{what} {value} is not supported{of_mode}", cure=f"use {listed}{allowed[-1]}")
    return Format(bits, group_size, mode)


def quantize(weights: F32Array, bits: int, group_size: int) -> Quantized:
    """Quantises [rows, cols] float32; cols is a multiple of `group_size`.

    The codes come from the float32 scale; whoever stores scales and biases rounds them afterwards,
    as MLX does.
    """
    rows, cols = weights.shape
    w = weights.reshape(rows, cols // group_size, group_size)
    top = np.float32((1 << bits) - 1)
    high, low = w.max(axis=-1), w.min(axis=-1)
    scale = np.maximum((high - low) / top, _MIN_SCALE)
    low_side = np.abs(low) > np.abs(high)
    scale = np.where(low_side, scale, -scale)
    edge = np.where(low_side, low, high)
    steps = np.rint(edge / scale)  # codes between the edge and zero
    on_grid = steps != 0
    scale = np.where(on_grid, edge / np.where(on_grid, steps, np.float32(1)), scale)
    bias = np.where(on_grid, edge, np.float32(0))
    codes = w - bias[..., None]
    codes /= scale[..., None]
    np.rint(codes, out=codes)
    np.clip(codes, np.float32(0), top, out=codes)
    return Quantized(codes.astype(np.uint8).reshape(rows, cols), scale, bias)


def pack(codes: Codes, bits: int) -> npt.NDArray[np.uint32]:
    """Codes [rows, cols] as words [rows, cols * bits / 32]; cols is a multiple of 32."""
    if bits == 8:
        packed = np.ascontiguousarray(codes)
    elif bits == 4:
        packed = codes[:, 0::2] | (codes[:, 1::2] << _U8(4))
    else:  # eight codes lie in `bits` bytes
        c = codes.reshape(codes.shape[0], -1, 8)
        packed = np.zeros((*c.shape[:2], bits), np.uint8)
        for i in range(8):
            byte, shift = divmod(i * bits, 8)
            packed[..., byte] |= c[..., i] << _U8(shift)  # uint8 shifts drop what leaves the byte
            if shift + bits > 8:
                packed[..., byte + 1] |= c[..., i] >> _U8(8 - shift)
        packed = packed.reshape(codes.shape[0], -1)
    return packed.view("<u4")
