"""Stop strings over a stream of text pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from saragossa.errors import ParameterError

MAX_STOPS = 16
MAX_STOP_LENGTH = 1024


def check_stops(stops: str | Sequence[str] | None, *, param: str = "stop") -> tuple[str, ...]:
    """The stop strings as a tuple without doubles; a `ParameterError` names what is wrong."""
    if stops is None:
        return ()
    items: Sequence[object] = [stops] if isinstance(stops, str) else stops
    if isinstance(items, (bytes, bytearray)) or not isinstance(items, Sequence):
        raise ParameterError(param, f"{param} must be a string or a list of strings")
    if len(items) > MAX_STOPS:
        raise ParameterError(param, f"{param} has {len(items)} strings, at most {MAX_STOPS} are accepted")
    found: dict[str, None] = {}
    for i, stop in enumerate(items):
        if not isinstance(stop, str):
            raise ParameterError(param, f"{param}[{i}] is a {type(stop).__name__}, a string is expected")
        if not stop:
            raise ParameterError(param, f"{param}[{i}] is empty", cure="leave it out")
        if len(stop) > MAX_STOP_LENGTH:
            raise ParameterError(
                param, f"{param}[{i}] has {len(stop)} characters, at most {MAX_STOP_LENGTH} are accepted"
            )
        found[stop] = None
    return tuple(found)


class StopStrings:
    """Lets text through until a stop string is complete, and never a part of that stop string.

    The match that is complete first wins, and of several that end together the longest, so the result
    does not depend on how the text was cut into pieces. What may still become a stop string is held
    back: at most the longest stop string less one character. Each character costs O(1) (Aho-Corasick).
    """

    def __init__(self, stops: str | Sequence[str] | None) -> None:
        self.stops = check_stops(stops)
        self.matched: str | None = None  # the stop string that ended the text
        self._held = ""
        self._node = 0
        self._next, self._fail, self._depth, self._match = _automaton(self.stops)

    def push(self, delta: str) -> tuple[str, bool]:
        """Text that may be shown now, and whether a stop string is complete (nothing follows then)."""
        if self.matched is not None:
            return "", True
        if not self.stops:
            return delta, False
        text = self._held + delta
        node = self._node
        for i, char in enumerate(delta):
            while node and char not in self._next[node]:
                node = self._fail[node]
            node = self._next[node].get(char, 0)
            if self._match[node]:
                end = len(self._held) + i + 1
                length = self._match[node]
                self.matched = text[end - length : end]
                self._held, self._node = "", 0
                return text[: end - length], True
        self._node = node
        cut = len(text) - self._depth[node]
        self._held = text[cut:]
        return text[:cut], False

    def finish(self) -> str:
        """The text still held when the stream ends without a stop string."""
        held, self._held, self._node = self._held, "", 0
        return held


def _automaton(stops: Sequence[str]) -> tuple[list[dict[str, int]], list[int], list[int], list[int]]:
    """Aho-Corasick: children, failure link, depth and longest match length (0: none) of every node."""
    children: list[dict[str, int]] = [{}]
    depth, match = [0], [0]
    for stop in stops:
        node = 0
        for char in stop:
            if char not in children[node]:
                children[node][char] = len(children)
                children.append({})
                depth.append(depth[node] + 1)
                match.append(0)
            node = children[node][char]
        match[node] = len(stop)
    fail = [0] * len(children)
    queue = deque(children[0].values())
    while queue:
        node = queue.popleft()
        match[node] = match[node] or match[fail[node]]  # a node's own stop is longer than its suffixes
        for char, child in children[node].items():
            link = fail[node]
            while link and char not in children[link]:
                link = fail[link]
            fail[child] = children[link].get(char, 0)
            queue.append(child)
    return children, fail, depth, match
