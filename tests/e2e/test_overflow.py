"""A residual stream beyond what float16 holds (65504), as Gemma's grows: whatever the checkpoint's dtype is,
the logits are numbers, and the same. (Logits that are none end the request: test_sessions.py.)
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from e2e.test_goldens import session
from saragossa.weights.safetensors import SafetensorsIndex
from tiny_checkpoints import Stored, write_model

SOURCE = Path(__file__).parents[1] / "golden" / "checkpoints" / "gemma3_text"
PROMPT = [2, 9, 77, 140, 31, 205, 66, 12, 181, 93]
GAIN = 49152.0  # of the norms whose output is added to the stream; float16 and bfloat16 both hold it


def weights() -> dict[str, np.ndarray]:
    """Those of the golden checkpoint that float16 holds, the others 0; and the gain."""
    out = {}
    index = SafetensorsIndex.open(SOURCE)
    for name in index:
        entry = index[name]
        data = Path(entry.file).read_bytes()[entry.offset : entry.offset + entry.nbytes]
        values = (
            (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(entry.shape)
        )
        out[name] = np.where(values.astype(np.float16).astype(np.float32) == values, values, 0)
        if name.endswith(("post_feedforward_layernorm.weight", "post_attention_layernorm.weight")):
            out[name] = np.full(entry.shape, GAIN, np.float32)
    return out


def stored(values: np.ndarray, dtype: str) -> Stored:
    if dtype == "BF16":
        return dtype, values.shape, (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return dtype, values.shape, values.astype(np.float16 if dtype == "F16" else np.float32).tobytes()


def write(folder: Path, dtype: str, named: str) -> Path:
    raw = json.loads((SOURCE / "config.json").read_text()) | {"dtype": named}
    return write_model(
        folder, raw, {name: stored(np.ascontiguousarray(v), dtype) for name, v in weights().items()}
    )


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "default"])
@pytest.mark.parametrize(
    ("dtype", "named"),
    [("BF16", "bfloat16"), ("BF16", "float16"), ("F16", "float16"), ("F16", "bfloat16")],
)
def test_logits_are_numbers(dtype: str, named: str, exact: bool, tmp_path: Path) -> None:
    folder, reference = write(tmp_path / "model", dtype, named), write(tmp_path / "f32", "F32", "float32")
    assert np.abs(session(folder, exact=exact).hidden(0, PROMPT)).max() > 2e5
    core = session(folder, exact=exact)
    core.configure(0)
    got, want = core.logits(0, PROMPT), session(reference, exact=True).logits(0, PROMPT)
    assert np.isfinite(want).all()
    assert want.std() > 0.5
    assert np.abs(got - want).max() < (1e-4 if exact else 0.1)
    core.prefill(0, [7], True)
    core.step([0])
    assert core.drawn(0)[0] >= 0
