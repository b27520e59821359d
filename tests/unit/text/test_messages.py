"""Messages of any client in one form, and bridges for what a template cannot express."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from saragossa.errors import TemplateError
from saragossa.text.messages import normalize_messages, parse_arguments
from saragossa.text.template import ChatTemplate

GOLDEN = Path(__file__).parents[2] / "golden"
NAMES = ["thinking", "headers", "turns", "brackets", "chatml"]
SPECIAL = json.loads((GOLDEN / "template_goldens.json").read_text("utf-8"))["special_tokens"]
USER = {"role": "user", "content": "6 times 7?"}
TOOL = {"type": "function", "function": {"name": "mul", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def templates() -> dict[str, ChatTemplate]:
    folder = GOLDEN / "chat_templates"
    return {
        name: ChatTemplate((folder / f"{name}.jinja").read_text("utf-8"), special_tokens=SPECIAL[name])
        for name in NAMES
    }


def loop(**assistant: Any) -> list[dict[str, Any]]:
    """A question, a call of mul(6, 7), its result."""
    call = {"id": "call_0123456789abcdefghij", "type": "function",
            "function": {"name": "mul", "arguments": '{"a": 6, "b": 7}'}}  # fmt: skip
    reply = {"role": "assistant", "tool_calls": [call], **assistant}
    return [USER, reply, {"role": "tool", "tool_call_id": call["id"], "content": "42"}]


@pytest.mark.parametrize("name", NAMES)
def test_null_missing_and_empty_content_are_the_same(templates: dict[str, ChatTemplate], name: str) -> None:
    prompts = {templates[name].render(m) for m in (loop(content=None), loop(), loop(content=""))}
    assert len(prompts) == 1
    assert "None" not in prompts.pop()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tools", [None, [TOOL]])
def test_call_and_result_are_in_the_prompt(
    templates: dict[str, ChatTemplate], name: str, tools: list[dict[str, Any]] | None
) -> None:
    system = {"role": "system", "content": "Be exact."}
    prompt = templates[name].render([system, *loop(content=None)], tools)
    assert "Be exact." in prompt
    place = 0
    for word in ("6 times 7?", '"name": "mul", ', '"a": 6', "42"):
        place = prompt.index(word, place)


@pytest.mark.parametrize("name", NAMES)
def test_arguments_as_object_or_text(templates: dict[str, ChatTemplate], name: str) -> None:
    as_object = loop()
    as_object[1]["tool_calls"][0]["function"]["arguments"] = {"a": 6, "b": 7}
    assert templates[name].render(as_object) == templates[name].render(loop())


@pytest.mark.parametrize("name", ["turns", "chatml", "brackets"])
def test_tools_reach_every_prompt(templates: dict[str, ChatTemplate], name: str) -> None:
    system = {"role": "system", "content": "Be exact."}
    for messages in ([USER], [system, USER]):
        prompt = templates[name].render(messages, [TOOL])
        assert prompt.count('"mul"') == 1
        assert "6 times 7?" in prompt
        assert (system in messages) == ("Be exact." in prompt)


@pytest.mark.parametrize("name", NAMES)
def test_parts_join_to_a_string(templates: dict[str, ChatTemplate], name: str) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]
    prompt = templates[name].render([{"role": "user", "content": parts}])
    assert prompt == templates[name].render([{"role": "user", "content": "ab"}])
    assert "{" not in prompt
    assert "type" not in prompt


@pytest.mark.parametrize("name", NAMES)
def test_prefill_ends_the_prompt(templates: dict[str, ChatTemplate], name: str) -> None:
    messages = [USER, {"role": "assistant", "content": "The colour is"}]
    assert templates[name].render(messages, continue_final_message=True).endswith("The colour is")
    assert not templates[name].render(messages).endswith("The colour is")


def test_prefill_needs_an_assistant_text(templates: dict[str, ChatTemplate]) -> None:
    for messages in ([USER], loop()[:2]):
        with pytest.raises(TemplateError, match=rf"messages\[{len(messages) - 1}\] cannot be continued"):
            templates["chatml"].render(messages, continue_final_message=True)
    drops = ChatTemplate("{{ messages[0].content }}")
    begun = [USER, {"role": "assistant", "content": "The"}]
    with pytest.raises(TemplateError, match="does not show the last message"):
        drops.render(begun, continue_final_message=True)


def test_ids_of_nine_characters(templates: dict[str, ChatTemplate]) -> None:
    """One template demands them; call and result keep the same id."""
    prompt = templates["brackets"].render(loop())
    call_id = prompt.split('"id": "')[1].split('"')[0]
    assert len(call_id) == 9
    assert call_id.isalnum()
    assert f'"call_id": "{call_id}"' in prompt


def test_a_refusal_is_the_requests_fault(templates: dict[str, ChatTemplate]) -> None:
    with pytest.raises(TemplateError, match=r"refuses these messages: .*alternate"):
        templates["turns"].render([{"role": "assistant", "content": "Hi"}, USER])
    two = loop()
    two[1]["tool_calls"] *= 2
    with pytest.raises(TemplateError, match="Only one tool call at a time"):
        templates["headers"].render(two)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("roles", ["su", "suu", "suuaau", "susau", "ss", "s", "uas", "uasu", "ssuasua"])
def test_no_text_is_lost(templates: dict[str, ChatTemplate], name: str, roles: str) -> None:
    """Whatever the order of roles, every text is in the prompt, in order."""
    full = {"s": "system", "u": "user", "a": "assistant"}
    messages = [{"role": full[r], "content": f"text{i}"} for i, r in enumerate(roles)]
    prompt = templates[name].render(messages)
    places = [prompt.find(f"text{i}") for i in range(len(roles))]
    assert -1 not in places
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("x", "messages[0] is a str, an object with role is expected"),
        ({"content": "a"}, "messages[0].role is None, accepted are system"),
        ({"role": "king", "content": "a"}, "messages[0].role is 'king', accepted are system"),
        ({"role": ["user"], "content": "a"}, "messages[0].role is ['user']"),
        ({"role": "user"}, "messages[0].content is missing"),
        ({"role": "user", "content": 7}, "messages[0].content is a int"),
        ({"role": "user", "content": {"text": "a"}}, "messages[0].content is a dict"),
        ({"role": "user", "content": ["a"]}, "messages[0].content[0] is a part of type 'str'"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text is missing"),
        ({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}]},
         "messages[0].content[1] is a part of type 'image_url', this model takes text only"),
        ({"role": "user", "content": "a", "tool_calls": [{"function": {"name": "f"}}]},
         "messages[0].tool_calls: only an assistant"),
        ({"role": "assistant", "tool_calls": {}}, "messages[0].tool_calls is a dict, a list"),
        ({"role": "assistant", "tool_calls": [7]}, "messages[0].tool_calls[0] is no object"),
        ({"role": "assistant", "tool_calls": [{"function": {}}]}, "tool_calls[0].function.name is missing"),
        ({"role": "user", "content": "a", "x": {1: 2}}, "messages[0].x has the key 1, keys must be strings"),
        ({"role": "user", "content": "a", "x": b"y"}, "messages[0].x is a bytes, a JSON value"),
    ],
)  # fmt: skip
def test_bad_messages_are_named(message: Any, words: str) -> None:
    with pytest.raises(TemplateError) as error:
        normalize_messages([message])
    assert words in str(error.value)


def test_bad_lists_are_named(templates: dict[str, ChatTemplate]) -> None:
    with pytest.raises(TemplateError, match="messages is empty"):
        normalize_messages([])
    with pytest.raises(TemplateError, match="messages must be a list"):
        normalize_messages("hello")  # type: ignore[arg-type]
    for tools in ([{"name": "f"}], [7], {"a": 1}, [{"type": "function", "function": {"name": ""}}]):
        with pytest.raises(TemplateError, match="tools"):
            templates["chatml"].render([USER], tools)  # type: ignore[arg-type]
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"a": deep}
    with pytest.raises(TemplateError, match="nested more than 64 deep"):
        normalize_messages([{**USER, "x": deep}])


def test_arguments_that_are_no_object_stay_text() -> None:
    assert parse_arguments('{"a": [1, "é"]}') == {"a": [1, "é"]}
    assert parse_arguments("") == parse_arguments(None) == {}
    for text in ('{"a": 1', "[1]", "7", '{"a": 1e400}', '{"a": NaN}', '{"a":' * 9999):
        assert parse_arguments(text) == text


def test_lone_surrogates() -> None:
    message = {"role": "user", "content": "x\ud800y \ud83d\ude00"}
    assert normalize_messages([message])[0]["content"] == "x\ufffdy 😀"


def test_reasoning_has_one_name() -> None:
    for key in ("reasoning_content", "reasoning", "thinking"):
        message = normalize_messages([{"role": "assistant", "content": "a", key: "hm"}])[0]
        assert (message["reasoning_content"], message["thinking"]) == ("hm", "hm")
