"""Calls as Gemma 4 writes them: <|tool_call>call:name{key:<|"|>text<|"|>,n:3,list:[true]}<tool_call|>."""

from __future__ import annotations

import json
import re

from saragossa.text.reply.events import CallArguments, CallBegin, CallEnd, Event, Text
from saragossa.text.reply.json_stream import Copier, NotJson
from saragossa.text.reply.source import Source, Steps

OPEN, CLOSE, QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'
_HEAD = re.compile(r"\s*call:\s*([\w.-]+)\s*\{")
_BEGIN = re.compile(r"\s*(c(a(l(l(:\s*[\w.-]*\s*)?)?)?)?)?")  # of a head, as far as it came
_KEY = re.compile(r"[\w.$-]+")


def calls(source: Source, index: int) -> Steps[int]:
    """See `hermes.calls`."""
    while (match := _HEAD.match(source.text)) is None:
        if source.ended or _BEGIN.fullmatch(source.text) is None:
            yield Text(OPEN)
            return index
        yield None
    source.take(match.end())
    yield CallBegin(index, match[1])
    copier = _Gemma(source, lambda piece: CallArguments(index, piece))
    try:
        yield from copier.items("{")
    except NotJson:
        yield CallArguments(index, copier.rest())
        yield from source.copy_until([CLOSE], lambda _: Text(""))  # what cannot be read is dropped
    else:
        yield from source.skip_space()
        yield from source.begins(CLOSE)
    yield CallEnd(index)
    return index + 1


class _Gemma(Copier):
    """Keys need no quotation marks; strings have Gemma's own or ordinary ones, without escapes."""

    def key(self) -> Steps[str]:
        if quote := (yield from self._quote()):
            while (at := self.source.text.find(quote)) < 0:
                if self.source.ended:
                    raise NotJson
                yield None
            key = self.source.take(at)
            self.source.take(len(quote))
        else:
            key = self.source.take((yield from self.run(_KEY)))
        if (yield from self.next()) not in ":=" or not key:
            raise NotJson
        self.source.take(1)
        return key

    def string(self, before: str) -> Steps[bool]:
        quote = yield from self._quote()
        if not quote:
            return False
        yield self.make(before + '"')
        self.closers.append('"')
        if (yield from self.source.copy_until([quote], self._inside)) is None:
            raise NotJson
        self.closers.pop()
        yield self.make('"')
        return True

    def _quote(self) -> Steps[str]:
        """The quotation mark that comes next, taken; "" where there is none."""
        for mark in (QUOTE, '"', "'"):
            if (yield from self.source.begins(mark)):
                return mark
        return ""

    def _inside(self, text: str) -> Event:
        return self.make(json.dumps(text, ensure_ascii=False)[1:-1])
