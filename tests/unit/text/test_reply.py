"""Replies in pieces: reasoning, text and calls are the same however the text is cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saragossa.text.reply.events import CallArguments, CallBegin, CallEnd, Event, Reasoning, Text
from saragossa.text.reply.json_stream import copy_value
from saragossa.text.reply.parser import HERMES, ReplyParser
from saragossa.text.reply.source import Source


def parse(pieces: list[str], **options: Any) -> list[Event]:
    parser = ReplyParser(options.pop("form", HERMES), **options)
    return [*(event for piece in pieces for event in parser.push(piece)), *parser.finish()]


def said(events: list[Event]) -> tuple[str, str, list[tuple[str, str]]]:
    """Reasoning, text, (name, arguments) of the calls; each call begins and ends once, in order."""
    calls: list[list[str]] = []
    ended = 0
    for event in events:
        match event:
            case CallBegin(index, name):
                assert index == len(calls) == ended
                calls.append([name, ""])
            case CallArguments(index, piece):
                assert index == len(calls) - 1 == ended
                calls[index][1] += piece
            case CallEnd(index):
                assert index == ended
                ended += 1
    assert ended == len(calls)
    return (
        "".join(e.text for e in events if isinstance(e, Reasoning)),
        "".join(e.text for e in events if isinstance(e, Text)),
        [(name, arguments) for name, arguments in calls],
    )


def call(name: str, arguments: object) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


TIDE = [("tide", '{"place":"Delfzijl"}'), ("tide", '{"place":"Urk"}'), ("tide", '{"place":"Vlissingen"}')]
THREE = "\n".join(call("tide", json.loads(arguments)) for _, arguments in TIDE)
TRICKY = {"t": '</tool_call> and {["\\'}
QUOTED = json.dumps(TRICKY, separators=(",", ":"))
CASES: list[tuple[str, dict[str, Any], tuple[str, str, list[tuple[str, str]]]]] = [
    (" Four. ", {}, ("", " Four. ", [])),
    (THREE, {}, ("", "", TIDE)),
    ("Let me look.\n\n" + THREE, {}, ("", "Let me look.", TIDE)),
    (call("list_users", {}), {}, ("", "", [("list_users", "{}")])),
    ('<tool_call>{"name": "list_users"}</tool_call>', {}, ("", "", [("list_users", "{}")])),
    ('<tool_call>{"arguments": {"a": [1, 2]}, "name": "f"}</tool_call>', {},
     ("", "", [("f", '{"a": [1, 2]}')])),
    ('<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', {}, ("", "", [("f", '{"a": 1}')])),
    ('<tool_call>[{"name": "f", "arguments": {}}, {"name": "g"}]</tool_call>', {}, ("", "", [("f", "{}"),
     ("g", "{}")])),
    ('<tool_call>{"name": "f", "arguments": {"a": True,}}</tool_call> Done', {},
     ("", "Done", [("f", '{"a":true}')])),
    ('<tool_call>{"name": "f", "arguments": {"a": "x\ny', {}, ("", "", [("f", '{"a":"x\\ny"}')])),
    ('<tool_call>{"name": "f", "arguments": {"a": {"b":', {}, ("", "", [("f", '{"a":{}}')])),
    ("<tool_call>rubbish</tool_call>", {}, ("", "<tool_call>rubbish</tool_call>", [])),
    ("<tool_call>", {}, ("", "<tool_call>", [])),
    ('a <tool_call>{"name": 3} b', {}, ("", 'a <tool_call>{"name": 3} b', [])),
    (call("f", TRICKY), {}, ("", "", [("f", QUOTED)])),
    (THREE, {"form": None}, ("", THREE, [])),
    ("<think>\nSome write <tool_call> or so.\n</think>\n\nAll fine.", {"thinking": True},
     ("Some write <tool_call> or so.", "All fine.", [])),
    ("Two and two", {"thinking": True, "opened": True}, ("Two and two", "", [])),
    ("Two.</think>Four.", {"thinking": True, "opened": True}, ("Two.", "Four.", [])),
    ("<think>\nTwo.</think>Four.", {"thinking": True, "opened": True}, ("Two.", "Four.", [])),
    ("Four.", {"thinking": True}, ("", "Four.", [])),
    (" <thin", {"thinking": True}, ("", " <thin", [])),
    ("<think>x</think>Four.", {}, ("", "<think>x</think>Four.", [])),
    ("<think></think>\n\n" + call("f", {}), {"thinking": True}, ("", "", [("f", "{}")])),
]  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
@pytest.mark.parametrize(("text", "options", "want"), CASES)
def test_a_reply(text: str, options: dict[str, Any], want: object, size: int) -> None:
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    assert said(parse(pieces, **dict(options))) == want


def test_events_come_as_soon_as_they_are_certain() -> None:
    parser = ReplyParser(HERMES)
    assert parser.push("Yes <tool") == [Text("Yes")]
    assert parser.push('_call>{"name": "f", "argu') == []
    assert parser.push('ments": {"path": "/tm') == [CallBegin(0, "f"), CallArguments(0, '{"path":"/tm')]
    assert parser.push('p"') == [CallArguments(0, 'p"')]
    assert parser.push("}}") == [CallArguments(0, "}"), CallEnd(0)]
    assert parser.finish() == []


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def copied(pieces: list[str]) -> tuple[str, bool]:
    source, out = Source(), []

    def make(piece: str) -> Event:
        out.append(piece)
        return Text(piece)

    steps = copy_value(source, make)
    rest = list(pieces)
    while True:
        try:
            if next(steps) is None:
                if rest:
                    source.text += rest.pop(0)
                else:
                    source.ended = True
        except StopIteration as end:
            return "".join(out), bool(end.value)


@settings(max_examples=300, deadline=None)
@given(VALUES, st.integers(1, 9), st.sampled_from([None, 1]), st.booleans())
def test_json_comes_through(value: object, size: int, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    out, whole = copied([text[i : i + size] for i in range(0, len(text), size)])
    assert whole
    # A lone surrogate has no UTF-8.
    assert json.loads(out) == json.loads(text) or "\ufffd" in out


@settings(max_examples=300, deadline=None)
@given(VALUES, st.data())
def test_json_that_is_cut_or_damaged_is_closed(value: object, data: st.DataObject) -> None:
    text = json.dumps({"a": value})
    at = data.draw(st.integers(1, len(text) - 1))
    damaged = (
        text[:at]
        + data.draw(st.sampled_from(["", "}", "]", '"', "\\", "x", ","]))
        + data.draw(st.sampled_from(["", text[at:]]))
    )
    out, _ = copied([damaged])
    assert isinstance(json.loads(out), dict)
