"""Make the tiny checkpoints and their goldens under tests/golden/checkpoints (committed; deterministic).

    python -m venv oracles && oracles/bin/pip install torch==2.13.0 transformers==5.24.0 \\
        mlx==0.32.4 mlx-lm==0.32.2 safetensors          # on Linux also mlx-cpu==0.32.4
    oracles/bin/python tests/golden/make_checkpoints.py [name ...]

For every architecture: the checkpoint as transformers 5 writes it (`config.json`), the same config in the
Hub's older keys (`config.hub.json`), quantised copies made by `mlx_lm.convert`, and `<name>.npz` with what
transformers computes in float32 (quantised copies: on weights dequantised by an independent reader). Every
number is cross-checked with mlx-lm in float32; the largest difference is in `manifest.json`, as are the
versions, the sha256 of every file and how far the logits move when a part of the config is forgotten.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from make_architectures import ARCHITECTURES, Architecture, Variant, build, hub_config, save_tokenizer
from make_oracles import (
    copy_without,
    golden,
    load_dequantised,
    load_reference,
    mlx_run,
    quantise,
    reference_logits,
    sensitivity,
)

OUT = Path(__file__).parent / "checkpoints"
PACKAGES = ("torch", "transformers", "mlx", "mlx-lm", "safetensors", "tokenizers", "numpy")
TOLERANCE = 1e-4  # between the two oracles, both in float32
LEAST_MOVE = 0.02  # a forgotten part of the config must move a logit by at least this


def save_base(arch: Architecture, folder: Path) -> None:
    """Write the unquantised checkpoint with both forms of its config."""
    model = build(arch)
    shutil.rmtree(folder, ignore_errors=True)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    model.save_pretrained(folder, max_shard_size=size if arch.shards == 1 else int(size / arch.shards * 1.2))
    save_tokenizer(folder, arch.adds_bos)
    if len(list(folder.glob("*.safetensors"))) != arch.shards:
        raise RuntimeError(f"{arch.name}: not {arch.shards} shards")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.hub.json").write_text(json.dumps(hub_config(config, arch), indent=2) + "\n")


def check_hub_form(arch: Architecture, folder: Path, result: dict[str, Any]) -> None:
    """transformers reads both forms of the config as the same model."""
    logits = reference_logits(load_reference(folder, arch, "config.hub.json"), result["prompt"][None])[0]
    if not np.array_equal(logits, result["logits"]):
        raise RuntimeError(f"{arch.name}: the older config gives other logits")


def record(name: str, arch: Architecture, result: dict[str, Any], **facts: Any) -> dict[str, Any]:
    """Write `<name>.npz` and return the manifest's entry."""
    np.savez_compressed(OUT / f"{name}.npz", **result)
    if facts["mlx_max_logit_difference"] > TOLERANCE or facts["mlx_greedy_ids_that_differ"]:
        raise RuntimeError(f"{name}: the oracles disagree: {facts}")
    entry = {
        "model_type": arch.name.split("-")[0],
        "dtype": arch.dtype,
        "layers": len(result["hidden_norm"]) - 2,
        "smallest_margin": round(float(result["margins"].min()), 4),
        "logit_std": round(float(result["logits"].std()), 3),
        **{k: float(f"{v:.2g}") if isinstance(v, float) else v for k, v in facts.items()},
    }
    print(name, {k: v for k, v in entry.items() if k not in ("model_type", "dtype", "layers")}, flush=True)
    return entry


def make(arch: Architecture, scratch: Path) -> dict[str, Any]:
    """One architecture with all its variants; manifest entries by checkpoint name."""
    folder = OUT / arch.name
    save_base(arch, folder)
    hub = copy_without(folder, scratch / arch.name, "config.json", "config.hub.json")
    shutil.copy(folder / "config.hub.json", hub / "config.json")
    result = golden(load_reference(folder, arch), arch.long)
    check_hub_form(arch, folder, result)
    moved = sensitivity(folder, arch, result)
    if min(moved.values()) < LEAST_MOVE:
        raise RuntimeError(f"{arch.name}: a loader's fault would not show: {moved}")
    moves = {what: float(f"{v:.2g}") for what, v in moved.items()}
    entries = {arch.name: record(arch.name, arch, result, **mlx_run(hub, arch, result), logits_move=moves)}
    for variant in arch.variants:
        entries |= make_variant(arch, variant, hub)
    return entries


def make_variant(arch: Architecture, variant: Variant, hub: Path) -> dict[str, Any]:
    name = f"{arch.name}-{variant.suffix}"
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    quantise(hub, folder, variant)
    result = golden(load_dequantised(OUT / arch.name, folder, arch), arch.long)
    facts: dict[str, Any] = {"base": arch.name, "bits": variant.bits, "group_size": variant.group_size}
    return {name: record(name, arch, result, **facts, **mlx_run(folder, arch, result))}


def write_manifest(entries: dict[str, Any]) -> None:
    files = sorted(p for p in OUT.rglob("*") if p.is_file() and p.name != "manifest.json")
    manifest = {
        "made_by": "tests/golden/make_checkpoints.py",
        "versions": {package: importlib.metadata.version(package) for package in PACKAGES},
        "checkpoints": dict(sorted(entries.items())),
        "sha256": {p.relative_to(OUT).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files},
    }
    (OUT / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    print(f"{sum(p.stat().st_size for p in files) / 1e6:.1f} MB in {len(files)} files")


def main(names: list[str]) -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / "manifest.json"
    entries = json.loads(path.read_text())["checkpoints"] if names and path.exists() else {}
    with tempfile.TemporaryDirectory() as scratch:
        for arch in ARCHITECTURES:
            if not names or arch.name in names:
                entries |= make(arch, Path(scratch))
    write_manifest(entries)


if __name__ == "__main__":
    main(sys.argv[1:])
