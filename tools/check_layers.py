"""Checks which layer of the C++ core includes which: `python tools/check_layers.py [ROOT]`.

A layer is a folder of csrc/ (or the files device.*, encoder* and op_types.h at its top, or metal/params).
Each may include itself and what ALLOWED lists. The Python side is held by import-linter (pyproject.toml).
Prints one line a violation and exits 1.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

# Arrows point one way: params -> core -> quant -> device -> encoder -> the backends and the model's side.
CONTRACT = {"params", "core", "quant", "device", "encoder"}
ALLOWED: dict[str, set[str]] = {
    "params": set(),
    "core": {"params"},
    "quant": {"params", "core"},
    "device": {"params", "core", "quant"},
    "encoder": {"params", "core", "quant", "device"},
    "cpu": CONTRACT,
    "metal": CONTRACT,
    "no_metal": CONTRACT | {"metal"},
    "weights": CONTRACT,
    "state": CONTRACT | {"weights"},
    "nn": CONTRACT | {"weights", "state"},
    "runtime": CONTRACT | {"weights", "state", "nn"},
    "python": CONTRACT | {"weights", "state", "nn", "runtime", "cpu", "metal"},
}
# The factory behind Device::open is the one place that names the backends.
EXCEPTIONS = {("device.cpp", "cpu/cpu_device.h"), ("device.cpp", "metal/metal_device.h")}

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
SUFFIXES = {".h", ".hpp", ".cpp", ".cc", ".inc", ".inl", ".mm"}


def layer_of(path: str) -> str | None:
    """The layer of a path relative to csrc/ (or metal/, for params); None where there is none."""
    head, slash, _ = path.partition("/")
    if slash:
        return head if head in ALLOWED else None
    if head == "op_types.h":
        return "encoder"
    return next((name for name in ("device", "encoder") if head.startswith(name)), None)


def violations(root: Path) -> Iterator[str]:
    """One line for each include that points the wrong way or nowhere."""
    csrc, metal = root / "csrc", root / "metal"
    files = [(f, f.relative_to(csrc)) for f in sorted(csrc.rglob("*")) if f.suffix in SUFFIXES]
    files += [(f, f.relative_to(metal)) for f in sorted((metal / "params").glob("*.h"))]
    for file, relative in files:
        own = layer_of(relative.as_posix())
        where = file.relative_to(root)
        if own is None:
            yield f"{where}: no layer has this file; add its folder to tools/check_layers.py"
            continue
        text = file.read_text(encoding="utf-8")
        for match in INCLUDE.finditer(text):
            included = match[1]
            line = text.count("\n", 0, match.start(1)) + 1
            target = layer_of(included)
            if target is None or not any((base / included).is_file() for base in (csrc, metal)):
                yield f"{where}:{line}: {included} is no file below csrc/ or metal/ (write paths from there)"
            elif target != own and target not in ALLOWED[own] and (str(relative), included) not in EXCEPTIONS:
                allowed = ", ".join(sorted(ALLOWED[own])) or "nothing"
                yield f"{where}:{line}: {own} includes {included}; it may include {allowed}"


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]
    found = list(violations(root))
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
