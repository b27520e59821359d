"""A reply, piece by piece, as events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from saragossa.text.reply import gemma, hermes, mistral, xml_calls
from saragossa.text.reply import llama as llama3
from saragossa.text.reply.events import CallArguments, CallBegin, Event, Reasoning, Text
from saragossa.text.reply.reasoning import reasoning
from saragossa.text.reply.source import Source, Steps

Calls = Callable[[Source, int], Steps[int]]


@dataclass(frozen=True, slots=True)
class CallForm:
    """How a family of models writes calls.

    open: the mark in front of them; calls: reads what follows it. bare: reads a reply that is one, without a
    mark, where the family writes such.
    """

    open: str
    calls: Calls
    bare: Calls | None = None


HERMES = CallForm(hermes.OPEN, hermes.calls)
MISTRAL = CallForm(mistral.OPEN, mistral.calls)
GEMMA = CallForm(gemma.OPEN, gemma.calls)


def xml(tools: list[dict[str, object]]) -> CallForm:
    """Of Qwen3-Coder and Qwen3.5; a parameter's type says how its text is to be read."""
    return CallForm(xml_calls.OPEN, xml_calls.reader(xml_calls.kinds_of(tools)))


def llama(tools: list[dict[str, object]]) -> CallForm:
    """Of Llama 3: only objects that name one of the tools are calls."""
    names = xml_calls.kinds_of(tools).keys()
    return CallForm(llama3.OPEN, llama3.reader(names), llama3.reader(names, opened=""))


class ReplyParser:
    """Events of one reply. Joined, they are the same however the text is cut.

    form: how calls are written; None where no tools were offered: then all is text. thinking: the model may
    think before it answers; opened: its prompt ends inside of the reasoning.
    """

    def __init__(self, form: CallForm | None, *, thinking: bool = False, opened: bool = False) -> None:
        self._source = Source()
        self._steps = self._reply(form, thinking, opened)
        self._done = False

    def push(self, text: str) -> list[Event]:
        """What is known of the reply with this text behind the text before."""
        self._source.text += text
        return self._run()

    def finish(self) -> list[Event]:
        """The rest: nothing follows. Calls that stand open are closed."""
        self._source.ended = True
        return self._run()

    def _run(self) -> list[Event]:
        events: list[Event] = []
        while not self._done:
            try:
                event = next(self._steps)
            except StopIteration:
                self._done = True
                break
            if event is None:
                break
            _add(events, event)
        return events

    def _reply(self, form: CallForm | None, thinking: bool, opened: bool) -> Steps[None]:
        answer = _Answer(trim=thinking and (yield from reasoning(self._source, opened=opened)))
        index = 0
        if form is not None and form.bare is not None:
            yield from self._source.more(1)
            if self._source.text.lstrip()[:1] in ("{", ""):
                index = yield from _with_text(form.bare(self._source, index), answer)
        while True:
            found = yield from self._source.copy_until([form.open] if form else [], answer)
            if found is None or form is None:
                yield answer.end()
                return
            index = yield from _with_text(form.calls(self._source, index), answer)


def _with_text(calls: Steps[int], answer: _Answer) -> Steps[int]:
    """The steps of calls; what turns out to be none goes to the answer."""
    while True:
        try:
            event = next(calls)
        except StopIteration as end:
            return int(end.value)
        if isinstance(event, Text):
            event = answer(event.text)
        elif isinstance(event, CallBegin):
            answer.interrupt()
        yield event


class _Answer:
    """White space between an answer and its calls or reasoning is no part of it.

    trim: reasoning stands in front of it.
    """

    def __init__(self, *, trim: bool) -> None:
        self._trim, self._alone = trim, not trim
        self._space = ""

    def __call__(self, piece: str) -> Event:
        piece = self._space + piece
        if self._trim:
            piece = piece.lstrip()
            self._trim = not piece
        kept = piece.rstrip()
        self._space = piece[len(kept) :]
        return Text(kept)

    def interrupt(self) -> None:
        """A call stands here."""
        self._space, self._trim, self._alone = "", True, False

    def end(self) -> Event:
        """White space at the end belongs to an answer that stands alone."""
        return Text(self._space if self._alone else "")


def _add(events: list[Event], event: Event) -> None:
    """Behind the others; pieces of one thing are joined, empty ones are left out."""
    last = events[-1] if events else None
    match event, last:
        case (Text(""), _) | (Reasoning(""), _):
            pass
        case Text(text), Text(before):
            events[-1] = Text(before + text)
        case Reasoning(text), Reasoning(before):
            events[-1] = Reasoning(before + text)
        case CallArguments(index, text), CallArguments(same, before) if index == same:
            events[-1] = CallArguments(index, before + text)
        case _:
            events.append(event)
