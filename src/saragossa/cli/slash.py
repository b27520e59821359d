"""Slash commands of the chat: one function each, its docstring is the help."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

from saragossa.cli.conversation import Conversation
from saragossa.cli.sampling_options import OPTIONS, parse_one
from saragossa.errors import UsageError

MAX_SAVED_BYTES = 16 << 20


class Leave(Exception):
    """The chat is over."""


Command = Callable[[Conversation, str], str | None]
COMMANDS: dict[str, Command] = {}


def command(function: Command) -> Command:
    """Register `_name` as /name."""
    COMMANDS[function.__name__.removeprefix("_")] = function
    return function


def run_command(conversation: Conversation, line: str) -> str | None:
    """Run `line` if it is a command; else return it as a question (`//` begins one with a slash).

    Raises UsageError for an unknown command, Leave for /exit.
    """
    if not line.startswith("/"):
        return line
    if line.startswith("//"):
        return line[1:]
    name, _, argument = line[1:].partition(" ")
    found = COMMANDS.get(name.strip())
    if found is None:
        known = " ".join(f"/{known}" for known in COMMANDS)
        raise UsageError(
            f"no command /{name.strip()}", cure=f"there are {known}; // begins a message with a slash"
        )
    return found(conversation, argument.strip())


@command
def _help(conversation: Conversation, argument: str) -> None:
    """this list"""
    for name, function in COMMANDS.items():
        print(f"/{name:8} {function.__doc__}")
    print(
        'Alt-Enter makes a new line, """ begins and ends a block of lines, // begins a message with a slash.'
    )
    print("Ctrl-C stops the answer, Ctrl-D leaves.")


@command
def _clear(conversation: Conversation, argument: str) -> None:
    """forget the dialogue"""
    conversation.clear()
    print("The dialogue is forgotten.")


@command
def _system(conversation: Conversation, argument: str) -> None:
    """TEXT: set the system message; - takes it away; alone it is shown"""
    if argument:
        conversation.system = None if argument == "-" else argument
    print(f"system: {conversation.system or 'none'}")


@command
def _set(conversation: Conversation, argument: str) -> None:
    """NAME VALUE: set a sampling option; VALUE default takes it back; alone all are shown"""
    name, _, text = argument.partition(" ")
    if text.strip() == "default":
        field, _ = parse_one(name, "0")
        conversation.overrides.pop(field, None)
    elif name:
        field, value = parse_one(name, text.strip())
        changed = conversation.overrides | {field: value}
        conversation.model.chat_options(**changed).validate()
        conversation.overrides = changed
    options = conversation.options
    for option in OPTIONS:
        print(f"{option.field:20} {getattr(options, option.field)}")


@command
def _think(conversation: Conversation, argument: str) -> None:
    """on, off or default: whether a reasoning model thinks first"""
    states = {"on": True, "off": False, "default": None}
    if argument not in states:
        raise UsageError(f"/think: found {argument!r}, accepted is on, off or default")
    conversation.thinking = states[argument]
    print(f"thinking: {argument}")


@command
def _retry(conversation: Conversation, argument: str) -> str:
    """answer the last question again"""
    while conversation.messages:
        message = conversation.messages.pop()
        if message["role"] == "user":
            return message["content"]
    raise UsageError("there is no question yet")


@command
def _stats(conversation: Conversation, argument: str) -> None:
    """speed of the last answer, tokens of the dialogue, memory"""
    from saragossa.engine.memory import peak_rss_bytes

    turn, model = conversation.last, conversation.model
    if turn is not None:
        print(
            f"answer:  {turn.tokens} tokens, {turn.decode_tok_s:.1f} tok/s, first after {turn.first_s:.2f} s"
        )
        print(f"prompt:  {turn.prompt_tokens} tokens, {turn.reused} of them kept from the turn before")
        print(f"context: {turn.prompt_tokens + turn.tokens} of {model.context} tokens")
    print(f"device:  {model.device_description}")
    print(f"memory:  {peak_rss_bytes() / 1e6:.0f} MB at most, loaded in {model.load_seconds:.2f} s")


@command
def _save(conversation: Conversation, argument: str) -> None:
    """FILE: write the dialogue as JSON; an existing file is not overwritten"""
    if not argument:
        raise UsageError("/save needs a file name")
    data = json.dumps(
        {"system": conversation.system, "messages": conversation.messages}, ensure_ascii=False, indent=1
    )
    path = Path(argument).expanduser()
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(data + "\n")
    except OSError as error:
        if not isinstance(error, FileExistsError):
            with contextlib.suppress(OSError):
                path.unlink()  # nothing half-written
        raise UsageError(f"{argument}: {error.strerror}", cure="choose another file") from error
    print(f"saved to {argument}")


@command
def _load(conversation: Conversation, argument: str) -> None:
    """FILE: go on with a saved dialogue"""
    if not argument:
        raise UsageError("/load needs a file name")
    try:
        with Path(argument).expanduser().open("rb") as file:
            data = json.loads(file.read(MAX_SAVED_BYTES))
        messages = [{"role": m["role"], "content": m["content"]} for m in data["messages"]]
        system = data["system"]
    except OSError as error:
        raise UsageError(f"{argument}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(f"{argument}: no dialogue that /save wrote") from None
    roles = [m["role"] for m in messages]
    texts = [m["content"] for m in messages] + ([] if system is None else [system])
    if roles != ["user", "assistant"] * (len(roles) // 2) or not all(isinstance(text, str) for text in texts):
        raise UsageError(f"{argument}: no dialogue that /save wrote")
    conversation.messages, conversation.system = messages, system
    print(f"{len(messages) // 2} turns loaded")


@command
def _exit(conversation: Conversation, argument: str) -> None:
    """leave (so does Ctrl-D)"""
    raise Leave
