"""A conversation as a prompt: text and token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from saragossa.text.control import ControlEncoder, Span, TextMarker, take_marks, unused_characters
from saragossa.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from saragossa.text.template import ChatTemplate, RenderOptions


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """text: what the template made of the messages. ids: its tokens, nothing put around them."""

    text: str
    ids: list[int]


def _all_text(value: object) -> list[str]:
    """Every string in a request's value."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for key, item in value.items() for text in (*_all_text(key), *_all_text(item))]
    if isinstance(value, list | tuple):
        return [text for item in value for text in _all_text(item)]
    return []


class ChatEncoder:
    """Prompts of one template for one tokenizer, with the text of control tokens in messages kept as text.

    The ids of ordinary messages are those of the whole rendered prompt.
    """

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer) -> None:
        self.template, self.tokenizer = template, tokenizer
        self._control = ControlEncoder(tokenizer, list(template.templates.values()))

    def prompt(
        self,
        messages: Sequence[Mapping[str, object]],
        tools: Sequence[Mapping[str, object]] | None,
        options: RenderOptions,
    ) -> ChatPrompt:
        """See `ChatTemplate.prompt`."""
        sources = self.template.templates.values()
        taken = [*_all_text(messages), *_all_text(tools), *_all_text(options.variables), *sources]
        *marks, tail = unused_characters("\0".join(taken), 3)
        marker = TextMarker(self._control.special, self._control.control, marks)
        text = self.template.render_with(messages, tools, options, marker=marker, tail=tail)
        foreign: list[Span] = []
        if marker.changed:
            text, foreign = take_marks(text, marks)
        return ChatPrompt(text, self._control.encode(text, foreign))
