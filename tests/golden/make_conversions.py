"""Make tests/golden/conversions.json: what `mlx_lm.convert` makes of the families in other modes and bits.

    oracles/bin/python tests/golden/make_conversions.py  # environment: make_checkpoints.py

By family and mode a digest of all tensors, on mlx's CPU, and config.json's `quantization`. The sources are
the committed checkpoints; a router whose rows 64 does not divide gets groups of 32, as in make_families.py.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import mlx.core as mx
from make_families import FAMILIES, ROUTER_8, SHARED_GATE_8, Quantised
from make_family_checkpoints import OUT, mlx_source
from make_oracles import quantise

NAMES = ("qwen3_moe", "qwen3_moe-plain", "qwen3_next", "qwen3_5_moe", "gemma4-moe")
OWN = ("qwen3_moe-plain", "qwen3_5_moe")  # mlx-lm's own predicate can be taken
FORMS = {
    "mxfp4": (4, 32, "mxfp4"),
    "mxfp8": (8, 32, "mxfp8"),
    "q3g32": (3, 32, "affine"),
}


def digest(folder: Path) -> str:
    """Of the names in order with dtypes, shapes and bytes."""
    total = hashlib.sha256()
    raw = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header: dict[str, Any] = json.loads(raw[8 : 8 + size])
    header.pop("__metadata__", None)
    for name, entry in sorted(header.items()):
        start, end = (8 + size + at for at in entry["data_offsets"])
        total.update(f"{name} {entry['dtype']} {entry['shape']}\n".encode())
        total.update(raw[start:end])
    return total.hexdigest()


def main() -> None:
    mx.set_default_device(mx.cpu)
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for arch in FAMILIES:
            if arch.name not in NAMES:
                continue
            source = mlx_source(arch, OUT / arch.name, Path(scratch))
            overrides = {} if arch.name in OWN else ROUTER_8 | SHARED_GATE_8
            for form, (bits, group_size, mode) in FORMS.items():
                folder = Path(scratch) / f"{arch.name}-{form}"
                quantise(source, folder, Quantised(bits, group_size, overrides, mode))
                config = json.loads((folder / "config.json").read_text())
                result[folder.name] = {"digest": digest(folder), "quantization": config["quantization"]}
    target = OUT.parent / "conversions.json"
    target.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
