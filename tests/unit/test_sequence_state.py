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
