"""A sequence's recurrent state around a step that fails: kept, or lost and said so."""

from __future__ import annotations

from typing import Any

import pytest

from saragossa import _core_test as core


@pytest.fixture
def cache() -> Any:
    return core.RecurrentOnlyCache(core.Device("cpu", threads=1))


def marked(cache: Any) -> Any:
    """Four tokens with a mark behind them, then one that may be written over."""
    state = core.SequenceState(cache)
    state.advance(4, False)
    state.commit(4)
    state.mark()
    state.advance(1, True)
    state.commit(1)
    return state


def test_a_step_in_place_that_failed_loses_the_state(cache: Any) -> None:
    state = marked(cache)
    begin, end = state.advance(1, True)
    assert begin == end
    state.lose()
    assert state.length == 5
    assert state.rewindable(5) == 4
    other = core.SequenceState(cache)
    for use in (
        lambda: state.advance(1, True),
        lambda: state.advance(1, False),
        state.mark,
        lambda: other.share(state),
    ):
        with pytest.raises(core.CoreError, match=r"of 5 tokens were lost .* needs a snapshot, .* to 4"):
            use()
    with pytest.raises(core.CoreError, match="needs a snapshot"):
        state.rewind(5)


@pytest.mark.parametrize("way", ["rewind", "snapshot"])
def test_a_lost_state_comes_back(cache: Any, way: str) -> None:
    state, snapshot = marked(cache), core.SequenceState(cache)
    snapshot.share(state)
    state.rewind(5)
    state.advance(1, False)
    state.commit(1)
    begin, end = state.advance(1, True)
    assert begin == end
    state.lose()
    if way == "rewind":
        state.rewind(4)
    else:
        state.share(snapshot)
    assert state.length == (4 if way == "rewind" else 5)
    state.advance(1, True)
    state.commit(1)
    state.mark()


def test_what_was_not_written_over_is_kept(cache: Any) -> None:
    state = marked(cache)
    free = cache.free_slots
    state.advance(1, False)
    state.lose()
    state.advance(1, True)  # told, not run
    state.cancel()
    state.mark()
    state.rewind(5)
    begin, end = state.advance(1, True)  # a mark holds what it starts from
    assert begin != end
    state.lose()
    state.rewind(5)
    assert cache.free_slots == free


def step(state: Any, mark: bool = False) -> None:
    state.advance(1, False)
    state.commit(1)
    if mark:
        state.mark()


def small(slots: int) -> Any:
    return core.RecurrentOnlyCache(core.Device("cpu", threads=1), slots)


def test_the_oldest_mark_makes_room() -> None:
    cache = small(4)
    state = core.SequenceState(cache)
    for _ in range(20):
        step(state, mark=True)
    assert state.rewindable(20) == 20
    step(state)
    assert [state.rewindable(to) for to in (20, 19, 18, 17)] == [20, 19, 18, 0]


def test_a_pinned_mark_stays() -> None:
    state = core.SequenceState(small(4))
    step(state)
    state.pin()
    for _ in range(30):
        step(state, mark=True)
    assert state.rewindable(10) == 1
    state.unpin()
    step(state)
    step(state)
    assert state.rewindable(10) == 0


def test_many_marks_leave_a_pinned_one() -> None:
    state = core.SequenceState(small(64))
    step(state)
    state.pin()
    for _ in range(60):
        step(state, mark=True)
    assert state.rewindable(1) == 1


def test_sequences_at_rest_give_marks_the_longest_first() -> None:
    cache = small(6)
    first, second, runs = (core.SequenceState(cache) for _ in range(3))
    for state in (first, second):
        step(state, mark=True)
        step(state)
    assert cache.free_slots == 2
    step(runs)
    assert (first.rewindable(1), second.rewindable(1)) == (1, 1)
    runs.mark()
    step(runs)  # the last free one
    step(runs)  # its own mark goes before those of others
    assert (runs.rewindable(1), first.rewindable(1), second.rewindable(1)) == (0, 1, 1)
    runs.mark()
    held = core.SequenceState(cache)
    held.share(runs)  # as a snapshot does: the mark of `runs` alone makes no room
    step(runs)
    assert (first.rewindable(1), second.rewindable(1)) == (1, 1)
    step(runs)
    assert (first.rewindable(1), second.rewindable(1)) == (0, 1)
    assert held.rewindable(3) == held.length == 3


def test_what_a_snapshot_holds_stays_where_all_is_taken() -> None:
    cache = small(2)
    state, held = core.SequenceState(cache), core.SequenceState(cache)
    step(state)
    held.share(state)
    state.mark()
    step(state)
    for _ in range(2):  # and the refusal takes nothing
        with pytest.raises(core.CoreError, match="all 2 are in use"):
            state.advance(1, False)
        assert (state.length, held.length, cache.free_slots) == (2, 1, 0)
    del held
    step(state)
    assert state.length == 3
