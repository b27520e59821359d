"""Stop strings over pieces."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saragossa.errors import ParameterError
from saragossa.text.stop import MAX_STOP_LENGTH, MAX_STOPS, StopStrings


def run(pieces: list[str], stops: list[str]) -> tuple[list[str], bool, int]:
    """Emitted pieces, whether a stop string ended them, and how many pieces were taken."""
    stream = StopStrings(stops)
    shown = []
    for i, piece in enumerate(pieces):
        emit, stopped = stream.push(piece)
        shown.append(emit)
        if stopped:
            return shown, True, i + 1
    return [*shown, stream.finish()], False, len(pieces)


def expected(text: str, stops: list[str]) -> tuple[str, bool]:
    """By definition: the shortest prefix of the text that ends with a stop string, less the longest one."""
    for end in range(1, len(text) + 1):
        found = [s for s in stops if text[:end].endswith(s)]
        if found:
            return text[: end - max(map(len, found))], True
    return text, False


def test_stop_string_over_pieces() -> None:
    shown, stopped, taken = run(["red gr", "een bl", "ue violet", "never"], ["green blue"])
    assert (shown, stopped, taken) == (["red ", "", ""], True, 3)


def test_held_text_comes_when_it_cannot_match() -> None:
    assert run(["red gr", "een", " bla", "!"], ["green blue"])[0] == ["red ", "", "green bla", "!", ""]
    assert run(["red gr"], ["green blue"])[0] == ["red ", "gr"]


def test_overlapping_starts() -> None:
    assert run(["aaa", "ab"], ["aab"])[:2] == (["a", "a"], True)
    assert run(["abab", "abc"], ["ababc"])[:2] == (["", "ab"], True)


def test_of_matches_that_end_together_the_longest_wins() -> None:
    stream = StopStrings(["lo", "hello", "ello w"])
    assert stream.push("say hello world") == ("say ", True)
    assert stream.matched == "hello"
    assert stream.push("more") == ("", True)
    assert stream.finish() == ""


def test_no_stops() -> None:
    assert run(["a", "b"], [])[0] == ["a", "b", ""]
    assert StopStrings(None).push("x") == ("x", False)
    assert StopStrings("x").push("axb") == ("a", True)


@given(
    text=st.text(alphabet="ab ", max_size=30),
    stops=st.lists(st.text(alphabet="ab ", min_size=1, max_size=6), max_size=4),
    cuts=st.lists(st.integers(0, 30), max_size=8),
)
@settings(max_examples=400, deadline=None)
def test_any_cut_gives_the_same_text(text: str, stops: list[str], cuts: list[int]) -> None:
    marks = sorted({min(c, len(text)) for c in cuts} | {0, len(text)})
    pieces = [text[a:b] for a, b in pairwise(marks)] or [""]
    shown, stopped, _ = run(pieces, stops)
    assert ("".join(shown), stopped) == expected(text, stops)


@given(
    text=st.text(alphabet="ab", max_size=20),
    stops=st.lists(st.text("ab", min_size=1, max_size=5), max_size=3),
)
@settings(max_examples=200, deadline=None)
def test_nothing_held_that_cannot_become_a_stop(text: str, stops: list[str]) -> None:
    stream = StopStrings(stops)
    shown = ""
    for i, char in enumerate(text):
        emit, stopped = stream.push(char)
        shown += emit
        if stopped:
            break
        held = text[len(shown) : i + 1]
        assert not held or any(s.startswith(held) for s in stops)


@pytest.mark.parametrize(
    ("stops", "words"),
    [
        (["a", ""], "stop[1] is empty"),
        ("", "stop[0] is empty"),
        (["a"] * (MAX_STOPS + 1), f"at most {MAX_STOPS}"),
        (["a" * (MAX_STOP_LENGTH + 1)], f"at most {MAX_STOP_LENGTH}"),
        ([1], "stop[0] is a int"),
        (7, "a string or a list of strings"),
        (b"ab", "a string or a list of strings"),
    ],
)
def test_bad_stops_are_named(stops: object, words: str) -> None:
    with pytest.raises(ParameterError) as error:
        StopStrings(stops)  # type: ignore[arg-type]
    assert words in str(error.value)
    assert error.value.param == "stop"


def test_long_near_misses_are_cheap() -> None:
    stream = StopStrings(["a" * k + "b" for k in range(MAX_STOP_LENGTH - MAX_STOPS, MAX_STOP_LENGTH)])
    start = time.perf_counter()
    for _ in range(1000):
        stream.push("a" * 100)
    assert time.perf_counter() - start < 2
