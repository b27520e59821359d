"""Llama 3's rope scaling, recovered from the frequency factors that a GGUF file holds instead."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from saragossa.errors import ConvertError

from .floats import F32Array

_TOLERANCE = 1e-4  # relative, of a factor; the file has them in float32
F64Array = npt.NDArray[np.float64]


def llama3_scaling(factors: F32Array, theta: float, head_dim: int, where: str) -> dict[str, Any] | None:
    """config.json's rope_scaling for rope_freqs.weight [head_dim / 2]; None if it changes nothing.

    Channel i's frequency is divided by its factor: 1 for short wavelengths, `factor` for long ones,
    between them 1 / factor_i = (1 - s) / factor + s with s linear in the frequency. The two limits
    and the original context appear as ratios only, so the lower limit is taken as 1.
    Raises ConvertError, beginning with `where`, if no such parameters reproduce the factors.
    """
    f = factors.astype(np.float64)
    if f.shape != (head_dim // 2,) or not (np.isfinite(f).all() and (f >= 1 - _TOLERANCE).all()):
        raise ConvertError(f"{where}: rope_freqs.weight is not {head_dim // 2} factors of 1 or more")
    if np.allclose(f, 1.0, rtol=_TOLERANCE):
        return None
    factor = _snap(float(f.max()), 1e-4)
    for high, original in ((4.0, 8192), *_solve(f, factor, theta, head_dim)):
        if np.allclose(f, _factors(factor, high, original, theta, head_dim), rtol=_TOLERANCE):
            return {
                "factor": factor,
                "high_freq_factor": high,
                "low_freq_factor": 1.0,
                "original_max_position_embeddings": original,
                "rope_type": "llama3",
            }
    raise ConvertError(f"{where}: the factors of rope_freqs.weight do not follow Llama 3's rope scaling")


def _cycles(theta: float, head_dim: int) -> F64Array:
    """Turns per token of every channel pair, [head_dim / 2]."""
    channel: F64Array = np.arange(0, head_dim, 2, dtype=np.float64) / head_dim
    return theta**-channel / (2 * np.pi)


def _factors(factor: float, high: float, original: int, theta: float, head_dim: int) -> F64Array:
    turns = original * _cycles(theta, head_dim)  # within the original context
    smooth = (turns - 1.0) / (high - 1.0)
    middle = 1.0 / ((1.0 - smooth) / factor + smooth)
    result: F64Array = np.where(turns < 1.0, factor, np.where(turns > high, 1.0, middle))
    return result


def _solve(f: F64Array, factor: float, theta: float, head_dim: int) -> list[tuple[float, int]]:
    """(high_freq_factor, original context) by least squares over the channels in between."""
    between = (f > 1 + 1e-3) & (f < factor * (1 - 1e-3))
    if between.sum() < 2:
        return []
    smooth = (1 / f[between] - 1 / factor) / (1 - 1 / factor)
    slope, intercept = np.polyfit(_cycles(theta, head_dim)[between], smooth, 1)
    if intercept >= 0:
        return []
    high = 1 - 1 / intercept
    return [(_snap(high, 1e-3), round(slope * (high - 1)))]


def _snap(value: float, tolerance: float) -> float:
    """The nearest multiple of a quarter, if near: float32 blurs 32 and 4."""
    nearest = round(value * 4) / 4
    return nearest if abs(value - nearest) <= tolerance * abs(value) else value
