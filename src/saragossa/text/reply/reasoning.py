"""Reasoning in front of an answer, between two tags."""

from __future__ import annotations

from saragossa.text.reply.events import Event, Reasoning
from saragossa.text.reply.source import Source, Steps

OPEN, CLOSE = "<think>", "</think>"


class _Trimmed:
    """White space around the reasoning is no part of it."""

    def __init__(self) -> None:
        self._space = ""
        self._begun = False

    def __call__(self, piece: str) -> Event:
        piece = self._space + piece if self._begun else piece.lstrip()
        self._begun |= bool(piece)
        kept = piece.rstrip()
        self._space = piece[len(kept) :]
        return Reasoning(kept)


def reasoning(source: Source, *, opened: bool) -> Steps[bool]:
    """The reasoning that comes next, if any. Returns whether there was some.

    opened: the prompt ends inside of it. Whatever stands in it is prose, calls of tools too.
    """
    if not opened:
        source.keep()
        yield from source.skip_space()
        if not (yield from source.begins(OPEN)):
            source.put_back()
            return False
        source.kept()
    elif (yield from source.skip_space()):
        yield from source.begins(OPEN)  # some models open it once more
    yield from source.copy_until([CLOSE], _Trimmed())
    return True
