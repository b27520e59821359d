"""Tests of the Metal device. Elsewhere than on a Mac they run on the emulator, in a process of their own:

    make test-metal

The emulator's build of the core (build/metal) takes the place of the installed one before it is imported.
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
        known = sys.modules.get(f"saragossa.{name}")
        if known is not None and Path(str(known.__file__)).parent == BUILD:
            continue  # pytest and the benches import this file under two names
        if known is not None:
            raise RuntimeError("the Metal tests need a process of their own: run `make test-metal`")
        load(name)


if sys.platform != "darwin":
    take_over()
