"""Code compiled for one instruction set stays in its namespace.

An inline function of a shared header, compiled with AVX-512 flags, is a weak symbol: the linker may take
it for everybody, and a machine without AVX-512 then stops. So these objects may define none outside of
their namespace.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

BUILD = Path(__file__).parents[3] / "build" / "dev"  # where `make build` builds


@pytest.mark.parametrize("isa", ["avx2", "avx512", "neon"])
def test_no_weak_symbols_outside_of_the_namespace(isa: str) -> None:
    objects = sorted(BUILD.glob(f"**/saragossa_core_{isa}.dir/**/*.o"))
    nm = shutil.which("nm")
    if not objects or nm is None:
        pytest.skip(f"nm or objects of {isa} in {BUILD.name} are missing: not built here by `make build`")
    listing = subprocess.run(
        [nm, "-C", *map(str, objects)], capture_output=True, text=True, check=True
    ).stdout
    lines = [line.split(maxsplit=2) for line in listing.splitlines()]
    defined = [parts for parts in lines if len(parts) == 3]
    assert any(f"cpu::{isa}::kernels" in name for _, _, name in defined)
    leaks = [name for _, kind, name in defined if kind in "WVu" and f"cpu::{isa}::" not in name]
    assert leaks == []
