"""Float formats of checkpoints as numpy arrays: bf16 travels as its bit pattern (uint16)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from saragossa.errors import ConvertError, UsageError

Array = npt.NDArray[Any]
F32Array = npt.NDArray[np.float32]

# safetensors dtype name -> numpy storage type (little-endian)
STORAGE: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "U32": np.dtype("<u4"),
    "U8": np.dtype("u1"),
}
FLOATS = ("F32", "F16", "BF16")
# config.json's torch_dtype -> safetensors dtype name
TORCH = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
_SHORT = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def torch_name(dtype: str) -> str:
    """`dtype` as config.json spells it; raises UsageError for anything but the three floats."""
    name = _SHORT.get(dtype, dtype)
    if name not in TORCH:
        raise UsageError(f"dtype {dtype!r} is not supported", cure="use bfloat16, float16 or float32")
    return name


def to_float32(array: Array, dtype: str) -> F32Array:
    """Stored values of safetensors dtype `dtype` as float32 (exact)."""
    if dtype == "BF16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32, copy=False)


def from_float32(array: F32Array, dtype: str) -> Array:
    """float32 values in the storage of `dtype`, rounded to nearest even; NaN stays NaN."""
    if dtype == "F32":
        return array
    if dtype == "F16":
        with np.errstate(over="ignore"):
            return array.astype(np.float16)
    bits = np.ascontiguousarray(array).view(np.uint32)
    rounded = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
    nan = np.isnan(array)
    if nan.any():
        rounded[nan] = (bits[nan] >> 16).astype(np.uint16) | 0x40
    return rounded


def cast(array: Array, source: str, target: str, name: str) -> Array:
    """Values of dtype `source` as dtype `target`.

    Raises ConvertError, naming the tensor, where a finite value has no finite counterpart.
    """
    if source == target:
        return array
    values = to_float32(array, source)
    if target == "F16" and bool((np.abs(values[np.isfinite(values)]) >= 65520.0).any()):
        raise ConvertError(
            f"tensor {name}: a value is beyond float16's range (65504)", cure="use --dtype bfloat16"
        )
    return from_float32(values, target)
