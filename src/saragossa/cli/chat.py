"""The interactive chat: read a line, run a slash command or answer, say how fast it was."""

from __future__ import annotations

import contextlib
import sys
from typing import Protocol

from saragossa.cli.conversation import Conversation, Turn
from saragossa.cli.slash import Leave, run_command
from saragossa.cli.terminal import ModelOutput, prefill_progress
from saragossa.errors import SaragossaError

WELCOME = "{model} on {device}. /help lists the commands, Ctrl-D leaves."


class Reader(Protocol):
    """Reads one message. Raises EOFError on Ctrl-D and KeyboardInterrupt on Ctrl-C."""

    def read(self) -> str: ...


class PlainReader:
    """`input()`: for terminals that cannot do more."""

    def read(self) -> str:
        return input("> ")


def make_reader() -> Reader:
    """The line editor with history, or the plain one."""
    if sys.stdout.isatty():
        from saragossa.cli.line_editor import LineEditor

        return LineEditor()
    return PlainReader()


def chat(conversation: Conversation, name: str, reader: Reader | None = None) -> None:
    """Run the chat until /exit or Ctrl-D. Ctrl-C stops an answer, or clears a line."""
    print(WELCOME.format(model=name, device=conversation.model.device_description))
    reader = reader or make_reader()
    while True:
        try:
            line = reader.read()
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print("(Ctrl-D leaves)")
            continue
        if not line.strip():
            continue
        try:
            question = run_command(conversation, line)
            if question is not None:
                answer(conversation, question)
        except Leave:
            return
        except KeyboardInterrupt:  # between two steps of a turn
            print()
        except SaragossaError as error:
            print(f"saragossa: error: {error}", file=sys.stderr)


def answer(conversation: Conversation, question: str) -> None:
    """Print one answer and its figures."""
    output = ModelOutput(sys.stdout)
    pieces = conversation.answer(question, prefill_progress())
    with contextlib.closing(pieces), contextlib.suppress(KeyboardInterrupt):  # type: ignore[type-var]
        for text in pieces:
            output.write(text)
    output.end_line()
    if conversation.last is not None:
        print(figures(conversation.last))


def figures(turn: Turn) -> str:
    """One line: tokens, speed, and why it ended where that is not the model's own end."""
    line = f"[{turn.tokens} tokens, {turn.decode_tok_s:.1f} tok/s, first after {turn.first_s:.2f} s"
    why = {"length": ", stopped at the token limit", "interrupted": ", stopped"}
    return line + why.get(turn.finish_reason, "") + "]"
