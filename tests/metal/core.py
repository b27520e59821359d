"""The core that runs on Metal: on a Mac the installed one, elsewhere the emulator's build (build/metal).

Importing this puts it in the place of the installed one; nothing may have imported that before.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "metal" / "csrc"


def load(name: str) -> ModuleType:
    """The extension module `saragossa.<name>` of the emulator's build."""
    full = f"saragossa.{name}"
    found = sorted(BUILD.glob(f"{name}.*.so"))
    if not found:
        raise RuntimeError(f"no {name} in {BUILD}: run `make build-metal`")
    spec = importlib.util.spec_from_file_location(full, found[0])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module
    spec.loader.exec_module(module)
    return module


def take_over() -> None:
    """Puts the emulator's core in the place of the installed one."""
    for name in ("_core", "_core_test"):
        if f"saragossa.{name}" in sys.modules:
            raise RuntimeError("the Metal tests need a process of their own: run `make test-metal`")
        load(name)


if sys.platform != "darwin":
    take_over()
