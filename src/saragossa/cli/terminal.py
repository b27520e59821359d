"""What goes to the terminal while a model speaks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TextIO


class ModelOutput:
    """Writes a model's text at once. To a terminal no control characters: a text must not steer it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._last = "\n"

    def write(self, text: str) -> None:
        if self._terminal:
            text = "".join(c for c in text if c in "\n\t" or not _is_control(c))
        if text:
            self._stream.write(text)
            self._stream.flush()
            self._last = text[-1]

    def end_line(self) -> None:
        """A newline, unless the text ended with one."""
        if self._last != "\n":
            self._stream.write("\n")
            self._stream.flush()
        self._last = "\n"


def _is_control(character: str) -> bool:
    return character < " " or "\x7f" <= character < "\xa0"


def prefill_progress() -> Callable[[int, int], None] | None:
    """A line on stderr while a long prompt is read; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, total: int) -> None:
        if done < total:
            print(f"\rreading the prompt: {done} of {total} tokens", end="", file=sys.stderr, flush=True)
        else:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    return show
