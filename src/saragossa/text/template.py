"""Chat templates: messages to the prompt that the model was trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import jinja2
from jinja2.exceptions import SecurityError

from saragossa.errors import TemplateError, TokenizerError
from saragossa.text.adapt import Capabilities, TemplateStopped, Tools, adapt
from saragossa.text.chat import ChatEncoder, ChatPrompt
from saragossa.text.messages import Message, normalize_messages, normalize_tools
from saragossa.text.plain import plain_value, text_size
from saragossa.text.sandbox import BoundedEnvironment, WorkError
from saragossa.text.special_tokens import read_special_tokens
from saragossa.text.template_files import MAX_TEMPLATE_BYTES, read_templates
from saragossa.text.tokenizer import Tokenizer

_RESERVED = ("messages", "tools", "add_generation_prompt", "continue_final_message")
_FAILURES = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError, MemoryError)
_MIN_OUTPUT = 1 << 20
_OUTPUT_FACTOR = 16  # a template may print what it was given several times, through macros and variables


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """The options of `ChatTemplate.render`."""

    add_generation_prompt: bool = True
    enable_thinking: bool | None = None
    continue_final_message: bool = False
    variables: Mapping[str, object] = field(default_factory=dict)


class Marker(Protocol):
    """Marks strings of the request on their way into the template (see `chat.py`)."""

    def message(self, message: Message) -> Message: ...
    def value(self, value: object) -> object: ...


class ChatTemplate:
    """The templates of a checkpoint by name (`default`, `tool_use`), compiled at first use.

    special_tokens: variables that every template sees (bos_token, eos_token, ...).
    source: what errors call it.
    """

    def __init__(
        self,
        templates: str | Mapping[str, str],
        *,
        special_tokens: Mapping[str, str] | None = None,
        source: str = "chat template",
    ) -> None:
        self.templates = {"default": templates} if isinstance(templates, str) else dict(templates)
        self.special_tokens = dict(special_tokens or {})
        self.source = source
        self._compiled: dict[str, Callable[[dict[str, object], int], str]] = {}
        self._capabilities: dict[tuple[str, bool], Capabilities] = {}
        self._encoder: ChatEncoder | None = None
        for name, text in self.templates.items():
            if len(text) > MAX_TEMPLATE_BYTES:
                raise TokenizerError(f"{source} {name!r} is longer than {MAX_TEMPLATE_BYTES} characters")

    @classmethod
    def from_dir(cls, path: str | Path) -> ChatTemplate:
        """The templates of a model folder, in transformers' order of precedence.

        chat_template.jinja and additional_chat_templates/*.jinja, else chat_template.json, else
        `chat_template` of tokenizer_config.json. A folder without any gives a template that refuses.
        """
        templates, source = read_templates(Path(path))
        return cls(templates, special_tokens=read_special_tokens(Path(path)), source=source)

    def __bool__(self) -> bool:
        return bool(self.templates)

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        tools: Sequence[Mapping[str, object]] | None = None,
        *,
        add_generation_prompt: bool = True,
        enable_thinking: bool | None = None,
        continue_final_message: bool = False,
        variables: Mapping[str, object] | None = None,
        **kwargs: object,
    ) -> str:
        """The prompt of a conversation.

        enable_thinking: passed on if it is not None. continue_final_message: the prompt ends inside the
        last message, which must be the assistant's; no generation prompt then. variables: further ones
        of the template, from a request; kwargs are more of them, from code.
        A TemplateError says what the template or the messages lack.
        """
        options = RenderOptions(
            add_generation_prompt, enable_thinking, continue_final_message, {**(variables or {}), **kwargs}
        )
        return self.render_with(messages, tools, options)

    def render_with(
        self,
        messages: Sequence[Mapping[str, object]],
        tools: Sequence[Mapping[str, object]] | None,
        options: RenderOptions,
        *,
        marker: Marker | None = None,
        tail: str = "\U0010fff2",
    ) -> str:
        """`render` for `chat.py`. tail: a character in none of the texts, to find the last one's end."""
        normal = normalize_messages(messages)
        normal_tools = normalize_tools(tools)
        name = self._select(normal_tools)
        variables = self._variables(options)
        last = normal[-1]
        if options.continue_final_message and (last["role"] != "assistant" or last.get("tool_calls")):
            raise TemplateError(
                f"messages[{len(normal) - 1}] cannot be continued",
                cure="end with an assistant message that has text and no tool calls",
            )
        can = self._can(name, normal_tools is not None)
        developer = "developer" in self.templates[name]
        normal, normal_tools = adapt(normal, normal_tools, can, developer=developer)
        if marker is not None:
            normal = [marker.message(message) for message in normal]
            normal_tools = cast("Tools | None", marker.value(normal_tools))
            variables |= {key: marker.value(variables[key]) for key in options.variables}
        generation_prompt = options.add_generation_prompt
        if options.continue_final_message:
            normal[-1] = _with_tail(normal[-1], tail + " ")
            generation_prompt = False
        prompt = self._run(name, normal, normal_tools, generation_prompt, variables)
        return _cut_tail(prompt, tail) if options.continue_final_message else prompt

    def prompt(
        self,
        tokenizer: Tokenizer,
        messages: Sequence[Mapping[str, object]],
        tools: Sequence[Mapping[str, object]] | None = None,
        *,
        add_generation_prompt: bool = True,
        enable_thinking: bool | None = None,
        continue_final_message: bool = False,
        variables: Mapping[str, object] | None = None,
        **kwargs: object,
    ) -> ChatPrompt:
        """Text and ids of a conversation; the options are those of `render`.

        The text of a control token inside a message is encoded as text, never as the token.
        """
        options = RenderOptions(
            add_generation_prompt, enable_thinking, continue_final_message, {**(variables or {}), **kwargs}
        )
        if self._encoder is None or self._encoder.tokenizer is not tokenizer:
            self._encoder = ChatEncoder(self, tokenizer)
        return self._encoder.prompt(messages, tools, options)

    def encode(
        self,
        tokenizer: Tokenizer,
        messages: Sequence[Mapping[str, object]],
        tools: Sequence[Mapping[str, object]] | None = None,
        **options: Any,
    ) -> list[int]:
        """The ids of `prompt`."""
        return self.prompt(tokenizer, messages, tools, **options).ids

    def _select(self, tools: object) -> str:
        if not self.templates:
            raise TemplateError(
                f"{self.source} has no chat template",
                cure="use --raw for a plain prompt, or put a chat_template.jinja in the model's folder",
            )
        if tools is not None and "tool_use" in self.templates:
            return "tool_use"
        if "default" in self.templates:
            return "default"
        names = ", ".join(sorted(self.templates))
        raise TemplateError(f"{self.source} has no default chat template, only {names}", cure="use --raw")

    def _variables(self, options: RenderOptions) -> dict[str, object]:
        variables: dict[str, object] = dict(self.special_tokens)
        for key, value in options.variables.items():
            if key in _RESERVED:
                raise TemplateError(f"chat_template_kwargs.{key} is not a variable of one's own")
            variables[key] = plain_value(value, f"chat_template_kwargs.{key}")
        if options.enable_thinking is not None:
            variables["enable_thinking"] = options.enable_thinking
        return variables

    def _can(self, name: str, tools: bool) -> Capabilities:
        if (name, tools) not in self._capabilities:
            variables: dict[str, object] = dict(self.special_tokens)

            def probe(messages: list[Message], tools: Tools | None) -> str:
                return self._run(name, messages, tools, True, variables)

            self._compile(name)  # a broken template is not one that supports nothing
            self._capabilities[name, tools] = Capabilities(probe, tools=tools)
        return self._capabilities[name, tools]

    def _compile(self, name: str) -> Callable[[dict[str, object], int], str]:
        if name not in self._compiled:
            try:
                self._compiled[name] = BoundedEnvironment().from_source(self.templates[name])
            except jinja2.TemplateSyntaxError as e:
                raise TemplateError(
                    f"{self.source}, template {name!r}, line {e.lineno}: {e.message}",
                    cure="use --raw, or correct the template",
                ) from e
            except (*_FAILURES, jinja2.TemplateError, SyntaxError) as e:
                raise TemplateError(f"{self.source}, template {name!r}, cannot be compiled: {e}") from e
        return self._compiled[name]

    def _run(
        self,
        name: str,
        messages: list[Message],
        tools: Tools | None,
        add_generation_prompt: bool,
        variables: dict[str, object],
    ) -> str:
        render = self._compile(name)
        inputs = {
            "documents": None,
            **variables,
            "messages": messages,
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return render(inputs, _MIN_OUTPUT + _OUTPUT_FACTOR * text_size(inputs))
        except WorkError as e:
            raise TemplateStopped(f"the chat template was stopped: {_brief(e)}") from e
        except SecurityError as e:
            raise TemplateError(f"the chat template was stopped: {_brief(e)}") from e
        except jinja2.TemplateError as e:
            raise TemplateError(f"the chat template refuses these messages: {_brief(e)}") from e
        except _FAILURES as e:
            raise TemplateError(
                f"the chat template fails on these messages: {type(e).__name__}: {_brief(e)}"
            ) from e


def _brief(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 500 else text[:500] + "..."


def _with_tail(message: Message, tail: str) -> Message:
    content = message["content"]
    if isinstance(content, list):
        *before, last = content
        return {**message, "content": [*before, {**last, "text": last["text"] + tail}]}
    return {**message, "content": f"{content}{tail}"}


def _cut_tail(prompt: str, tail: str) -> str:
    """The prompt up to the end of the last message; stripped if the template strips messages."""
    place = prompt.rfind(tail)
    if place < 0:
        raise TemplateError("the chat template does not show the last message, it cannot be continued")
    kept = prompt[:place]
    return kept if prompt[place + 1 : place + 2] == " " else kept.rstrip()
