"""Make tests/golden/template_goldens.json: prompts as transformers renders them.

Run with an environment that has transformers and jinja2:

    python tests/golden/make_template_goldens.py

The templates in chat_templates/ are our own, with the features of the common ones. Where saragossa changes
messages that a template cannot express, `oracle` holds what they should become, written by hand;
transformers renders that.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jinja2
import transformers
from transformers.utils.chat_template_utils import render_jinja_template

HERE = Path(__file__).parent
SPECIAL = {
    "thinking": {"eos_token": "<|im_end|>"},
    "headers": {"bos_token": "<|begin|>", "eos_token": "<|eot_id|>"},
    "turns": {"bos_token": "<bos>", "eos_token": "<eos>"},
    "brackets": {"bos_token": "<s>", "eos_token": "</s>"},
    "chatml": {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"},
}


def msg(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def call(arguments: Any, call_id: str = "abcdefghi", name: str = "mul") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


SYSTEM, USER, REPLY = (
    msg("system", "Answer in Dutch."),
    msg("user", " Hello <b>\n"),
    msg("assistant", "Hoi é'\""),
)
TOOL = {
    "type": "function",
    "function": {
        "name": "mul",
        "description": "a × b <tag> & 'more'",
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
    },
}
ARGS = {"a": 6, "b": [7, None, True, 1.5, 'é"<']}
CALLS = [USER, msg("assistant", "", tool_calls=[call(ARGS)]), msg("tool", "42", tool_call_id="abcdefghi")]
MORE = msg("user", "And again?")

# (template, name, messages, options, messages as the template can express them or None)
CASES: list[tuple[str, str, list[Any], dict[str, Any], list[Any] | None]] = []


def case(
    templates: str, name: str, messages: list[Any], oracle: list[Any] | None = None, **options: Any
) -> None:
    CASES.extend((template, name, messages, options, oracle) for template in templates.split())


case("thinking headers turns chatml", "system", [SYSTEM, USER])
case("thinking headers turns brackets chatml", "user", [USER])
case("thinking headers turns brackets chatml", "dialogue", [USER, REPLY, MORE])
case(
    "thinking headers turns brackets chatml",
    "no generation prompt",
    [USER, REPLY],
    add_generation_prompt=False,
)
case("thinking headers brackets", "tool loop", CALLS, tools=[TOOL])
case("thinking headers brackets", "tool loop without definitions", CALLS)
case("thinking headers brackets", "after a tool loop", [*CALLS, REPLY, MORE], tools=[TOOL])
case(
    "thinking headers",
    "arguments as text",
    [
        USER,
        msg("assistant", None, tool_calls=[call(json.dumps(ARGS))]),
        msg("tool", "42", tool_call_id="abcdefghi"),
    ],
    CALLS,
    tools=[TOOL],
)
case(
    "thinking",
    "two calls",
    [
        USER,
        msg("assistant", "Both.", tool_calls=[call({"a": 1}), call({}, name="now")]),
        msg("tool", "1", tool_call_id="x"),
        msg("tool", "2", tool_call_id="y"),
    ],
    tools=[TOOL],
)
case("thinking", "thinking off", [USER], enable_thinking=False)
case("thinking", "thinking on", [USER], enable_thinking=True)
case("thinking", "old thoughts go", [USER, msg("assistant", "<think>\nhm\n</think>\n\nYes"), MORE])
case(
    "thinking",
    "thoughts in a tool loop",
    [USER, msg("assistant", "<think>\nhm\n</think>\n\n", tool_calls=[call(ARGS)]), msg("tool", "42")],
    tools=[TOOL],
)
case(
    "thinking",
    "reasoning field",
    [USER, msg("assistant", "", reasoning_content="hm", tool_calls=[call(ARGS)]), msg("tool", "42")],
)
case("thinking headers chatml", "late system", [SYSTEM, USER, REPLY, msg("system", "Now in French."), MORE])
case("headers", "variable", [USER], date_string="1 Jan 2030")
case(
    "thinking headers turns brackets chatml",
    "prefill",
    [USER, msg("assistant", "The colour is")],
    continue_final_message=True,
)
case(
    "thinking headers turns brackets chatml",
    "prefill with a space",
    [USER, msg("assistant", "The colour is ")],
    continue_final_message=True,
)
# What templates cannot express.
case("brackets", "system folded", [SYSTEM, USER], [msg("user", "Answer in Dutch.\n\n Hello <b>\n")])
case("turns brackets", "system alone", [SYSTEM], [msg("user", "Answer in Dutch.")])
case(
    "turns",
    "two users",
    [SYSTEM, msg("user", "translate:"), msg("user", "goedemorgen")],
    [SYSTEM, msg("user", "translate:\n\ngoedemorgen")],
)
case(
    "turns brackets",
    "late system folded",
    [USER, REPLY, msg("system", "Now in French."), MORE],
    [USER, REPLY, msg("user", "Now in French.\n\nAnd again?")],
)
case(
    "turns",
    "two systems",
    [SYSTEM, msg("system", "Be brief."), USER],
    [msg("system", "Answer in Dutch.\n\nBe brief."), USER],
)
case(
    "turns",
    "tool loop as text",
    [
        SYSTEM,
        USER,
        msg("assistant", None, tool_calls=[call({"id": 7}, name="find")]),
        msg("tool", '{"error":"no such id"}', tool_call_id="abcdefghi"),
    ],
    [
        SYSTEM,
        USER,
        msg("assistant", '<tool_call>\n{"name": "find", "arguments": {"id": 7}}\n</tool_call>'),
        msg("user", '<tool_response>\n{"error":"no such id"}\n</tool_response>'),
    ],
)
case(
    "chatml",
    "tool loop as text",
    [
        USER,
        msg("assistant", "Wait.", tool_calls=[call({"id": 7}, name="find")]),
        msg("tool", "none", tool_call_id="abcdefghi"),
    ],
    [
        USER,
        msg("assistant", 'Wait.\n<tool_call>\n{"name": "find", "arguments": {"id": 7}}\n</tool_call>'),
        msg("user", "<tool_response>\nnone\n</tool_response>"),
    ],
)
case(
    "thinking headers turns brackets chatml",
    "parts",
    [msg("user", [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}])],
    [msg("user", "a b")],
)
case("thinking", "developer", [msg("developer", "Answer in Dutch."), USER], [SYSTEM, USER])


def main() -> None:
    templates = {name: (HERE / "chat_templates" / f"{name}.jinja").read_text("utf-8") for name in SPECIAL}
    rows = []
    for template, name, messages, options, oracle in CASES:
        given = {"tools": None, "add_generation_prompt": True, **options}
        if given.get("continue_final_message"):
            given["add_generation_prompt"] = False
        chat = [{k: v for k, v in m.items() if v is not None} for m in (oracle or messages)]
        prompts, _ = render_jinja_template(
            [chat], chat_template=templates[template], **SPECIAL[template], **given
        )
        rows.append({"template": template, "name": name, "messages": messages, "options": options,
                     "prompt": prompts[0]})  # fmt: skip
    golden = {
        "made_by": "tests/golden/make_template_goldens.py",
        "versions": {"transformers": transformers.__version__, "jinja2": jinja2.__version__},
        "special_tokens": SPECIAL,
        "cases": rows,
    }
    text = json.dumps(golden, ensure_ascii=False, indent=1) + "\n"
    (HERE / "template_goldens.json").write_text(text, encoding="utf-8")
    print(f"{len(rows)} cases")


if __name__ == "__main__":
    main()
