"""Calls as Gemma 4 writes them: <|tool_call>call:name{key:<|"|>text<|"|>,n:3,list:[true]}<tool_call|>."""

from __future__ import annotations

import json
import re

from saragossa.text.reply.events import CallArguments, CallBegin, CallEnd, Text
from saragossa.text.reply.json_stream import MOST_DEPTH, NotJson
from saragossa.text.reply.source import Source, Steps

OPEN, CLOSE, QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'
_HEAD = re.compile(r"\s*call:\s*([\w.-]+)\s*\{")
_BEGIN = re.compile(r"\s*(c(a(l(l(:\s*[\w.-]*\s*)?)?)?)?)?")  # of a head, as far as it came
_KEY = re.compile(r"[\w.$-]+")
_PLAIN = re.compile(r"[\w.+-]")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_WORDS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}


def calls(source: Source, index: int) -> Steps[int]:
    """See `hermes.calls`."""
    while (match := _HEAD.match(source.text)) is None:
        if source.ended or _BEGIN.fullmatch(source.text) is None:
            yield Text(OPEN)
            return index
        yield None
    source.take(match.end())
    yield CallBegin(index, match[1])
    copier = _Copier(source, index)
    try:
        yield from copier.items("{", 0)
    except NotJson:
        yield CallArguments(index, "".join(reversed(copier.closers)))
        yield from source.copy_until([CLOSE], lambda _: Text(""))  # what cannot be read is dropped
    else:
        yield from source.skip_space()
        yield from source.begins(CLOSE)
    yield CallEnd(index)
    return index + 1


class _Copier:
    """As in json_stream: what was passed on can always be closed."""

    def __init__(self, source: Source, index: int) -> None:
        self.source, self.index = source, index
        self.closers: list[str] = []

    def _piece(self, text: str) -> CallArguments:
        return CallArguments(self.index, text)

    def _next(self) -> Steps[str]:
        if not (yield from self.source.skip_space()):
            raise NotJson
        return self.source.text[0]

    def items(self, before: str, depth: int) -> Steps[None]:
        """What follows an opening bracket, which ends `before`."""
        closer = "}" if before[-1] == "{" else "]"
        yield self._piece(before)
        self.closers.append(closer)
        comma = ""
        while (yield from self._next()) != closer:
            key = ""
            if closer == "}":
                key = json.dumps((yield from self._key()), ensure_ascii=False) + ":"
            yield from self._value(comma + key, depth + 1)
            comma = ","
            if (yield from self._next()) == ",":
                self.source.take(1)
            elif self.source.text[0] != closer:
                raise NotJson
        self.source.take(1)
        self.closers.pop()
        yield self._piece(closer)

    def _key(self) -> Steps[str]:
        quote = yield from self._quote()
        if quote:
            while (at := self.source.text.find(quote)) < 0:
                if self.source.ended:
                    raise NotJson
                yield None
            key = self.source.take(at)
            self.source.take(len(quote))
        else:
            key = yield from self._run(_KEY)
        if (yield from self._next()) not in ":=" or not key:
            raise NotJson
        self.source.take(1)
        return key

    def _quote(self) -> Steps[str]:
        """The quotation mark that comes next, taken; "" where there is none."""
        for mark in (QUOTE, '"', "'"):
            if (yield from self.source.begins(mark)):
                return mark
        return ""

    def _run(self, characters: re.Pattern[str]) -> Steps[str]:
        length = 0
        while (yield from self.source.more(length + 1)) and characters.match(self.source.text[length]):
            length += 1
        return self.source.take(length)

    def _value(self, before: str, depth: int) -> Steps[None]:
        if depth > MOST_DEPTH:
            raise NotJson
        first = yield from self._next()
        if first in "{[":
            self.source.take(1)
            yield from self.items(before + first, depth)
        elif quote := (yield from self._quote()):
            yield self._piece(before + '"')
            self.closers.append('"')
            if (yield from self.source.copy_until([quote], self._inside)) is None:
                raise NotJson
            self.closers.pop()
            yield self._piece('"')
        else:
            word = yield from self._run(_PLAIN)
            if word not in _WORDS and not _NUMBER.fullmatch(word):
                raise NotJson
            yield self._piece(before + _WORDS.get(word, word))

    def _inside(self, text: str) -> CallArguments:
        return self._piece(json.dumps(text, ensure_ascii=False)[1:-1])
