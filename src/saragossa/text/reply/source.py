"""Text that arrives in pieces, for parsers that are written as if all of it were there.

A parser is a generator: it yields events, and None where it needs more text. `Source` has the text that
nobody took yet.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

from saragossa.text.reply.events import Event

T = TypeVar("T")
Steps = Generator[Event | None, None, T]
"""Yields events, None for "more text, please", and ends with a value."""


class Source:
    """text: what was not taken yet. ended: no more will come."""

    def __init__(self) -> None:
        self.text = ""
        self.ended = False
        self._kept: list[str] | None = None

    def take(self, count: int) -> str:
        """The next `count` characters, which are there."""
        taken, self.text = self.text[:count], self.text[count:]
        if self._kept is not None:
            self._kept.append(taken)
        return taken

    def keep(self) -> None:
        """From here on remember what is taken, for `kept` and `put_back`."""
        self._kept = []

    def kept(self) -> str:
        """What was taken since `keep`; no longer remembered."""
        text = "".join(self._kept or ())
        self._kept = None
        return text

    def put_back(self) -> None:
        """Untake what was taken since `keep`."""
        self.text = self.kept() + self.text

    def more(self, count: int) -> Steps[bool]:
        """Wait until `count` characters are there; False where the text ends before."""
        while len(self.text) < count and not self.ended:
            yield None
        return len(self.text) >= count

    def skip_space(self) -> Steps[bool]:
        """Take white space; False where nothing follows it."""
        while True:
            self.take(len(self.text) - len(self.text.lstrip()))
            if self.text or self.ended:
                return bool(self.text)
            yield None

    def begins(self, mark: str) -> Steps[bool]:
        """Whether `mark` comes next; it is taken."""
        while mark.startswith(self.text) and len(self.text) < len(mark) and not self.ended:
            yield None
        if not self.text.startswith(mark):
            return False
        self.take(len(mark))
        return True

    def copy_until(self, marks: Sequence[str], make: Callable[[str], Event]) -> Steps[str | None]:
        """Pass text on as it comes, up to the first of the marks, which is taken and returned; None: the end.

        What may be the beginning of a mark waits.
        """
        while True:
            found = min(((at, m) for m in marks if (at := self.text.find(m)) >= 0), default=None)
            if found is not None:
                if found[0]:
                    yield make(self.take(found[0]))
                self.take(len(found[1]))
                return found[1]
            safe = len(self.text) - (
                0 if self.ended else max((partial(self.text, m) for m in marks), default=0)
            )
            if safe:
                yield make(self.take(safe))
            if self.ended:
                return None
            yield None


def partial(text: str, mark: str) -> int:
    """Length of the longest end of `text` with which `mark` begins, less than all of it."""
    for length in range(min(len(text), len(mark) - 1), 0, -1):
        if text.endswith(mark[:length]):
            return length
    return 0
