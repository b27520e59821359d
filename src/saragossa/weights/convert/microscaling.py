"""mxfp4 and mxfp8 in numpy, bit-equal to `mlx.core.quantize` with these modes.

A group of 32 neighbours of a row shares a power of two, the least by which all of them come within the
reach of the code's float: E2M1 (up to 6) or E4M3 (up to 448). Values are rounded to nearest; ties go to
even with E4M3 and towards zero with E2M1, which has no -0 here. (So mlx's CPU does; its GPU kernels take
E2M1's ties to even and keep the zero's sign. Both are as near.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .floats import F32Array, from_float32, to_float32
from .quantize import Codes

GROUP_SIZE = 32
BITS = {"mxfp4": 4, "mxfp8": 8}
_BIAS = 127
_ZERO = 127  # the scale of a group of zeros
# Between neighbours of 0, 0.5, 1, 1.5, 2, 3, 4, 6.
_HALFWAY = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], np.float32)


class Microscaled(NamedTuple):
    """codes [rows, cols], scales [rows, cols / 32]: 127 more than the exponents."""

    codes: Codes
    scales: npt.NDArray[np.uint8]


def quantize_mx(weights: F32Array, mode: str, dtype: str = "F32") -> Microscaled:
    """Quantises [rows, cols] float32, all finite; cols is a multiple of 32.

    dtype: that of the stored weights, to which mlx rounds the quotient that decides the scale.
    """
    rows, cols = weights.shape
    w = weights.reshape(rows, cols // GROUP_SIZE, GROUP_SIZE)
    most = np.abs(w).max(axis=-1)
    quotient = most / np.float32(6 if mode == "mxfp4" else 448)
    quotient = to_float32(from_float32(quotient, dtype), dtype)
    mantissa, exponent = np.frexp(quotient)
    exponent = np.clip(exponent - (mantissa == 0.5), -_BIAS, _BIAS)
    scales = np.where(quotient == 0, _ZERO, exponent + _BIAS).astype(np.uint8)
    scaled = np.ldexp(w, _BIAS - scales.astype(np.int32)[..., None])
    codes = (_e2m1 if mode == "mxfp4" else _e4m3)(scaled)
    return Microscaled(codes.reshape(rows, cols), scales)


def _e2m1(x: F32Array) -> Codes:
    code = np.searchsorted(_HALFWAY, np.abs(x), side="left").astype(np.uint8)
    signed: Codes = code | ((np.signbit(x) & (code > 0)).astype(np.uint8) << np.uint8(3))
    return signed


def _e4m3(x: F32Array) -> Codes:
    size = np.minimum(np.abs(x), np.float32(448))
    _, exponent = np.frexp(size)
    exponent = np.maximum(exponent - 1, -6)  # of the leading bit; below 2^-6 the steps stay as they are
    steps = np.rint(np.ldexp(size, 3 - exponent)).astype(np.int32)  # eighths of it: 8 to 16, or less than 8
    code = np.where(steps < 8, steps, (exponent + 7) * 8 + steps - 8).astype(np.uint8)
    signed: Codes = code | (np.signbit(x).astype(np.uint8) << np.uint8(7))
    return signed
