"""Calls as Qwen3 and Hermes models write them: <tool_call>{"name": ..., "arguments": {...}}</tool_call>."""

from __future__ import annotations

import json
from collections.abc import Container

from saragossa.text.messages import parse_arguments
from saragossa.text.reply.events import CallArguments, CallBegin, CallEnd, Event, Text
from saragossa.text.reply.json_stream import NotJson, copy_value, string, whole
from saragossa.text.reply.source import Source, Steps

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_NAMES, _ARGUMENTS = ("name", "function"), ("arguments", "parameters")


def calls(source: Source, index: int) -> Steps[int]:
    """What stands behind `OPEN`: one call, or a list of some. Returns the index of the next call.

    What is no call, as far as nothing of it was passed on, is text.
    """
    return objects(source, index, opened=OPEN, close=CLOSE)


def objects(
    source: Source, index: int, *, opened: str, close: str, names: Container[str] | None = None
) -> Steps[int]:
    """As `calls`, between other marks. names: a call has arguments, and one of these names."""
    source.keep()
    try:
        if not (yield from source.skip_space()):
            raise NotJson
        several = source.text[0] == "["
        if several:
            source.take(1)
        while True:
            index = yield from _call(source, index, names)
            follows = yield from source.skip_space()
            if not several or not follows or source.text[0] not in ",]":
                break
            if source.take(1) == "]":
                break
    except NotJson:
        yield Text(opened + source.kept())
        return index
    source.kept()
    yield from source.skip_space()
    yield from source.begins(close)
    return index


def _call(source: Source, index: int, names: Container[str] | None) -> Steps[int]:
    """One object. Raises NotJson where it is none and nothing was passed on."""
    yield from _expect(source, "{")
    name, arguments = "", ""

    def piece(text: str) -> Event:
        return CallArguments(index, text)

    while (yield from source.skip_space()) and source.text[0] != "}":
        key = yield from _key(source)
        if key in _NAMES and not name:
            name = yield from string(source)
            if names is not None and name not in names:
                raise NotJson
        elif key in _ARGUMENTS and name and source.text[0] == "{":
            source.kept()
            yield CallBegin(index, name)
            if (yield from copy_value(source, piece)):
                yield from _rest(source)
            yield CallEnd(index)
            return index + 1
        else:
            value = yield from whole(source)
            arguments = value if key in _ARGUMENTS else arguments
        yield from _comma(source)
    if not name or not source.text or (names is not None and not arguments):
        raise NotJson
    parsed = parse_arguments(json.loads(arguments)) if arguments else {}
    if not isinstance(parsed, dict):
        raise NotJson
    source.take(1)
    source.kept()
    yield CallBegin(index, name)
    yield CallArguments(index, json.dumps(parsed, ensure_ascii=False))
    yield CallEnd(index)
    return index + 1


def _rest(source: Source) -> Steps[None]:
    """What follows the arguments in the object, as far as it can be read: it is dropped."""
    try:
        yield from _comma(source)
        while (yield from source.skip_space()) and source.text[0] != "}":
            yield from _key(source)
            yield from whole(source)
            yield from _comma(source)
    except NotJson:
        return
    if source.text:
        source.take(1)


def _key(source: Source) -> Steps[str]:
    """A key and its colon; its value comes next."""
    key = yield from string(source)
    yield from _expect(source, ":")
    if not (yield from source.skip_space()):
        raise NotJson
    return key


def _comma(source: Source) -> Steps[None]:
    if (yield from source.skip_space()) and source.text[0] == ",":
        source.take(1)


def _expect(source: Source, character: str) -> Steps[None]:
    if not (yield from source.skip_space()) or source.text[0] != character:
        raise NotJson
    source.take(1)
