"""Calls as Qwen3-Coder and Qwen3.5 write them, between <tool_call> and </tool_call>:

    <function=name>
    <parameter=key>
    value
    </parameter>
    </function>

A value may hold such tags itself: it ends where the tags that must follow do follow, and of several places
where a whole call could end, the last one before the next call or the end of the reply counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from saragossa.text.reply import hermes
from saragossa.text.reply.events import CallArguments, CallBegin, CallEnd, Text
from saragossa.text.reply.json_stream import WORDS
from saragossa.text.reply.source import Source, Steps, partial

OPEN, CLOSE = hermes.OPEN, hermes.CLOSE
_FUNCTION, _PARAMETER = "<function", "<parameter"
_END_PARAMETER, _END_FUNCTION = "</parameter>", "</function>"
_END = re.compile(r"\s*</function>\s*(?:</tool_call>)?\s*")
_WHOLE_END = re.compile(r"</parameter>\s*</function>\s*</tool_call>")
_HEAD = re.compile(r"\s*=\s*(\"[^\"<>\n]+\"|'[^'<>\n]+'|[^\"'<>\s]+)\s*>")
_MOST_NAME = 256  # characters

Kinds = Mapping[str, Mapping[str, str]]
"""Of each tool, of each parameter: its JSON type, "" where it is not known or not one."""


def kinds_of(tools: list[dict[str, object]]) -> Kinds:
    """Of tools in OpenAI's form."""
    found: dict[str, dict[str, str]] = {}
    for tool in tools:
        function = tool.get("function")
        if not isinstance(function, dict):
            continue
        parameters = function.get("parameters")
        properties = parameters.get("properties") if isinstance(parameters, dict) else None
        kinds = {}
        for key, schema in (properties if isinstance(properties, dict) else {}).items():
            kind = schema.get("type") if isinstance(schema, dict) else None
            kinds[key] = kind if isinstance(kind, str) else ""
        found[str(function.get("name"))] = kinds
    return found


def reader(kinds: Kinds) -> Callable[[Source, int], Steps[int]]:
    """A reader of what stands behind `OPEN`; see `hermes.calls`."""

    def calls(source: Source, index: int) -> Steps[int]:
        source.keep()
        yield from source.skip_space()
        if source.text[:1] in ("{", "["):  # models that know both forms mix them
            source.put_back()
            return (yield from hermes.calls(source, index))
        name = (yield from _head(source)) if (yield from source.begins(_FUNCTION)) else None
        if name is None:
            yield Text(OPEN + source.kept())
            return index
        source.kept()
        yield CallBegin(index, name)
        yield from _parameters(source, index, kinds.get(name, {}))
        yield CallEnd(index)
        yield from source.skip_space()
        yield from source.begins(_END_FUNCTION)
        yield from source.skip_space()
        yield from source.begins(CLOSE)
        return index + 1

    return calls


def _head(source: Source) -> Steps[str | None]:
    """The name in `=name>`; None where there is none: then the line is taken, if there is one."""
    while True:
        if match := _HEAD.match(source.text):
            source.take(match.end())
            return match[1].strip("\"'")
        line = source.text.find("\n", len(source.text) - len(source.text.lstrip()))
        if source.ended or line >= 0 or len(source.text) > _MOST_NAME:
            return None
        yield None


def _parameters(source: Source, index: int, kinds: Mapping[str, str]) -> Steps[None]:
    opener, seen = "{", set()
    while (yield from source.skip_space()) and (yield from source.begins(_PARAMETER)):
        key = yield from _head(source)
        if key is None or key in seen:  # its value is dropped with it
            yield from _value(source, lambda _: None)
            continue
        seen.add(key)
        before = f"{opener}{json.dumps(key, ensure_ascii=False)}:"
        opener = ","
        if kinds.get(key, "string") == "string":
            yield CallArguments(index, before + '"')
            yield from _value(source, lambda piece: CallArguments(index, _inside(piece)))
            yield CallArguments(index, '"')
        else:
            parts: list[str] = []
            yield from _value(source, parts.append)
            yield CallArguments(index, before + _typed("".join(parts)))
    yield CallArguments(index, "{}" if opener == "{" else "}")


def _inside(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _typed(text: str) -> str:
    """JSON where it is some, in Python's spelling of words too; else a string."""
    plain = WORDS.get(text.strip(), text)
    try:
        return json.dumps(json.loads(plain), ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return json.dumps(text, ensure_ascii=False)


def _value(source: Source, make: Callable[[str], CallArguments | None]) -> Steps[None]:
    """Pass the value on, without the line breaks around it; its end tag is taken."""
    if not (yield from source.more(1)):
        return
    if source.text[0] == "\n":
        source.take(1)
    held = ""  # a line break that may be the last
    while True:
        at = source.text.find(_END_PARAMETER)
        found = at >= 0
        if not found:
            at = len(source.text) - (0 if source.ended else partial(source.text, _END_PARAMETER))
        piece = held + source.take(at)
        held = "\n" if piece.endswith("\n") else ""
        if (event := make(piece[: len(piece) - len(held)])) is not None:
            yield event
        if found:
            if (yield from _ends(source)):
                source.take(len(_END_PARAMETER))
                return
            if (event := make(held + source.take(len(_END_PARAMETER)))) is not None:
                yield event
            held = ""
        elif source.ended:
            return
        else:
            yield None


def _ends(source: Source) -> Steps[bool]:
    """Whether the end tag that comes next ends the value. Takes nothing."""
    begin = len(_END_PARAMETER)
    while True:
        rest = source.text[begin:].lstrip()
        waits = any(mark.startswith(rest) for mark in (_PARAMETER, _END_FUNCTION))
        if source.ended or not waits:
            break
        if rest in (_PARAMETER, _END_FUNCTION):
            break
        yield None
    if rest.startswith(_PARAMETER) or not rest:
        return True
    if not rest.startswith(_END_FUNCTION):
        return False
    while True:
        tail = source.text[begin:]
        end = _END.match(tail)
        after = tail[end.end() :] if end else ""
        if after.startswith(OPEN):
            return True
        call = after.find(OPEN)
        if call >= 0 or source.ended:
            return _WHOLE_END.search(after[: call if call >= 0 else len(after)]) is None
        yield None
