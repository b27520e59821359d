"""Make quantize.npz: what mlx's own quantiser gives for a small matrix, in all formats.

Run with mlx at hand (it is no dependency of the tests; on Linux with the mlx-cpu package):

    python tests/golden/make_quant_goldens.py

Keys: `{dtype}` is the source [rows, 256] as stored (bf16 as uint16), `{dtype}/{bits}/{group_size}/{part}`
the packed words, scales and biases, these two as stored as well, and (float32, groups of 64) what mlx
dequantises them to; `{dtype}/{mode}/{part}` the words and scales of mxfp4 and mxfp8. `all/{mode}/{part}`:
rows with every code at every scale but 254 and 255, whose values overflow or are not numbers, and their
values in float32.
"""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np

COLUMNS = 256
DTYPES = {"F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16}


def rows() -> np.ndarray:
    """Ordinary rows and the corners: zeros, constants, one-sided, tiny, huge, on the grid, far off zero."""
    rng = np.random.default_rng(20261130)
    normal = rng.standard_normal((12, COLUMNS)).astype(np.float32) * np.float32(0.05)
    normal[1] = 0.0
    normal[2] = 0.3
    normal[3] = -0.3
    normal[4] = np.abs(normal[4])
    normal[5] = -np.abs(normal[5])
    normal[6] *= np.float32(1e-6)
    normal[7] *= np.float32(1e5)
    normal[8] = np.sign(normal[8])
    normal[9] += np.float32(100.0)
    normal[10, ::2] = 0.0
    normal[11] = np.resize(np.arange(-8, 8, dtype=np.float32) / 64, COLUMNS)
    return normal


def stored(array: mx.array) -> np.ndarray:
    return np.array(array.view(mx.uint16)) if array.dtype == mx.bfloat16 else np.array(array)


def every_code(mode: str) -> dict[str, np.ndarray]:
    """Row s holds all codes at scale s."""
    if mode == "mxfp8":
        words = np.arange(256, dtype=np.uint8).view("<u4")
    else:
        words = np.array([0x76543210, 0xFEDCBA98] * 2, "<u4")
    groups = len(words) // (8 if mode == "mxfp8" else 4)
    packed = np.tile(words, (254, 1))
    scales = np.tile(np.arange(254, dtype=np.uint8)[:, None], groups)
    values = mx.dequantize(mx.array(packed), mx.array(scales), mode=mode, dtype=mx.float32)
    return {
        f"all/{mode}/packed": packed,
        f"all/{mode}/scales": scales,
        f"all/{mode}/values": np.array(values),
    }


def main() -> None:
    source = rows()
    out: dict[str, np.ndarray] = {}
    for name, dtype in DTYPES.items():
        weights = mx.array(source).astype(dtype)
        out[name] = stored(weights)
        for bits in (2, 3, 4, 5, 6, 8):
            for group_size in (32, 64, 128):
                parts = mx.quantize(weights, group_size=group_size, bits=bits)
                for part, array in zip(("packed", "scales", "biases"), parts, strict=True):
                    out[f"{name}/{bits}/{group_size}/{part}"] = stored(array)
                if name == "F32" and group_size == 64:
                    out[f"F32/{bits}/64/values"] = stored(mx.dequantize(*parts, group_size=64, bits=bits))
        for mode in ("mxfp4", "mxfp8"):
            for part, array in zip(("packed", "scales"), mx.quantize(weights, mode=mode), strict=True):
                out[f"{name}/{mode}/{part}"] = stored(array)
    out |= every_code("mxfp4") | every_code("mxfp8")
    path = Path(__file__).parent / "quantize.npz"
    np.savez_compressed(path, **out)
    print(f"{path}: mlx {mx.__version__}, {len(out)} arrays, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
