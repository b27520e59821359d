"""Where templates come from, what they may do, what they refuse."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from saragossa.errors import SaragossaError, TemplateError, TokenizerError
from saragossa.text import sandbox
from saragossa.text.template import ChatTemplate

HELLO = [{"role": "user", "content": "Hello"}]
TOOL = {"type": "function", "function": {"name": "mul", "parameters": {"type": "object"}}}


def show(name: str) -> str:
    """A template that prints its name and the messages."""
    return name + "{% for m in messages %} {{ m.role }}={{ m.content }}{% endfor %}"


def test_precedence(tmp_path: Path) -> None:
    """transformers' order: files with templates win over the JSON forms."""

    def shown(**options: Any) -> str:
        return ChatTemplate.from_dir(tmp_path).render(HELLO, **options).split()[0]

    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": show("config"), "bos_token": {"content": "<s>"}}))
    assert shown() == "config"
    named = [{"name": "tool_use", "template": show("tools")}, {"name": "default", "template": show("list")}]
    config.write_text(json.dumps({"chat_template": named}))
    assert (shown(), shown(tools=[TOOL]), shown(tools=[])) == ("list", "tools", "list")
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": show("json")}))
    assert shown() == "json"
    (tmp_path / "chat_template.jinja").write_text(show("file"))
    assert (shown(), shown(tools=[TOOL])) == ("file", "file")
    extra = tmp_path / "additional_chat_templates"
    extra.mkdir()
    (extra / "tool_use.jinja").write_text(show("extra"))
    assert (shown(), shown(tools=[TOOL])) == ("file", "extra")


def test_variables(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": "{{ bos_token }}|{{ mood }}|{{ enable_thinking }}", "bos_token": "<s>"})
    )
    template = ChatTemplate.from_dir(tmp_path)
    assert template.render(HELLO) == "<s>||"
    assert template.render(HELLO, enable_thinking=False, mood=["a"]) == "<s>|['a']|False"
    assert template.render(HELLO, variables={"mood": "b"}) == "<s>|b|"


def test_bad_variables_are_named() -> None:
    template = ChatTemplate(show("t"))
    for name in ("messages", "tools", "add_generation_prompt", "continue_final_message"):
        with pytest.raises(TemplateError, match=rf"chat_template_kwargs\.{name} "):
            template.render(HELLO, variables={name: []})
    with pytest.raises(
        TemplateError, match=r"chat_template_kwargs\.x\.y is a object, a JSON value is expected"
    ):
        template.render(HELLO, x={"y": object()})


def test_no_template(tmp_path: Path) -> None:
    template = ChatTemplate.from_dir(tmp_path)
    assert not template
    with pytest.raises(TemplateError, match=r"has no chat template \(use --raw"):
        template.render(HELLO)
    assert TemplateError.exit_code == 2


def test_only_other_names() -> None:
    with pytest.raises(TemplateError, match="no default chat template, only rag, tool_use"):
        ChatTemplate({"tool_use": "a", "rag": "b"}).render(HELLO)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (7, "chat_template must be a string or a list"),
        ([], "chat_template must be a string or a list"),
        (["x"], "chat_template must be a string or a list"),
        ([{"name": "default"}], "an entry without name and template"),
        ([{"name": str(i), "template": ""} for i in range(100)], "lists 100, at most 64"),
    ],
)
def test_bad_forms_are_named(tmp_path: Path, value: object, words: str) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": value}))
    with pytest.raises(TokenizerError) as error:
        ChatTemplate.from_dir(tmp_path)
    assert words in str(error.value)


def test_huge_template_file(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("x" * (2 << 20))
    with pytest.raises(TokenizerError, match=r"chat_template.jinja is larger than 1048576 bytes"):
        ChatTemplate.from_dir(tmp_path)
    with pytest.raises(TokenizerError, match="is longer than"):
        ChatTemplate("x" * (2 << 20))


def test_syntax_error_names_the_line() -> None:
    with pytest.raises(TemplateError, match=r"template 'default', line 2: .*--raw"):
        ChatTemplate("a\n{% if %}").render(HELLO)


def test_language_of_templates() -> None:
    """What transformers offers: tojson without escapes, loop controls, generation, dates, dict, namespace."""
    source = (
        "{{ {'é': '<b>&', 'n': none} | tojson }} {{ [1] | tojson(indent=2) }}\n"
        "{% for i in range(9) %}\n{% if i == 1 %}{% continue %}{% elif i == 3 %}{% break %}{% endif %}\n"
        "{{ i }}{% endfor %}\n"
        "{% generation %}[{{ messages[0].content }}]{% endgeneration %} {{ strftime_now('%Y') | length }} "
        "{{ dict(a=1).a }} {% set ns = namespace(a=0) %}{% set ns.a = 2 %}{{ ns.a ~ '!' }}"
    )
    assert ChatTemplate(source).render(HELLO) == ('{"é": "<b>&", "n": null} [\n  1\n]\n02[Hello] 4 1 2!')


def test_a_refusal_carries_the_templates_words() -> None:
    template = ChatTemplate(
        "{% if messages[0].content == 'Hello' %}{{ raise_exception('not so') }}{% endif %}"
    )
    with pytest.raises(TemplateError, match="the chat template refuses these messages: not so"):
        template.render(HELLO)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].missing.key }}",
        "{{ 1 / 0 }}",
        "{{ 'a' + 1 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ range(10000000) }}",
    ],
)
def test_a_failing_template_is_a_clear_error(source: str) -> None:
    with pytest.raises(TemplateError, match="the chat template"):
        ChatTemplate(source + "{{ messages }}").render(HELLO)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(a=1) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ (messages | attr('__class__')).x }}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    ],
)
def test_the_sandbox_holds(source: str) -> None:
    with pytest.raises(TemplateError):
        ChatTemplate(source).render(HELLO)


def test_formats_see_no_internals() -> None:
    assert ChatTemplate("[{{ '{0.__class__}'.format(messages) }}]").render(HELLO) == "[]"


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% set r = range(99999) %}{% for a in r %}{% for b in r if false %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{{ range(99999) | list | length }}{% endfor %}",
        "{% macro f(n) %}{% if n %}{% set x = f(n - 1) %}{% set y = f(n - 1) %}{% endif %}{% endmacro %}"
        "{{ f(90) }}",
        "{% for a in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
        "{% set ns = namespace(s='xx') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(s='xx') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s='xx') %}{% for i in range(99) %}"
        "{% set x %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = x %}{% endfor %}",
        "{% set ns = namespace(s='xx') %}{% for i in range(99) %}"
        "{% set ns.s = ns.s.replace('x', 'xxxxxxxx') %}{% endfor %}",
        "{% for a in range(99999) %}" + "text " * 99 + "{% endfor %}",
        "{% set s = 'x' * 900000 %}{% for a in range(99999) %}{% set x = s | upper %}{% endfor %}",
        "{% set ns = namespace(n=3) %}{% for i in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
    ],
)
def test_work_and_size_are_bounded(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_SECONDS", 0.3)
    start = time.monotonic()
    with pytest.raises(TemplateError, match="stopped"):
        ChatTemplate({"default": source}).render(HELLO)
    assert time.monotonic() - start < 5


def test_a_stopped_template_is_not_probed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_SECONDS", 0.1)
    template = ChatTemplate("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")
    runs = []
    run = template._run
    monkeypatch.setattr(template, "_run", lambda *args: runs.append(1) or run(*args))
    with pytest.raises(TemplateError, match="too much work"):
        template.render([{"role": "system", "content": "a"}, *HELLO, *HELLO], [TOOL])
    assert len(runs) == 1


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ ('x' * 9999999999) | length }}", "text or list that is too long"),
        ("{{ 10 ** 10 ** 10 }}", "computes a power of 10"),
        ("{{ '%999999999d' % 1 }}", "formats with a width"),
        ("{{ '%999999999d' | format(1) }}", "formats with a width"),
        ("{{ '%*d' % (999999999, 1) }}", "formats with a width"),
        ("{{ '{:>999999999}'.format(1) }}", "formats with a width"),
        ("{{ '{:>{}}'.format(1, 999999999) }}", "formats with a width"),
        ("{{ 'x'.ljust(999999999) }}", "calls ljust with a width"),
        ("{{ 'x' | center(999999999) }}", "uses center with a width"),
        ("{{ 'x' | indent(999999999, true) }}", "uses indent with a width"),
        ("{{ [1] | tojson(indent=999999999) }}", "tojson with an indent"),
        ("{{ ('x' * 9999).join(['x'] * 9999) }}", "makes a text that is too long"),
        ("{{ ('x' * 9999).replace('x', 'y' * 9999) }}", "makes a text that is too long"),
    ],
)
def test_one_call_cannot_take_the_memory(source: str, words: str) -> None:
    """Refused before it is computed."""
    with pytest.raises(TemplateError, match=f"stopped: .*{words}"):
        ChatTemplate(source).render(HELLO)


def test_long_conversations_fit_the_bounds() -> None:
    messages = [{"role": r, "content": "word " * 400} for _ in range(400) for r in ("user", "assistant")]
    source = (
        "{% macro p(m) %}{{ m.role ~ m.content }}{% endmacro %}"
        "{% for m in messages %}{% set x %}{{ p(m) }}{% endset %}{{ x }}{% endfor %}"
    )
    prompt = ChatTemplate(source).render(messages)
    assert len(prompt) == 800 * 2000 + 400 * (4 + 9)


def test_the_callers_messages_stay_as_they_are() -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}],
        },
    ]
    before = json.dumps(messages)
    ChatTemplate(show("t")).render(messages)
    assert json.dumps(messages) == before


def test_a_template_that_wants_parts() -> None:
    source = (
        "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}"
        "{% endif %}{% endfor %}{% endfor %}"
    )
    template = ChatTemplate(source)
    assert template.render([{"role": "system", "content": "be"}, *HELLO]) == "<system>be<user>Hello"
    begun = [*HELLO, {"role": "assistant", "content": "The"}]
    assert template.render(begun, continue_final_message=True) == "<user>Hello<assistant>The"


def test_all_errors_are_of_one_family() -> None:
    assert issubclass(TemplateError, SaragossaError)
