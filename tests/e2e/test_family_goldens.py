"""Mixture of experts, gated delta nets, Gemma 4 and their heads of several tokens against reference logits.

tests/golden/make_family_checkpoints.py made the checkpoints; tolerances are those of test_goldens.py.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from e2e.test_goldens import DEFAULT, EXACT, check_greedy, greedy, session, teacher_forced
from golden.mtp_reference import MtpReference
from saragossa.weights.convert import convert
from saragossa.weights.safetensors import SafetensorsIndex

FAMILIES = Path(__file__).parents[1] / "golden" / "families"
MANIFEST: dict[str, Any] = json.loads((FAMILIES / "manifest.json").read_text())

ENTRIES: dict[str, Any] = MANIFEST["checkpoints"]
# Gemma 4's scores are not scaled by the head's size, so the rounding of its keys to bfloat16 shows more.
DEFAULTS = {
    name: 0.2 if entry["model_type"].startswith("gemma4") else DEFAULT for name, entry in ENTRIES.items()
}
BASES = [name for name, entry in ENTRIES.items() if "form" not in entry]
LONG = [name for name in BASES if "long_prompt" in np.load(FAMILIES / f"{name}.npz").files]


def golden(name: str) -> dict[str, Any]:
    with np.load(FAMILIES / f"{MANIFEST['checkpoints'][name]['golden']}.npz") as arrays:
        return {key: arrays[key] for key in arrays.files}


def test_files_are_those_that_were_made() -> None:
    files = sorted(p for p in FAMILIES.rglob("*") if p.is_file() and p.name != "manifest.json")
    sums = {p.relative_to(FAMILIES).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}
    assert sums == MANIFEST["sha256"]


@pytest.mark.parametrize("name", [n for n, e in MANIFEST["checkpoints"].items() if e.get("mtp")])
def test_reference_of_the_head_reproduces_its_golden(name: str) -> None:
    """The reference is part of the tests; later the engine is held to it with states of its own."""
    z = golden(name)
    tensors = floats(FAMILIES / name)
    text = json.loads((FAMILIES / MANIFEST["checkpoints"][name]["golden"] / "config.json").read_text())
    reference = MtpReference(fused(tensors), text["text_config"])
    hidden = reference.hidden(z["mtp_states"][:-1], z["prompt"][1:])
    assert np.abs(hidden[-1] - z["mtp_hidden"]).max() < 1e-5
    assert np.abs(reference.logits(hidden) - z["mtp_logits"]).max() < 1e-5
    count = len(z["mtp_drafts"])
    drafts, _ = reference.drafts(z["mtp_states"], z["prompt"], int(z["greedy"][0]), count)
    assert drafts == z["mtp_drafts"].tolist()


@pytest.mark.parametrize("name", list(ENTRIES))
@pytest.mark.parametrize("exact", [True, False], ids=["exact", "default"])
def test_logits_and_greedy_ids(name: str, exact: bool) -> None:
    z = golden(name)
    prompt = z["prompt"].tolist()
    logits = session(FAMILIES / name, exact=exact).logits(0, prompt)
    assert np.abs(logits - z["logits"]).max() < (EXACT if exact else DEFAULTS[name])
    if exact:
        assert (logits.argmax(-1) == z["logits"].argmax(-1)).all()
    want, margins = z["greedy"].tolist(), z["margins"].tolist()
    least = 1e-3 if exact else 2 * DEFAULTS[name]
    forced = teacher_forced(session(FAMILIES / name, exact=exact), prompt, want)
    for step, (got, expected, margin) in enumerate(zip(forced, want, margins, strict=True)):
        assert got == expected or margin <= least, f"step {step}: {got} instead of {expected} at {margin:.3f}"
    check_greedy(greedy(session(FAMILIES / name, exact=exact), prompt, len(want)), want, margins, least)


@pytest.mark.parametrize("name", BASES)
def test_older_config_form_gives_the_same_logits(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    shutil.copytree(FAMILIES / name, folder)
    shutil.copy(folder / "config.hub.json", folder / "config.json")
    prompt = golden(name)["prompt"].tolist()
    want = session(FAMILIES / name, exact=True).logits(0, prompt)
    assert np.array_equal(session(folder, exact=True).logits(0, prompt), want)


@pytest.mark.parametrize("name", BASES)
def test_a_converted_folder_gives_the_same_logits(name: str, tmp_path: Path) -> None:
    """Stacked experts, norms with their one (exact in these checkpoints), the prediction beside them."""
    convert(FAMILIES / name, tmp_path / "out", progress=False)
    prompt = golden(name)["prompt"].tolist()
    want = session(FAMILIES / name, exact=True).logits(0, prompt)
    assert np.array_equal(session(tmp_path / "out", exact=True).logits(0, prompt), want)


@pytest.mark.parametrize("name", [n for n, e in ENTRIES.items() if "form" in e and "base" not in e])
def test_other_tensors_with_the_same_values_give_the_same_logits(name: str) -> None:
    prompt = golden(name)["prompt"].tolist()
    want = session(FAMILIES / ENTRIES[name]["golden"], exact=True).logits(0, prompt)
    assert np.array_equal(session(FAMILIES / name, exact=True).logits(0, prompt), want)


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("cut", [0, 1, 63, 64, 65, 101])
def test_long_prompt_in_two_pieces(name: str, cut: int) -> None:
    """150 tokens: several chunks of the delta rule in the reference."""
    z = golden(name)
    prompt = z["long_prompt"].tolist()
    core = session(FAMILIES / name, exact=True)
    if cut:
        core.prefill(0, prompt[:cut], False)
    logits = core.logits(0, prompt[cut:])
    kept = min(len(logits), len(z["long_logits"]))
    assert np.abs(logits[-kept:] - z["long_logits"][-kept:]).max() < EXACT
    assert (logits.argmax(-1) == z["long_argmax"][cut:]).all()


@pytest.mark.parametrize("name", list(ENTRIES))
def test_hidden_states_tell_the_first_wrong_layer(name: str) -> None:
    z = golden(name)
    hidden = session(FAMILIES / name, exact=True).hidden(0, z["prompt"].tolist())
    for layer in range(len(z["hidden_norm"]) - 2):
        want = z["hidden_first8"][layer + 1]
        assert np.allclose(hidden[layer, :8], want, atol=1e-4, rtol=1e-4), f"layer {layer}"
        norm = np.linalg.norm(hidden[layer])
        assert np.isclose(norm, z["hidden_norm"][layer + 1], rtol=1e-4), f"layer {layer}"


def floats(folder: Path) -> dict[str, Any]:
    """Every tensor of bf16 or float32 as float32, the text model's under `model.`."""
    tensors = {}
    for name, entry in SafetensorsIndex.open(folder).items():
        with entry.file.open("rb") as file:
            file.seek(entry.offset)
            raw = file.read(entry.nbytes)
        wide = np.frombuffer(raw, "<f4" if entry.dtype == "F32" else "<u2")
        if entry.dtype == "BF16":
            wide = (wide.astype(np.uint32) << 16).view(np.float32)
        tensors[name.replace("model.language_model.", "model.")] = wide.reshape(entry.shape)
    return tensors


def fused(tensors: dict[str, Any]) -> dict[str, Any]:
    """The head's experts in one tensor, as the reference reads them."""
    at = "mtp.layers.0.mlp.experts"
    count = sum(name.startswith(at) and name.endswith(".down_proj.weight") for name in tensors)
    if count:
        parts = [[tensors[f"{at}.{i}.{p}_proj.weight"] for p in ("gate", "up")] for i in range(count)]
        tensors[f"{at}.gate_up_proj"] = np.stack([np.concatenate(part) for part in parts])
        tensors[f"{at}.down_proj"] = np.stack([tensors[f"{at}.{i}.down_proj.weight"] for i in range(count)])
    return tensors
