"""Calls as Llama 3 writes them: {"name": ..., "parameters": {...}}, alone or behind <|python_tag|>.

More than one stand behind each other with semicolons between them. A reply that is another object is text.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from saragossa.text.reply import hermes
from saragossa.text.reply.source import Source, Steps

OPEN = "<|python_tag|>"


def reader(names: Container[str], opened: str = OPEN) -> Callable[[Source, int], Steps[int]]:
    """A reader of what stands behind `opened`; names: of the tools. See `hermes.calls`."""

    def calls(source: Source, index: int) -> Steps[int]:
        before, mark = -1, opened
        while index > before:
            before = index
            index = yield from hermes.objects(source, index, opened=mark, close="", names=names)
            mark = ";"
            if not (yield from source.begins(";")):
                break
        return index

    return calls
