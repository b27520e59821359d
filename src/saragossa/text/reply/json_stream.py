"""One JSON value out of a stream, passed on as it comes, so that what was passed on can always be closed.

Models write almost JSON. Mended are: white space is dropped, line breaks and tabs inside of strings are
escaped, a comma in front of a closing bracket is dropped, Python's True, False and None are spelled as JSON.
What cannot be mended ends the value: it is closed where it stands.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable

from saragossa.text.reply.events import Event, Text
from saragossa.text.reply.source import Source, Steps

NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
WORDS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
_WORD = re.compile(r"[\w.+-]")
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_MOST_DEPTH = 64


class NotJson(Exception):
    """Raised inside: the value ends here."""


def copy_value(source: Source, make: Callable[[str], Event]) -> Steps[bool]:
    """Pass on the value that begins at the next character; False where it had to be closed.

    Where nothing of it could be passed on, nothing was.
    """
    copier = _Json(source, make)
    try:
        yield from copier.value()
    except NotJson:
        if copier.closers:
            yield make(copier.rest())
        return False
    return True


def whole(source: Source) -> Steps[str]:
    """The value that begins at the next character, taken whole, as JSON. Raises NotJson."""
    parts: list[str] = []

    def collect(piece: str) -> Event:
        parts.append(piece)
        return Text(piece)

    for step in _Json(source, collect).value():
        if step is None:
            yield None
    return "".join(parts)


def string(source: Source) -> Steps[str]:
    """The string that begins at the next character. Raises NotJson."""
    if not (yield from source.skip_space()) or source.text[0] != '"':
        raise NotJson
    return str(json.loads((yield from whole(source))))


class Copier(ABC):
    """Passes a value on in pieces that `make` turns into events; subclasses know how strings are written.

    closers: of what was passed on, the innermost last.
    """

    def __init__(self, source: Source, make: Callable[[str], Event]) -> None:
        self.source, self.make = source, make
        self.closers: list[str] = []

    @abstractmethod
    def key(self) -> Steps[str]:
        """The key that begins at the next character, and what separates it from its value."""

    @abstractmethod
    def string(self, before: str) -> Steps[bool]:
        """Pass on the string that comes next, `before` in front; False where there is none."""

    def rest(self) -> str:
        """What closes all that was passed on."""
        return "".join(reversed(self.closers))

    def next(self) -> Steps[str]:
        """The next character that is no white space."""
        if not (yield from self.source.skip_space()):
            raise NotJson
        return self.source.text[0]

    def value(self, before: str = "", depth: int = 0) -> Steps[None]:
        """before: goes in front of the first piece, once there is one."""
        first = yield from self.next()
        if first in "{[":
            if depth == _MOST_DEPTH:
                raise NotJson
            yield from self.items(before + self.source.take(1), depth)
        elif not (yield from self.string(before)):
            yield self.make(before + (yield from self._word()))

    def items(self, before: str, depth: int = 0) -> Steps[None]:
        """What follows an opening bracket, with which `before` ends."""
        closer = "}" if before[-1] == "{" else "]"
        yield self.make(before)
        self.closers.append(closer)
        comma = ""
        while (yield from self.next()) != closer:
            key = ""
            if closer == "}":
                key = json.dumps((yield from self.key()), ensure_ascii=False) + ":"
            yield from self.value(comma + key, depth + 1)
            comma = ","
            if (yield from self.next()) == ",":
                self.source.take(1)
            elif self.source.text[0] != closer:
                raise NotJson
        self.source.take(1)
        self.closers.pop()
        yield self.make(closer)

    def run(self, characters: re.Pattern[str]) -> Steps[int]:
        """How many of these characters come next."""
        length = 0
        while (yield from self.source.more(length + 1)) and characters.match(self.source.text[length]):
            length += 1
        return length

    def _word(self) -> Steps[str]:
        length = yield from self.run(_WORD)
        word = self.source.text[:length]
        if word not in WORDS and not NUMBER.fullmatch(word):
            raise NotJson
        self.source.take(length)
        return WORDS.get(word, word)


class _Json(Copier):
    def key(self) -> Steps[str]:
        name = yield from string(self.source)
        if (yield from self.next()) != ":":
            raise NotJson
        self.source.take(1)
        return name

    def string(self, before: str) -> Steps[bool]:
        if self.source.text[0] != '"':
            return False
        self.source.take(1)
        yield self.make(before + '"')
        self.closers.append('"')
        while True:
            if not (yield from self.source.more(1)):
                raise NotJson
            text = self.source.text
            plain = next((i for i, c in enumerate(text) if c in '"\\' or c < " "), len(text))
            if plain:
                yield self.make(self.source.take(plain))
            elif text[0] == '"':
                break
            elif text[0] == "\\":
                yield self.make((yield from self._escape()))
            else:
                yield self.make(json.dumps(self.source.take(1))[1:-1])
        self.source.take(1)
        self.closers.pop()
        yield self.make('"')
        return True

    def _escape(self) -> Steps[str]:
        """One escape, or the two of a surrogate pair; a lone one becomes U+FFFD."""
        code = yield from self._unit()
        if code is None:
            return self.source.take(2)
        if code < 0:  # a backslash that stands for itself
            self.source.take(1)
            return "\\\\"
        escape = self.source.take(6)
        if not 0xD800 <= code < 0xE000:
            return escape
        if code < 0xDC00 and (low := (yield from self._unit())) is not None and 0xDC00 <= low < 0xE000:
            self.source.take(6)
            return f"\\u{code:04x}\\u{low:04x}"
        return "\ufffd"

    def _unit(self) -> Steps[int | None]:
        """The code of the \\u escape that comes next; None for another escape, -1 for none that JSON has."""
        if not (yield from self.source.more(2)):
            raise NotJson
        if self.source.text[0] != "\\" or self.source.text[1] != "u":
            return None if self.source.text[1] in '"\\/bfnrt' else -1
        if not (yield from self.source.more(6)):
            raise NotJson
        return int(self.source.text[2:6], 16) if _HEX.fullmatch(self.source.text[2:6]) else -1
