"""How many drafts are asked for: what is accepted and what it costs decide."""

from __future__ import annotations

from saragossa.engine.pace import LONGEST_PAUSE, PAUSE, SAMPLE, START, WINDOW, Pace


def steps(pace: Pace, count: int, seconds: float = 1.0) -> None:
    for _ in range(count):
        assert pace.wanted() == 0
        pace.plain(seconds)


def verify(pace: Pace, share: float, seconds: float) -> int:
    drafted = pace.wanted()
    assert drafted > 0
    pace.verified(drafted, int(share * drafted), seconds)
    return drafted


def test_counts_follow_what_is_accepted() -> None:
    pace = Pace(7)
    steps(pace, SAMPLE)
    assert [verify(pace, 1.0, 1.0) for _ in range(6)] == [START, 4, 5, 6, 7, 7]
    assert [verify(pace, 0.0, 1.0) for _ in range(3)] == [7, 6, 5]
    assert [verify(pace, 0.5, 1.0) for _ in range(2)] == [4, 4]  # half of them: neither more nor fewer


def test_most_bounds_them() -> None:
    pace = Pace(2)
    steps(pace, SAMPLE)
    assert [verify(pace, 1.0, 0.1) for _ in range(5)] == [2] * 5


def test_drafts_that_cost_more_than_they_give_rest_for_longer_and_longer() -> None:
    pace = Pace(4)
    steps(pace, SAMPLE)
    pause = PAUSE
    for _ in range(8):
        for _ in range(WINDOW):
            verify(pace, 1.0, 9.0)  # five tokens at most
        steps(pace, pause)
        pause = min(2 * pause, LONGEST_PAUSE)
    for _ in range(WINDOW):
        verify(pace, 1.0, 2.0)
    assert pace.wanted() > 0  # now they pay: they go on
    for _ in range(WINDOW):
        verify(pace, 1.0, 9.0)
    steps(pace, PAUSE)
    assert pace.wanted() > 0  # the rest was a short one again


def test_nothing_accepted_rests_whatever_it_costs() -> None:
    pace = Pace(4)
    steps(pace, SAMPLE)
    for _ in range(WINDOW):
        verify(pace, 0.0, 1e-9)
    assert pace.wanted() == 0


def test_a_fixed_count_stays() -> None:
    pace = Pace(3, adaptive=False)
    for _ in range(3 * WINDOW):
        assert verify(pace, 0.0, 9.0) == 3
