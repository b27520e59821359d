"""Models with experts, converted to small floats and few bits, run: their logits are near the original's, and
equal to those of the weights that the folder stands for, dequantised by the layout's definition.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from e2e.test_family_goldens import FAMILIES, golden
from e2e.test_goldens import EXACT, session
from saragossa.weights.convert import convert
from saragossa.weights.convert.floats import to_float32
from saragossa.weights.quantization import QuantizationConfig
from saragossa.weights.safetensors import SafetensorsIndex
from tiny_checkpoints import Stored, write_safetensors

NAMES = ("qwen3_moe", "qwen3_moe-plain", "qwen3_next", "qwen3_5_moe", "gemma4-moe")
# Options, and how far the logits may be off, as a part of their size (1.4: they have nothing in common). Nets
# so small feel every bit: measured are at most 0.76, 0.27, 0.83, 0.67.
FORMS: dict[str, tuple[dict[str, Any], float]] = {
    "mxfp4": ({"mode": "mxfp4"}, 0.8),
    "mxfp8": ({"mode": "mxfp8"}, 0.3),
    "3 bits": ({"bits": 3, "group_size": 32}, 0.9),
    "mixed": ({"mode": "mxfp4", "overrides": ("*.experts.*=mxfp8", "*.self_attn.*=8:32")}, 0.7),
}
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def stored(folder: Path) -> dict[str, np.ndarray]:
    """Every tensor, floats as float32."""
    views = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "U32": "<u4", "U8": "u1"}
    result = {}
    for name, entry in SafetensorsIndex.open(folder).items():
        raw = np.fromfile(entry.file, np.uint8, entry.nbytes, offset=entry.offset)
        values = raw.view(views[entry.dtype]).reshape(entry.shape)
        result[name] = values if entry.dtype in ("U32", "U8") else to_float32(values, entry.dtype)
    return result


def small_floats(codes: np.ndarray, mode: str) -> np.ndarray:
    if mode == "mxfp4":
        return np.where(codes & 8, -1, 1) * _E2M1[codes & 7]
    exponent, mantissa = (codes >> 3 & 15).astype(np.int32), codes & 7
    size = np.ldexp(mantissa / 8 + (exponent > 0), np.maximum(exponent, 1) - 7)
    return np.where(codes & 128, -1, 1) * size


def dequantised(source: Path, folder: Path) -> Path:
    """A folder of the floats that `source` stands for."""
    config = json.loads((source / "config.json").read_text())
    quantization = QuantizationConfig.parse(config.pop("quantization"))
    del config["quantization_config"]
    assert quantization is not None
    tensors = stored(source)
    result: dict[str, Stored] = {}
    for name, values in tensors.items():
        module = name.removesuffix(".weight")
        if name.endswith((".scales", ".biases")):
            continue
        if f"{module}.scales" in tensors:
            form = quantization.for_module(module)
            assert form is not None
            *rows, _ = values.shape
            stream = np.unpackbits(values.view(np.uint8), axis=-1, bitorder="little")
            codes = (stream.reshape(*rows, -1, form.bits) << np.arange(form.bits, dtype=np.uint8)).sum(-1)
            groups = codes.reshape(*rows, -1, form.group_size)
            scales = tensors[f"{module}.scales"][..., None]
            if form.mode == "affine":
                values = groups * scales + tensors[f"{module}.biases"][..., None]
            else:
                values = small_floats(groups, form.mode) * 2.0 ** (scales.astype(np.int32) - 127)
            values = values.reshape(*rows, -1)
        result[name] = "F32", values.shape, np.ascontiguousarray(values, np.float32).tobytes()
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (folder / file).write_bytes((source / file).read_bytes())
    write_safetensors(folder / "model.safetensors", result)
    return folder


def off(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.sqrt(np.mean((got - want) ** 2) / np.mean(want**2)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_logits(name: str, form: str, tmp_path: Path) -> None:
    options, bound = FORMS[form]
    convert(FAMILIES / name, tmp_path / "out", **options, progress=False)
    z = golden(name)
    prompt = z["prompt"].tolist()
    got = session(tmp_path / "out", exact=True).logits(0, prompt)
    want = session(dequantised(tmp_path / "out", tmp_path / "floats"), exact=True).logits(0, prompt)
    assert np.abs(got - want).max() < EXACT
    assert 0 < off(got, z["logits"]) < bound
    # Rounded activations and keys may choose another expert for a token (Gemma 4, mixed: 0.07).
    assert off(session(tmp_path / "out", exact=False).logits(0, prompt), got) < 0.15
