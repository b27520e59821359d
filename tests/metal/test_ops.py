"""Each op case of the contract on the Metal device, against scalar CPU."""

from __future__ import annotations

import pytest

from metal.emulator import Emulator
from unit.ops.all_cases import CASES
from unit.ops.cases import Case
from unit.ops.harness import Array, Ops, error, read

ORDERS = ["in_order", "reversed", "random"]


@pytest.fixture(scope="module")
def metal() -> Ops:
    return Ops(device="metal")


@pytest.fixture(scope="module")
def scalar() -> Ops:
    return Ops("scalar")


def run(case: Case, ops: Ops) -> dict[str, Array]:
    enc = ops.begin()
    out = case.encode(ops, enc, case.inputs())
    enc.submit().wait()
    return read(out)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_metal_against_scalar(case: Case, metal: Ops, scalar: Ops, emulator: Emulator) -> None:
    want = run(case, scalar)
    for order in ORDERS:
        emulator.set("check", True)
        emulator.set("order", order)
        got = run(case, metal)
        assert emulator.reports() == []
        for name in want:
            assert error(got[name], want[name]) <= case.tolerance, (name, order)
