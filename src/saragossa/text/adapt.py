"""Bridges between a conversation and what a chat template can express.

What a template supports is found by rendering small conversations with it and looking for their words
in the result (no template source is interpreted). Then the messages are changed only as far as needed:
system text is put before the first user turn, turns of one role are merged, tool calls, results and
definitions are written as text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import cast

from saragossa.errors import TemplateError
from saragossa.text.messages import Message

Tools = list[dict[str, object]]
Render = Callable[[list[Message], Tools | None], str]

_SEPARATOR = "\n\n"  # between texts that were messages of their own
_NINE_CHARACTERS = "qzcall001"
_TOOL: dict[str, object] = {
    "type": "function",
    "function": {
        "name": "qzname",
        "description": "qzabout",
        "parameters": {"type": "object", "properties": {"qzkey": {"type": "string", "description": "qzkey"}}},
    },
}
_TOOLS_TEXT = """You can call functions. These are available, one JSON schema a line:
{schemas}

To call a function, answer with its name and arguments in this form:
<tool_call>
{{"name": "function-name", "arguments": {{"argument-name": "value"}}}}
</tool_call>"""


class TemplateStopped(TemplateError):
    """The template works too long on any messages; no use in trying others."""


@dataclass(frozen=True, slots=True)
class CallForm:
    """How a template wants tool calls."""

    object_arguments: bool
    null_content: bool
    nine_character_ids: bool


def _message(role: str, content: str | None, **more: object) -> Message:
    return {"role": role, "content": content, **more}


class Capabilities:
    """What a template can express; every property costs a few small renders once."""

    def __init__(self, render: Render, *, tools: bool) -> None:
        self._render = render
        self._tools = [_TOOL] if tools else None  # some templates have another branch with tools

    def _shows(self, messages: list[Message], *words: str, tools: Tools | None = None) -> bool:
        """Whether the prompt holds the words in this order."""
        try:
            prompt = self._render(self.finish(messages), tools or self._tools)
        except TemplateStopped:
            raise
        except TemplateError:
            return False
        place = 0
        for word in words:
            place = prompt.find(word, place) + 1
            if not place:
                return False
        return True

    @cached_property
    def typed_content(self) -> bool:
        """Content must be a list of parts."""
        text: list[Message] = [{"role": "user", "content": "qzuser"}]
        parts: list[Message] = [{"role": "user", "content": [{"type": "text", "text": "qzuser"}]}]

        def shows(messages: list[Message]) -> bool:
            try:
                return "qzuser" in self._render(messages, self._tools)
            except TemplateStopped:
                raise
            except TemplateError:
                return False

        return not shows(text) and shows(parts)

    def finish(self, messages: list[Message]) -> list[Message]:
        """Messages in the form of content that the template reads."""
        if not self.typed_content:
            return messages
        return [
            {**m, "content": [{"type": "text", "text": m["content"]}]} if m.get("content") else m
            for m in messages
        ]

    @cached_property
    def system(self) -> bool:
        return self._shows([_message("system", "qzsys"), _message("user", "qzuser")], "qzsys", "qzuser")

    @cached_property
    def system_alone(self) -> bool:
        return self._shows([_message("system", "qzsys")], "qzsys")

    @cached_property
    def later_systems(self) -> bool:
        """Several system messages, also in the middle."""
        a, b, user = _message("system", "qzsys"), _message("system", "qzlate"), _message("user", "qzuser")
        reply, last = _message("assistant", "qzreply"), _message("user", "qzlast")
        return self._shows([a, user, reply, b, last], "qzsys", "qzuser", "qzreply", "qzlate", "qzlast") and (
            self._shows([a, b, user], "qzsys", "qzlate", "qzuser")
        )

    @cached_property
    def repeated_roles(self) -> bool:
        """Two messages of one role in a row."""
        one, two = _message("user", "qzone"), _message("user", "qztwo")
        three, four = _message("assistant", "qzthree"), _message("assistant", "qzfour")
        return self._shows([one, two, three, four, one], "qzone", "qztwo", "qzthree", "qzfour", "qzone")

    @cached_property
    def tools(self) -> bool:
        return self._shows([_message("user", "qzuser")], "qzname", tools=[_TOOL])

    @cached_property
    def calls(self) -> CallForm | None:
        """The form in which tool calls and results are shown; None: not at all."""
        for nine in (False, True):
            for objects in (True, False):
                for null in (False, True):
                    call_id = _NINE_CHARACTERS if nine else "call_qz_" + _NINE_CHARACTERS
                    arguments: object = {"qzkey": "qzvalue"} if objects else '{"qzkey": "qzvalue"}'
                    function = {"name": "qzcalled", "arguments": arguments}
                    call = {"id": call_id, "type": "function", "function": function}
                    dialogue = [
                        _message("user", "qzuser"),
                        _message("assistant", None if null else "", tool_calls=[call]),
                        _message("tool", "qzresult", tool_call_id=call_id, name="qzcalled"),
                    ]
                    if self._shows(dialogue, "qzuser", "qzcalled", "qzvalue", "qzresult"):
                        return CallForm(objects, null, nine)
        return None


def adapt(
    messages: list[Message], tools: Tools | None, can: Capabilities, *, developer: bool = False
) -> tuple[list[Message], Tools | None]:
    """Messages and tools as the template can express them. `developer`: it knows that role."""
    messages = [
        {**m, "role": "system"} if m["role"] == "developer" and not developer else m for m in messages
    ]
    if any(m["role"] == "tool" or "tool_calls" in m for m in messages):
        messages = _shape_calls(messages, can.calls) if can.calls else _write_calls(messages)
    if tools and not can.tools:
        text = _TOOLS_TEXT.format(schemas="\n".join(_json(tool["function"]) for tool in tools))
        messages, tools = _merge_leading([_message("system", text), *messages], last_first=True), None
    if any(m["role"] == "system" for m in messages):
        messages = _fit_systems(messages, can)
    if _has_repeats(messages) and not can.repeated_roles:
        messages = _merge_turns(messages)
    return can.finish(messages), tools


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _join(*texts: object) -> str:
    return _SEPARATOR.join(text for text in texts if isinstance(text, str) and text)


def _merge_leading(messages: list[Message], *, last_first: bool = False) -> list[Message]:
    """One system message of those at the start; `last_first` puts the caller's own text before ours."""
    count = next((i for i, m in enumerate(messages) if m["role"] != "system"), len(messages))
    texts = [m["content"] for m in messages[:count]]
    if last_first:
        texts = [*texts[1:], texts[0]]
    return [_message("system", _join(*texts)), *messages[count:]]


def _fit_systems(messages: list[Message], can: Capabilities) -> list[Message]:
    """System messages where the template takes them, else as part of the user's turn."""
    count = sum(m["role"] == "system" for m in messages)
    if (count > 1 or messages[0]["role"] != "system") and not can.later_systems:
        head = _merge_leading(messages) if messages[0]["role"] == "system" else messages
        messages = _merge_turns([head[0], *(_as_user(m) for m in head[1:])])
    alone = all(m["role"] == "system" for m in messages)
    if can.system_alone if alone else can.system:
        return messages
    return _merge_turns([_as_user(m) for m in messages])


def _as_user(message: Message) -> Message:
    return {**message, "role": "user"} if message["role"] == "system" else message


def _has_repeats(messages: Sequence[Message]) -> bool:
    pairs = pairwise(messages)
    return any(a["role"] == b["role"] and a["role"] != "tool" for a, b in pairs)


def _merge_turns(messages: Sequence[Message]) -> list[Message]:
    """Consecutive user or assistant messages as one."""
    merged: list[Message] = []
    for message in messages:
        last = merged[-1] if merged else None
        if last is None or last["role"] != message["role"] or message["role"] not in ("user", "assistant"):
            merged.append(message)
            continue
        calls = [
            *cast(list[object], last.get("tool_calls", [])),
            *cast(list[object], message.get("tool_calls", [])),
        ]
        joined: Message = {**last, **message, "content": _join(last["content"], message["content"])}
        merged[-1] = {**joined, "tool_calls": calls} if calls else joined
    return merged


def _shape_calls(messages: Sequence[Message], form: CallForm) -> list[Message]:
    """Tool calls in the form that the template shows."""
    shaped: list[Message] = []
    for message in messages:
        new = dict(message)
        if "tool_calls" in message:
            calls = cast(list[dict[str, object]], message["tool_calls"])
            new["tool_calls"] = [_shape_call(call, form) for call in calls]
            if form.null_content and not message["content"]:
                new["content"] = None
        if form.nine_character_ids and isinstance(message.get("tool_call_id"), str):
            new["tool_call_id"] = _nine_characters(cast(str, message["tool_call_id"]))
        shaped.append(new)
    return shaped


def _shape_call(call: dict[str, object], form: CallForm) -> dict[str, object]:
    function = cast(dict[str, object], call["function"])
    arguments = function["arguments"]
    if not form.object_arguments and not isinstance(arguments, str):
        arguments = _json(arguments)
    call_id = cast(str, call["id"])
    if form.nine_character_ids:
        call_id = _nine_characters(call_id)
    return {**call, "id": call_id, "function": {**function, "arguments": arguments}}


def _nine_characters(call_id: str) -> str:
    """Mistral's templates demand ids of nine letters or digits; equal ids stay equal."""
    if len(call_id) == 9 and call_id.isascii() and call_id.isalnum():
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:9]


def _write_calls(messages: Sequence[Message]) -> list[Message]:
    """Calls and results as text, for templates that have no place for them."""
    written: list[Message] = []
    for message in messages:
        if message["role"] == "tool":
            text = f"<tool_response>\n{message['content']}\n</tool_response>"
            written.append(_message("user", text))
        elif "tool_calls" in message:
            calls = cast(list[dict[str, object]], message["tool_calls"])
            texts = [f"<tool_call>\n{_json(call['function'])}\n</tool_call>" for call in calls]
            rest = {key: value for key, value in message.items() if key != "tool_calls"}
            parts = [message["content"], *texts]
            written.append({**rest, "content": "\n".join(str(part) for part in parts if part)})
        else:
            written.append(message)
    return written
