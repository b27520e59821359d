"""Blocks and slots where memory grows: what was written stays, what fails takes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from saragossa import _core_test as core

# Of blocks and of slots: whether blocks, how many are there at first, then, and at most.
KINDS = [(True, 8, 16, 64), (False, 4, 8, 12)]


@pytest.fixture
def caches() -> Any:
    return core.GrowingCaches(core.Device("cpu", threads=1))


@pytest.mark.parametrize(("blocks", "first", "then", "most"), KINDS)
def test_what_was_written_stays_where_memory_grows(
    caches: Any, blocks: bool, first: int, then: int, most: int
) -> None:
    assert caches.allocated(blocks) == first
    places = []
    for i in range(most):
        places.append(caches.take(blocks))
        caches.write(blocks, places[-1], float(i))
        assert caches.free(blocks) == most - i - 1
        if i == first:
            assert caches.allocated(blocks) == then
    assert sorted(places) == list(range(most))
    assert all(caches.holds(blocks, place, float(i)) for i, place in enumerate(places))
    with pytest.raises(core.CoreError, match=f"all {most} "):
        caches.take(blocks)
    caches.release(blocks, 3)
    with pytest.raises(core.CoreError, match="3 released twice"):
        caches.release(blocks, 3)
    assert caches.take(blocks) == 3


@pytest.mark.parametrize(("allocations", "waits"), [(True, False), (False, True)])
@pytest.mark.parametrize(("blocks", "first", "then", "most"), KINDS)
def test_growth_that_fails_takes_nothing(
    caches: Any, blocks: bool, first: int, then: int, most: int, allocations: bool, waits: bool
) -> None:
    for _ in range(first):
        caches.write(blocks, caches.take(blocks), 7.0)
    caches.fail(allocations, waits)
    for _ in range(2):
        with pytest.raises(core.CoreError, match="the device fails"):
            caches.take(blocks)
        assert (caches.free(blocks), caches.allocated(blocks)) == (most - first, first)
    caches.fail(False, False)
    assert caches.take(blocks) == first
    assert caches.allocated(blocks) == then
    assert all(caches.holds(blocks, place, 7.0) for place in range(first))


def test_a_copy_that_fails_takes_nothing(caches: Any) -> None:
    block = caches.take(True)
    caches.write(True, block, 5.0)
    free = caches.free(True)
    caches.fail(False, True)
    for _ in range(3):
        with pytest.raises(core.CoreError, match="the device fails"):
            caches.copy(block)
        assert caches.free(True) == free
    caches.fail(False, False)
    assert caches.holds(True, caches.copy(block), 5.0)
    assert caches.free(True) == free - 1
