"""MLX's affine quantisation in numpy, bit-equal to `mlx.core.quantize` (mode "affine").

A group of `group_size` neighbours of a row shares a scale s and a bias b: w ~ code * s + b. One end
of the group's range, the one of larger magnitude, becomes exactly representable: it is the bias,
and the scale is stretched so that zero lies on the grid. About half of the scales are negative.
Packed words: the codes of a row as one LSB-first bit stream over little-endian uint32, so that
6-bit codes cross words.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from saragossa.errors import UsageError

from .floats import F32Array

BITS = (4, 6, 8)
GROUP_SIZES = (32, 64, 128)
_MIN_SCALE = np.float32(1e-7)
_U8 = np.uint8

Codes = npt.NDArray[np.uint8]


class Quantized(NamedTuple):
    """codes [rows, cols], scales and biases [rows, cols / group_size] as float32, not yet rounded."""

    codes: Codes
    scales: F32Array
    biases: F32Array


def check_scheme(bits: int, group_size: int) -> None:
    """Raises UsageError unless the core has kernels for `bits` and `group_size`."""
    if bits not in BITS:
        raise UsageError(f"bits {bits} is not supported", cure="use 4, 6 or 8")
    if group_size not in GROUP_SIZES:
        raise UsageError(f"group size {group_size} is not supported", cure="use 32, 64 or 128")


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
    elif bits == 6:
        c = codes.reshape(codes.shape[0], -1, 4)
        packed = np.empty((*c.shape[:2], 3), np.uint8)  # uint8 shifts drop what leaves the byte
        packed[..., 0] = c[..., 0] | (c[..., 1] << _U8(6))
        packed[..., 1] = (c[..., 1] >> _U8(2)) | (c[..., 2] << _U8(4))
        packed[..., 2] = (c[..., 2] >> _U8(4)) | (c[..., 3] << _U8(2))
        packed = packed.reshape(codes.shape[0], -1)
    else:
        raise AssertionError(f"no packing for {bits} bits")
    return packed.view("<u4")
