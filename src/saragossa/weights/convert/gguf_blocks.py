"""GGUF block formats, as MLX affine groups of 32 where that loses nothing (or only a rounding).

A block is d, sometimes a minimum, and codes. MLX computes code * scale + bias:

    type   value             bits  scale   bias        stored scales
    Q4_0   d * (q - 8)       4     d       -8 d        f16, exact
    Q4_1   d * q + m         4     d       m           f16, exact
    Q5_0   d * (q - 16)      6     d       -16 d       f16, exact
    Q5_1   d * q + m         6     d       m           f16, exact
    Q8_0   d * q             8     d       -128 d      f16, exact; codes q + 128
    Q4_K   d * s * q - e * t 4     d * s   -(e * t)    rounded to f16
    Q5_K   d * s * q - e * t 6     d * s   -(e * t)    rounded to f16

Where a bias overflows f16, the tensor's scales and biases are f32. The other K-quants have groups
of 16, which MLX lacks: they are dequantised and quantised anew to 8 bits.

Measured on down_proj of three layers of Qwen2.5-Coder-0.5B, quantised by ggml: root mean square of what
the import changes, relative to the weights, beside what the type itself had lost before:

    type      Q4_K    Q5_K    Q6_K    Q3_K    Q2_K    exact types
    import    6.8e-4  6.8e-4  4.9e-3  4.7e-3  4.7e-3  0
    the type  5.0e-2  3.0e-2  1.4e-2  1.5e-1  2.9e-1  5.8e-3 (Q8_0) to 9.3e-2 (Q4_0)

Formats: ggml's ggml-common.h; the reference for every value is the gguf package's `dequantize`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize as gguf_dequantize

from .floats import F32Array
from .quantize import Quantized

GROUP_SIZE = 32
Kind = GGMLQuantizationType
Bytes = npt.NDArray[np.uint8]

FLOAT_KINDS: dict[Kind, str] = {Kind.F32: "F32", Kind.F16: "F16", Kind.BF16: "BF16"}
_LOW, _FOUR = np.uint8(0x0F), np.uint8(4)
REQUANTISED_BITS = 8
REQUANTISED = (Kind.Q2_K, Kind.Q3_K, Kind.Q6_K)


def _f16(blocks: Bytes, at: int) -> F32Array:
    """The f16 at byte `at` of every block, [blocks, 1] in float32."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(blocks: Bytes, at: int) -> Bytes:
    """16 bytes at `at`: elements 0..15 in the low nibbles, 16..31 in the high ones."""
    raw = blocks[:, at : at + 16]
    return np.concatenate([raw & _LOW, raw >> _FOUR], axis=1)


def _fifth_bits(blocks: Bytes, at: int) -> Bytes:
    """4 bytes at `at`: bit i is bit 4 of element i."""
    return np.unpackbits(np.ascontiguousarray(blocks[:, at : at + 4]), axis=1, bitorder="little") << _FOUR


def _q4_0(blocks: Bytes) -> Quantized:
    d = _f16(blocks, 0)
    return Quantized(_nibbles(blocks, 2), d, -8 * d)


def _q4_1(blocks: Bytes) -> Quantized:
    return Quantized(_nibbles(blocks, 4), _f16(blocks, 0), _f16(blocks, 2))


def _q5_0(blocks: Bytes) -> Quantized:
    d = _f16(blocks, 0)
    return Quantized(_nibbles(blocks, 6) | _fifth_bits(blocks, 2), d, -16 * d)


def _q5_1(blocks: Bytes) -> Quantized:
    return Quantized(_nibbles(blocks, 8) | _fifth_bits(blocks, 4), _f16(blocks, 0), _f16(blocks, 2))


def _q8_0(blocks: Bytes) -> Quantized:
    d = _f16(blocks, 0)
    return Quantized(blocks[:, 2:34] ^ np.uint8(0x80), d, -128 * d)  # signed q + 128 flips the top bit


def _k_scales(blocks: Bytes) -> tuple[F32Array, F32Array]:
    """d * s and -(e * t) of the 8 groups of a Q4_K or Q5_K block: 6-bit s, t in 12 bytes."""
    packed = blocks[:, 4:16]
    s, t, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scale = np.concatenate([s & 0x3F, (high & 0x0F) | ((s >> 2) & 0x30)], axis=1)
    minimum = np.concatenate([t & 0x3F, (high >> 4) | ((t >> 2) & 0x30)], axis=1)
    return _f16(blocks, 0) * scale, -(_f16(blocks, 2) * minimum)


def _k_nibbles(blocks: Bytes, at: int) -> Bytes:
    """128 bytes at `at`: every 32 bytes hold two groups, low nibbles first. [blocks, 8, 32]"""
    raw = blocks[:, at : at + 128].reshape(-1, 4, 1, 32)
    return np.concatenate([raw & _LOW, raw >> _FOUR], axis=2).reshape(-1, 8, 32)


def _q4_k(blocks: Bytes) -> Quantized:
    return Quantized(_k_nibbles(blocks, 16).reshape(-1, 256), *_k_scales(blocks))


def _q5_k(blocks: Bytes) -> Quantized:
    high = blocks[:, 16:48].reshape(-1, 1, 32)  # bit g of byte i: bit 4 of element i of group g
    fifth = (high >> np.arange(8, dtype=np.uint8)[:, None]) & np.uint8(1)
    codes = _k_nibbles(blocks, 48) | (fifth << _FOUR)
    return Quantized(codes.reshape(-1, 256), *_k_scales(blocks))


@dataclass(frozen=True, slots=True)
class AffineFormat:
    """How a block type becomes MLX groups; `exact`: nothing is rounded when scales are f16."""

    bits: int
    exact: bool
    unpack: Callable[[Bytes], Quantized]


AFFINE: dict[Kind, AffineFormat] = {
    Kind.Q4_0: AffineFormat(4, True, _q4_0),
    Kind.Q4_1: AffineFormat(4, True, _q4_1),
    Kind.Q5_0: AffineFormat(6, True, _q5_0),
    Kind.Q5_1: AffineFormat(6, True, _q5_1),
    Kind.Q8_0: AffineFormat(8, True, _q8_0),
    Kind.Q4_K: AffineFormat(4, False, _q4_k),
    Kind.Q5_K: AffineFormat(6, False, _q5_k),
}
SUPPORTED: tuple[Kind, ...] = (*FLOAT_KINDS, *AFFINE, *REQUANTISED)

# Where a block keeps its f16 factors, and by how much at most a scale or bias exceeds each.
_FACTORS: dict[Kind, tuple[tuple[int, int], ...]] = {
    Kind.Q4_0: ((0, 8),),
    Kind.Q4_1: ((0, 1), (2, 1)),
    Kind.Q5_0: ((0, 16),),
    Kind.Q5_1: ((0, 1), (2, 1)),
    Kind.Q8_0: ((0, 128),),
    Kind.Q2_K: ((80, 15 * 3), (82, 15)),
    Kind.Q3_K: ((108, 32 * 4),),
    Kind.Q4_K: ((0, 63), (2, 63)),
    Kind.Q5_K: ((0, 63), (2, 63)),
    Kind.Q6_K: ((208, 128 * 32),),
}
_F16_MAX = 65504.0


def scale_dtype(rows: Bytes, kind: Kind) -> str | None:
    """Storage for the scales and biases of a quantised tensor: F16, or F32 where they overflow it.

    None: a block's factor is infinite or NaN, so the file is damaged.
    """
    blocks = rows.reshape(-1, GGML_QUANT_SIZES[kind][1])
    peak = 0.0
    for at, times in _FACTORS[kind]:
        largest = float(np.abs(_f16(blocks, at)).max())  # a NaN wins the max
        peak = max(peak, largest * times)
        if not np.isfinite(largest):
            return None
    return "F16" if peak <= _F16_MAX else "F32"


def unpack(rows: Bytes, kind: Kind) -> Quantized:
    """Stored rows [rows, bytes] of an AFFINE kind as codes [rows, cols] and their groups' scales."""
    blocks = rows.reshape(-1, GGML_QUANT_SIZES[kind][1])
    codes, scales, biases = AFFINE[kind].unpack(blocks)
    count = rows.shape[0]
    return Quantized(codes.reshape(count, -1), scales.reshape(count, -1), biases.reshape(count, -1))


def dequantize(rows: Bytes, kind: Kind) -> F32Array:
    """Stored rows [rows, bytes] of any supported kind as float32 [rows, cols]."""
    if kind in FLOAT_KINDS:  # the package wants these as their own numpy types
        if kind == Kind.BF16:
            return (rows.view("<u2").astype(np.uint32) << 16).view(np.float32)
        return rows.view("<f4" if kind == Kind.F32 else "<f2").astype(np.float32)
    values: F32Array = gguf_dequantize(rows, kind)
    return values
