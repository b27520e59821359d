"""Replies in pieces: reasoning, text and calls are the same however the text is cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saragossa.text.reply.events import CallArguments, CallBegin, CallEnd, Event, Reasoning, Text
from saragossa.text.reply.json_stream import copy_value
from saragossa.text.reply.parser import GEMMA, HERMES, MISTRAL, ReplyParser, llama, xml
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


TOOLS: list[dict[str, object]] = [
    {"type": "function", "function": {"name": name, "parameters": {"properties": properties}}}
    for name, properties in {
        "write_file": {"path": {"type": "string"}, "content": {"type": "string"}},
        "list_dir": {"path": {"type": "string"}},
        "plot": {"rows": {"type": "array"}, "n": {"type": "integer"}, "on": {"type": "boolean"}, "memo": {}},
    }.items()
]
XML, LLAMA = xml(TOOLS), llama(TOOLS)
CONTENT = "if a</parameter>b</function></tool_call>"


def element(name: str, *parameters: tuple[str, str]) -> str:
    inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"


def one(name: str, /, **arguments: object) -> tuple[str, str, list[tuple[str, object]]]:
    return "", "", [(name, arguments)]


WHOLE = CONTENT + "\n</parameter>\n</function>\n</tool_call>\nmore"
CALL = "<tool_call><function=plot>\n"
XML_CASES: list[tuple[str, Any]] = [
    (element("write_file", ("path", "a b.txt"), ("content", "ü\n\n x\t\"\\")),
     one("write_file", path="a b.txt", content="ü\n\n x\t\"\\")),
    (element("write_file", ("content", CONTENT)), one("write_file", content=CONTENT)),
    (element("write_file", ("content", WHOLE)), one("write_file", content=WHOLE)),
    (element("write_file", ("content", "")), one("write_file", content="")),
    (element("list_dir"), one("list_dir")),
    ('<tool_call><function="list_dir"><parameter="path">/tmp</parameter></function></tool_call>',
     one("list_dir", path="/tmp")),
    ("<tool_call><function='list_dir'><parameter='path'>/tmp</parameter></function></tool_call>",
     one("list_dir", path="/tmp")),
    (element("plot", ("rows", "[4, 5]"), ("n", "7"), ("on", "True"), ("memo", "x")),
     one("plot", rows=[4, 5], n=7, on=True, memo="x")),
    (element("plot", ("n", "seven")), one("plot", n="seven")),
    (element("plot", ("other", "7")), one("plot", other="7")),
    (CALL + "<parameter=\n[4]\n</parameter>\n<parameter=n>1</parameter></function></tool_call>",
     one("plot", n=1)),
    (CALL + "<parameter=rows: [4]\n</parameter><parameter=n>1</parameter></function></tool_call>",
     one("plot", n=1)),
    ("<tool_call>\n<function=plot>\n<parameter=memo=>x\n</parameter>\n</function>\n</tool_call>", None),
    ("<tool_call>\n<function=write_file>\n<parameter=content>\nhalf a", one("write_file", content="half a")),
    ("Hm.\n" + element("list_dir") + "\n" + element("list_dir", ("path", "b")) + "\nSo.",
     ("", "Hm.So.", [("list_dir", {}), ("list_dir", {"path": "b"})])),
    (call("f", {"a": 1}), one("f", a=1)),
    ("<tool_call>\n<function=\nx</tool_call>", ("", "<tool_call>\n<function=\nx</tool_call>", [])),
]  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
@pytest.mark.parametrize(("text", "want"), XML_CASES)
def test_calls_in_xml(text: str, want: Any, size: int) -> None:
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    reasoning, answer, calls = said(parse(pieces, form=XML))
    got = reasoning, answer, [(name, json.loads(arguments)) for name, arguments in calls]
    assert got == said_whole(text) if want is None else got == want


def said_whole(text: str) -> Any:
    reasoning, answer, calls = said(parse([text], form=XML))
    return reasoning, answer, [(name, json.loads(arguments)) for name, arguments in calls]


GET = [("get", {"k": "a}"}), ("get", {"k": "b"})]
MARKED: list[tuple[str, Any, Any]] = [
    ("mistral", '[TOOL_CALLS] [{"name":"mul","arguments":{"a":6,"b":7}}]', one("mul", a=6, b=7)),
    ("mistral", '[TOOL_CALLS]mul[ARGS]{"a":6,"b":7}', one("mul", a=6, b=7)),
    ("mistral", '[TOOL_CALLS]mul[CALL_ID]abc123xyz[ARGS]{"a":6,"b":7}', one("mul", a=6, b=7)),
    ("mistral", '[TOOL_CALLS]get[ARGS]{"k":"a}"}[TOOL_CALLS]get[ARGS]{"k":"b"}', ("", "", GET)),
    (
        "mistral",
        'Yes. [TOOL_CALLS]find[ARGS]{"dir":"src"}\n\nThen I count them.',
        ("", "Yes.Then I count them.", [("find", {"dir": "src"})]),
    ),
    ("mistral", "[TOOL_CALLS]no call", ("", "[TOOL_CALLS]no call", [])),
    ("mistral", "[TOOL_CALLS]", ("", "[TOOL_CALLS]", [])),
    (
        "gemma",
        '<|tool_call>call:note{text:<|"|>He said "ja", then "nee": {ok}, [1,2]<|"|>,n:3}<tool_call|>',
        one("note", text='He said "ja", then "nee": {ok}, [1,2]', n=3),
    ),
    ("gemma", "<|tool_call>call:save{name='r.txt',n:2}<tool_call|>", one("save", name="r.txt", n=2)),
    (
        "gemma",
        '<|tool_call>call:f{a:{b:[1,-2.5e3,true],c:null},<|"|>d e<|"|>:<|"|><|"|>}<tool_call|> So.',
        ("", "So.", [("f", {"a": {"b": [1, -2500.0, True], "c": None}, "d e": ""})]),
    ),
    (
        "gemma",
        "<|tool_call>call:f{}<tool_call|><|tool_call>call:g{n:1}<tool_call|>",
        ("", "", [("f", {}), ("g", {"n": 1})]),
    ),
    (
        "gemma",
        "<|tool_call>complete rubbish<tool_call|>",
        ("", "<|tool_call>complete rubbish<tool_call|>", []),
    ),
    ("gemma", "<|tool_call>call:f{a:%%, b:2}<tool_call|>", one("f")),
    ("gemma", '<|tool_call>call:f{a:<|"|>cut', one("f", a="cut")),
    ("llama", '{"name": "plot", "parameters": {"n": 1}}', one("plot", n=1)),
    ("llama", '<|python_tag|>{"name": "plot", "parameters": {"n": 1}}', one("plot", n=1)),
    (
        "llama",
        '{"name": "plot", "parameters": {"n": 1}}; {"name": "list_dir", "parameters": {}}',
        ("", "", [("plot", {"n": 1}), ("list_dir", {})]),
    ),
    ("llama", '{"name": "Bob", "parameters": {"n": 1}}', ("", '{"name": "Bob", "parameters": {"n": 1}}', [])),
    ("llama", '{"name": "plot", "age": 3}', ("", '{"name": "plot", "age": 3}', [])),
    ("llama", '{"answer": [1, 2]} ', ("", '{"answer": [1, 2]} ', [])),
    ("llama", " Plain.", ("", " Plain.", [])),
]
FORMS = {"mistral": MISTRAL, "gemma": GEMMA, "llama": LLAMA}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
@pytest.mark.parametrize(("form", "text", "want"), MARKED)
def test_calls_of_other_families(form: str, text: str, want: Any, size: int) -> None:
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    reasoning, answer, calls = said(parse(pieces, form=FORMS[form]))
    assert (reasoning, answer, [(name, json.loads(arguments)) for name, arguments in calls]) == want


def test_a_long_value_comes_as_it_is_written() -> None:
    parser = ReplyParser(XML)
    parser.push("<tool_call>\n<function=write_file>\n<parameter=content>\n")
    assert parser.push("one\n") == [CallArguments(0, "one")]
    assert parser.push("two</par") == [CallArguments(0, "\\ntwo")]


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


FRAGMENTS = (
    *(
        "<tool_call>",
        "</tool_call>",
        "<function=f>",
        "</function>",
        "<parameter=a>",
        "</parameter>",
        "\n",
        " ",
    ),
    *(
        "[TOOL_CALLS]",
        "[ARGS]",
        "[CALL_ID]",
        "plot",
        '{"name": "plot", "arguments": ',
        '{"n": 1}',
        "}",
        "{",
        "[",
    ),
    *("<|tool_call>", "call:f{", '<|"|>', "<tool_call|>", "a:", ",", "1", "true", '"', "'", "\\", "]", ";"),
    *("<think>", "</think>", "<|python_tag|>", "text", "<", "ü", "}}"),
)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join),
    st.sampled_from(["hermes", "xml", "llama", "mistral", "gemma"]),
    st.booleans(),
    st.integers(1, 6),
)
def test_whatever_a_model_writes(text: str, form: str, thinking: bool, size: int) -> None:
    """Cut or whole it says the same; every call is closed, and its arguments are one JSON object."""
    options = {"form": {**FORMS, "hermes": HERMES, "xml": XML}[form], "thinking": thinking}
    whole = said(parse([text], **options))
    assert said(parse([text[i : i + size] for i in range(0, len(text), size)], **options)) == whole
    for _, arguments in whole[2]:
        assert isinstance(json.loads(arguments), dict)
