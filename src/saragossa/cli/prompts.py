"""Prompts from options, files and standard input, bounded and checked."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from saragossa.errors import UsageError

MAX_PROMPT_BYTES = 64 << 20


def read_prompt(args: argparse.Namespace) -> str | list[int]:
    """The prompt of `generate`: token ids, or a text as it is.

    Raises UsageError when it is missing, empty, too long or no UTF-8, OSError when its file is unreadable.
    """
    templated = args.ids is None and not args.raw
    if not templated and (args.system is not None or args.thinking is not None):
        raise UsageError("--system and --thinking need the chat template, which --ids and --raw turn off")
    if args.ids is not None:
        return parse_ids(args.ids)
    if args.prompt is not None:
        return not_empty(args.prompt)
    if args.prompt_file not in (None, "-"):
        with Path(args.prompt_file).open("rb") as file:
            return not_empty(_decode(file.read(MAX_PROMPT_BYTES + 1), args.prompt_file))
    if args.prompt_file is None and sys.stdin.isatty():
        raise UsageError("no prompt", cure="give --prompt, --prompt-file or --ids, or pipe one in")
    return not_empty(read_stdin())


def read_stdin() -> str:
    """All of standard input, as it is."""
    return _decode(sys.stdin.buffer.read(MAX_PROMPT_BYTES + 1), "standard input")


def not_empty(text: str) -> str:
    """The text, or UsageError."""
    if not text:
        raise UsageError("the prompt is empty", cure="give at least one character")
    return text


def parse_ids(text: str, option: str = "--ids") -> list[int]:
    """Token ids from one string. Whether each is in the vocabulary, the model says."""
    ids = []
    for word in text.split():
        if not (word.isascii() and word.isdigit() and int(word[:11]) < 1 << 31 and len(word) < 11):
            raise UsageError(
                f"{option}: found {word[:40]!r}, accepted are token ids from 0 on", cure='such as "1 2 3"'
            )
        ids.append(int(word))
    if not ids:
        raise UsageError(f"{option}: the prompt is empty", cure='give at least one id, such as "1 2 3"')
    return ids


def _decode(data: bytes, source: str) -> str:
    if len(data) > MAX_PROMPT_BYTES:
        raise UsageError(f"{source}: more than {MAX_PROMPT_BYTES >> 20} MiB", cure="shorten the prompt")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{source}: byte {error.start} is not UTF-8", cure="convert it to UTF-8") from None
