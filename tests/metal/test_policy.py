"""What a system compiles, and in which language: csrc/metal/policy.cpp."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from metal.emulator import Emulator
from saragossa import _core, _core_test
from saragossa.errors import UsageError
from unit.ops.harness import Ops
from unit.ops.test_linear import inputs, linear, make

FAMILIES = {path.stem for path in (Path(__file__).parents[2] / "metal").glob("*.metal")}
MATRICES = {"matmul", "moe_sorted", "attention_prefill", "delta_chunks"}
TENSORS = {"matmul_tensor"}


@pytest.fixture
def machine(emulator: Emulator) -> Iterator[Emulator]:
    emulator.set("check", False)
    with emulator.mac():
        yield emulator
    assert emulator.reports() == []


@pytest.mark.parametrize(
    ("family", "system", "without"),
    [
        (7, "14.0", TENSORS),
        (8, "14.7", TENSORS),
        (10, "15.0", TENSORS),
        (9, "26.2", TENSORS),
        (10, "26.1", TENSORS),
        (10, "26.2", set()),
        (5, "14.0", TENSORS | MATRICES),
        (5, "26.2", TENSORS | MATRICES),
    ],
)
def test_what_is_compiled(machine: Emulator, family: int, system: str, without: set[str]) -> None:
    """All but what the machine has not. The emulator refuses a language that its system lacks."""
    machine.set("gpu_family", family)
    machine.set("os_version", system)
    compiled = _core.compile_metal_kernels()
    assert {name for name, _, functions, error in compiled if functions and not error} == FAMILIES - without
    assert len(compiled) == len(FAMILIES - without)


@pytest.mark.parametrize(("family", "language"), [(9, 310), (10, 400)])
def test_libraries_are_pinned_to_a_language(machine: Emulator, family: int, language: int) -> None:
    machine.set("gpu_family", family)
    machine.counters(reset=True)
    _core.compile_metal_kernels()
    assert machine.counters()["newest_language"] == language


def test_an_older_system_is_refused_by_name(machine: Emulator) -> None:
    machine.set("os_version", "13.6")
    message = "this system is macOS 13.6, macOS 14.0 or newer is needed; update it, or use --device cpu"
    with pytest.raises(UsageError, match=message):
        _core.Device("metal")
    with pytest.raises(UsageError, match=message):
        _core.compile_metal_kernels()
    assert not _core.metal_available()
    assert _core.Device("auto").name == "cpu"
    machine.set("os_version", "14.0")
    assert _core.Device("auto").name == "metal"


def test_other_simdgroups_are_refused_by_name(machine: Emulator) -> None:
    case, x = make(37, 192, 4, 64, "bf16"), inputs(1, 192)
    ops = Ops(device="metal")
    machine.set("reported_simd_width", 64)
    try:
        with pytest.raises(_core_test.CoreError, match="kernel matvec runs in simdgroups of 64"):
            linear(ops, case, x)
    finally:
        machine.set("reported_simd_width", 32)
    assert np.isfinite(linear(ops, case, x)).all()


def test_a_gpu_without_matrices_takes_the_kernels_for_few_rows(machine: Emulator) -> None:
    """A virtual machine's GPU is of family 5."""
    machine.set("gpu_family", 5)
    case, x = make(37, 192, 4, 64, "bf16"), inputs(20, 192)
    off = Ops(device="metal", metal_matmul=False)
    assert linear(Ops(device="metal"), case, x).tobytes() == linear(off, case, x).tobytes()
    machine.set("gpu_family", 9)
    assert linear(Ops(device="metal"), case, x).tobytes() != linear(off, case, x).tobytes()
