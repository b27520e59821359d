"""Chat messages in one form, whatever client wrote them.

The result has plain dicts: `role`, `content` (always a string), for calls `tool_calls` with parsed
arguments, for tool results `tool_call_id`. Other keys are kept for templates that read them, but null
counts as absent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import cast

from saragossa.errors import TemplateError
from saragossa.text.plain import plain_value

Message = dict[str, object]

ROLES = ("system", "developer", "user", "assistant", "tool")
_TEXT_PARTS = ("text", "input_text", "output_text")
_REASONING = ("reasoning_content", "thinking", "reasoning")


def normalize_messages(messages: Sequence[Mapping[str, object]]) -> list[Message]:
    """Fresh, uniform copies of `messages`; a TemplateError names the message or part that is wrong."""
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence):
        raise TemplateError("messages must be a list of objects with role and content")
    if not messages:
        raise TemplateError("messages is empty", cure="give at least one user message")
    return [_normalize(message, f"messages[{i}]") for i, message in enumerate(messages)]


def normalize_tools(tools: Sequence[Mapping[str, object]] | None) -> list[dict[str, object]] | None:
    """Fresh copies of the tools; None if there are none."""
    if not tools:
        return None
    if isinstance(tools, str | Mapping) or not isinstance(tools, Sequence):
        raise TemplateError("tools must be a list of objects")
    result = []
    for i, tool in enumerate(tools):
        plain = plain_value(tool, f"tools[{i}]")
        function = plain.get("function") if isinstance(plain, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(plain, dict) or not isinstance(name, str) or not name:
            raise TemplateError(
                f'tools[{i}] is no function: {{"type": "function", "function": {{"name": ...}}}} is expected'
            )
        result.append({"type": "function", **plain})
    return result


def _normalize(message: object, where: str) -> Message:
    if not isinstance(message, Mapping):
        raise TemplateError(f"{where} is a {type(message).__name__}, an object with role is expected")
    role = message.get("role")
    role = "tool" if role == "function" else role  # OpenAI's older name
    if role not in ROLES:
        raise TemplateError(f"{where}.role is {role!r}, accepted are {', '.join(ROLES)}")
    rest = {key: value for key, value in message.items() if key not in ("role", "content", "tool_calls")}
    plain = cast(dict[str, object], plain_value(rest, where))
    calls = _tool_calls(message.get("tool_calls"), f"{where}.tool_calls")
    if calls and role != "assistant":
        raise TemplateError(f"{where}.tool_calls: only an assistant message can call tools")
    content = _content(message.get("content"), f"{where}.content", required=role not in ("assistant", "tool"))
    result: Message = {"role": role, "content": content}
    result |= {key: value for key, value in plain.items() if value is not None}
    if calls:
        result["tool_calls"] = calls
    reasoning = next((plain[key] for key in _REASONING if plain.get(key) is not None), None)
    if role == "assistant" and isinstance(reasoning, str):  # templates read either name
        result |= {"thinking": reasoning, "reasoning_content": reasoning}
    return result


def _content(content: object, where: str, *, required: bool) -> str:
    """A string; text parts are joined without anything between them."""
    if content is None:
        if required:
            raise TemplateError(f"{where} is missing, a string or a list of text parts is expected")
        return ""
    if isinstance(content, str):
        return cast(str, plain_value(content, where))
    if not isinstance(content, list | tuple):
        raise TemplateError(f"{where} is a {type(content).__name__}, a string or a list of parts is expected")
    texts: list[str] = []
    for i, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        if not isinstance(part, Mapping) or kind not in _TEXT_PARTS:
            raise TemplateError(
                f"{where}[{i}] is a part of type {kind!r}, this model takes text only",
                cure="send parts of type 'text'",
            )
        if not isinstance(part.get("text"), str):
            raise TemplateError(f"{where}[{i}].text is missing, a string is expected")
        texts.append(cast(str, plain_value(part["text"], f"{where}[{i}].text")))
    return "".join(texts)


def _tool_calls(calls: object, where: str) -> list[dict[str, object]]:
    if calls is None:
        return []
    if not isinstance(calls, list | tuple):
        raise TemplateError(f"{where} is a {type(calls).__name__}, a list is expected")
    result: list[dict[str, object]] = []
    for i, call in enumerate(calls):
        plain = plain_value(call, f"{where}[{i}]")
        if not isinstance(plain, dict):
            raise TemplateError(f"{where}[{i}] is no object")
        function = plain.get("function", plain)  # transformers also takes the bare function
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or not name:
            raise TemplateError(f"{where}[{i}].function.name is missing, a string is expected")
        call_id = plain.get("id")
        result.append(
            {
                "id": call_id if isinstance(call_id, str) and call_id else f"call{i:05d}",
                "type": "function",
                "function": {"name": name, "arguments": parse_arguments(function.get("arguments"))},
            }
        )
    return result


def parse_arguments(arguments: object) -> object:
    """The object that a JSON string stands for. Text that is no JSON object stays as the model wrote it."""
    if arguments is None or arguments == "":
        return {}
    if not isinstance(arguments, str):
        return arguments
    try:
        parsed = json.loads(arguments)
        json.dumps(parsed, allow_nan=False)  # 1e400 and NaN have no JSON form
        return plain_value(parsed, "arguments") if isinstance(parsed, dict) else arguments
    except (ValueError, RecursionError, TemplateError):
        return arguments
