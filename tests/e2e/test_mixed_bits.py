"""Bits that differ by module: a checkpoint written by hand gives what its dequantised weights give, however
the quantisation block spells the modules.
"""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from e2e.test_goldens import session
from saragossa.errors import SaragossaError
from saragossa.models import llama
from tiny_checkpoints import Stored, config, write_model

PROMPT = [1, 5, 80, 33, 2, 61, 17, 94, 8, 40, 51]
DEFAULT = (4, 64)
# Bits and group size of what is not the default; None: as floats.
MIXED: dict[str, tuple[int, int] | None] = {
    "model.embed_tokens": (6, 64),
    "lm_head": (8, 64),
    "model.layers.0.mlp.down_proj": (6, 64),
    "model.layers.1.self_attn.q_proj": (8, 32),
    "model.layers.1.mlp.up_proj": (6, 32),
    "model.layers.2.self_attn.v_proj": None,
}
SPELLINGS = {
    "as the tensors": lambda name: name,
    "as a multimodal wrapper": lambda name: f"language_model.{name}",
    "without the model": lambda name: name.removeprefix("model."),
}


def f32(x: np.ndarray) -> Stored:
    return "F32", x.shape, np.ascontiguousarray(x, np.float32).tobytes()


def quantised(
    shape: tuple[int, ...], bits: int, group: int, rng: np.random.Generator
) -> tuple[Any, np.ndarray]:
    """The stored triple of random codes, and the weights that it stands for."""
    out, inputs = shape
    codes = rng.integers(0, 1 << bits, shape)
    scales = (2.0 ** rng.integers(-3, 0, (out, inputs // group)) / (1 << bits)).astype(np.float32)
    biases = (-scales * (1 << (bits - 1))).astype(np.float32)
    weights = codes * scales.repeat(group, 1) + biases.repeat(group, 1)
    # A stream of bits, lowest first: 6 bits cross the words.
    stream = (codes[..., None] >> np.arange(bits) & 1).astype(np.uint8).reshape(out, -1)
    words = np.packbits(stream, axis=1, bitorder="little").view(np.uint32)
    bf16 = [
        ("BF16", v.shape, (v.view(np.uint32) >> 16).astype(np.uint16).tobytes()) for v in (scales, biases)
    ]
    return (("U32", words.shape, words.tobytes()), *bf16), weights


def write(folder: Path, **more: Any) -> tuple[Path, Path]:
    """The mixed checkpoint, and the dense one of the same weights. more: keys of the quantisation block."""
    raw = config("llama", tie_word_embeddings=False, dtype="float32")
    rng = np.random.default_rng(0)
    mixed, dense = {}, {}
    for item in llama.build(raw, {}).tensors:
        if not item.module:
            mixed[item.name] = dense[item.name] = f32(1 + 0.1 * rng.standard_normal(item.shape))
            continue
        name = f"{item.name}.weight"
        form = MIXED.get(item.name, DEFAULT)
        if form is None:
            mixed[name] = dense[name] = f32(0.1 * rng.standard_normal(item.shape))
            continue
        (mixed[name], mixed[f"{item.name}.scales"], mixed[f"{item.name}.biases"]), weights = quantised(
            item.shape, *form, rng
        )
        dense[name] = f32(weights)
    block = {"bits": DEFAULT[0], "group_size": DEFAULT[1], **more}
    write_model(folder / "mixed", {**raw, "quantization": block}, mixed)
    return folder / "mixed", write_model(folder / "dense", raw, dense)


def overrides(spelling: str) -> dict[str, Any]:
    return {
        SPELLINGS[spelling](name): False if form is None else {"bits": form[0], "group_size": form[1]}
        for name, form in MIXED.items()
    }


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_equals_the_dequantised_weights(
    spelling: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="saragossa"):
        mixed, dense = write(tmp_path, **overrides(spelling))
        got, want = (session(folder, exact=True).logits(0, PROMPT) for folder in (mixed, dense))
    assert np.abs(want).max() > 1
    assert np.abs(got - want).max() < 5e-5
    rounded = session(mixed, exact=False).logits(0, PROMPT)
    assert np.abs(rounded - want).max() < 5e-2
    assert caplog.text == ""


def test_an_override_that_names_nothing_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="saragossa"):
        mixed, _ = write(
            tmp_path, **overrides("as the tensors"), **{"model.layers.7.mlp.up_proj": {"bits": 6}}
        )
        session(mixed, exact=True)
    assert "no module has the name model.layers.7.mlp.up_proj" in caplog.text


@pytest.mark.parametrize("forgotten", [name for name, form in MIXED.items() if form is not None])
def test_an_override_that_is_missing_is_refused(forgotten: str, tmp_path: Path) -> None:
    """Read as the default it would be garbage; the packed shape tells."""
    given = {name: value for name, value in overrides("as the tensors").items() if name != forgotten}
    mixed, _ = write(tmp_path, **given)
    with pytest.raises(SaragossaError, match=forgotten):
        session(mixed, exact=True)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_golden_checkpoint_in_another_spelling(spelling: str, tmp_path: Path) -> None:
    golden = Path(__file__).parents[1] / "golden" / "checkpoints" / "llama-mixed"
    folder = tmp_path / "other"
    shutil.copytree(golden, folder)
    raw = json.loads((folder / "config.json").read_text())
    block = raw["quantization"]
    block = {
        SPELLINGS[spelling](key) if isinstance(block[key], dict | bool) else key: block[key] for key in block
    }
    raw["quantization"] = raw["quantization_config"] = block
    (folder / "config.json").write_text(json.dumps(raw))
    got, want = (session(where, exact=False).logits(0, PROMPT) for where in (folder, golden))
    assert np.array_equal(got, want)
