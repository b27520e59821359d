"""Calls as Mistral models write them.

Newer ones: [TOOL_CALLS]name[ARGS]{...}, with [CALL_ID]... between the two from some of them; older ones:
[TOOL_CALLS] and a list of objects with name and arguments.
"""

from __future__ import annotations

import re

from saragossa.text.reply import hermes
from saragossa.text.reply.events import CallArguments, CallBegin, CallEnd, Text
from saragossa.text.reply.json_stream import copy_value
from saragossa.text.reply.source import Source, Steps

OPEN = "[TOOL_CALLS]"
_HEAD = re.compile(r"\s*([\w.-]+)\s*(?:\[CALL_ID\]\s*[\w-]*\s*)?\[ARGS\]\s*(?=\{)")
_BEGIN = re.compile(r"\s*(?:[\w.-]+\s*(?:\[[\w\[\]\s-]*)?)?")  # of a head, as far as it came
_MOST_HEAD = 512  # characters


def calls(source: Source, index: int) -> Steps[int]:
    """See `hermes.calls`."""
    if (yield from source.skip_space()) and source.text[0] == "[":
        return (yield from hermes.objects(source, index, opened=OPEN, close=""))
    while (match := _HEAD.match(source.text)) is None:
        possible = _BEGIN.fullmatch(source.text) is not None and len(source.text) < _MOST_HEAD
        if source.ended or not possible:
            yield Text(OPEN)
            return index
        yield None
    source.take(match.end())
    yield CallBegin(index, match[1])
    yield from copy_value(source, lambda piece: CallArguments(index, piece))
    yield CallEnd(index)
    return index + 1
