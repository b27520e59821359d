"""doctor's self-check: a small random 4-bit model, each instruction set held to the scalar reference."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from saragossa import _core
from saragossa.weights.bind import bind
from saragossa.weights.checkpoint import load_spec
from saragossa.weights.convert import convert
from saragossa.weights.convert.writer import Entry, Job, write_checkpoint
from saragossa.weights.safetensors import SafetensorsIndex

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE, VOCAB, LAYERS = 128, 4, 2, 32, 512, 384, 2
TOKENS = (40, 20, 1)  # many rows, few (whose linears a GPU splits), and decode
# Error of the logits, relative to the largest: other orders of summation, and 15-bit activations.
TOLERANCES = {"f32": 1e-4, "int15": 1e-3}


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison with the scalar reference; error is relative to the largest logit."""

    name: str
    error: float
    tolerance: float

    @property
    def passed(self) -> bool:
        return self.error <= self.tolerance  # false for NaN


def run_checks() -> Iterator[Check]:
    """Compare every instruction set that this machine has, with both kinds of activations."""
    with tempfile.TemporaryDirectory(prefix="saragossa-doctor-") as name:
        folder = write_quantised(Path(name))
        reference = _logits(folder, "scalar", "f32")
        for isa in _core.instruction_sets():
            for activations, tolerance in TOLERANCES.items():
                found = _logits(folder, isa, activations)
                error = float(np.abs(found - reference).max() / np.abs(reference).max())
                yield Check(f"{isa}, {activations}", error, tolerance)


def write_quantised(folder: Path) -> Path:
    """The model's folder, below `folder`."""
    source, quantised = folder / "float", folder / "u4"
    source.mkdir()
    _write_model(source)
    convert(source, quantised, bits=4, group_size=64, progress=False)
    return quantised


def _logits(folder: Path, isa: str, activations: str) -> npt.NDArray[np.float32]:
    return logits_on(_core.Device("cpu", isa=isa, activations=activations), folder)


def logits_on(device: _core.Device, folder: Path) -> npt.NDArray[np.float32]:
    """[sum(TOKENS), VOCAB]: those of a prefill, of a short one behind it, and of one more token alone."""
    spec = load_spec(folder)
    tensors = bind(spec, SafetensorsIndex.open(folder))
    model = _core.Model(device, spec.decoder, tensors, blocks=1, kv_dtype="f32")
    session = _core.Session(model, 1, 256)
    random = np.random.default_rng(1)
    return np.concatenate([session.logits(0, random.integers(0, VOCAB, n).tolist()) for n in TOKENS])


def guided_on(device: _core.Device, folder: Path, count: int = 8) -> list[int]:
    """The greedy ids of a session whose next id must be, by a mask, that of the last one modulo 3."""
    spec = load_spec(folder)
    tensors = bind(spec, SafetensorsIndex.open(folder))
    model = _core.Model(device, spec.decoder, tensors, blocks=1, kv_dtype="f32")
    session = _core.Session(model, 1, 256)
    session.configure(0)
    prompt = list(range(3, 3 + TOKENS[0]))
    ids = [prompt[-1]]
    for i in range(count):
        allowed = np.zeros(VOCAB, bool)
        allowed[ids[-1] % 3 :: 3] = True
        session.set_mask(0, np.packbits(allowed, bitorder="little").view("<u4").tolist())
        if i == 0:
            session.prefill(0, prompt, True)
        else:
            session.step([0])
        ids.append(session.drawn(0)[0])
    return ids[1:]


def _write_model(folder: Path) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "intermediate_size": INTERMEDIATE,
        "vocab_size": VOCAB,
        "num_hidden_layers": LAYERS,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens": (VOCAB, HIDDEN), "model.norm": (HIDDEN,)}
    for i in range(LAYERS):
        layer = f"model.layers.{i}"
        shapes |= {
            f"{layer}.input_layernorm": (HIDDEN,),
            f"{layer}.self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
            f"{layer}.self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{layer}.self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{layer}.self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
            f"{layer}.post_attention_layernorm": (HIDDEN,),
            f"{layer}.mlp.gate_proj": (INTERMEDIATE, HIDDEN),
            f"{layer}.mlp.up_proj": (INTERMEDIATE, HIDDEN),
            f"{layer}.mlp.down_proj": (HIDDEN, INTERMEDIATE),
        }
    random = np.random.default_rng(0)
    write_checkpoint(folder, [_job(f"{n}.weight", s, random) for n, s in shapes.items()], progress=False)


def _job(name: str, shape: tuple[int, ...], random: np.random.Generator) -> Job:
    """Linears at a scale that keeps the residual's size, norms near 1."""
    values = (
        random.standard_normal(shape) * shape[-1] ** -0.5
        if len(shape) == 2
        else 1 + 0.1 * random.random(shape)
    )
    array = values.astype(np.float32)
    return Job((Entry(name, "F32", shape),), lambda: iter([(array,)]), array.size)
