"""Streaming detokenizer: token ids in, text out, without ever showing half a character."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Protocol

from saragossa.text.pieces import BYTEWISE, DecodeRules

_CONTEXT = 4  # tokens kept as left context by the fallback
_WINDOW = 64  # tokens after which the fallback shows what it has


class TokenSource(Protocol):
    """What a detokenizer needs of a tokenizer."""

    @property
    def rules(self) -> DecodeRules: ...
    @property
    def special_ids(self) -> frozenset[int]: ...
    def id_to_token(self, token_id: int) -> str | None: ...
    def library_decode(self, ids: Sequence[int], *, skip_special: bool) -> str: ...


class Detokenizer:
    """Joined deltas of `push` and `finish` equal `Tokenizer.decode` of all ids.

    skip_special: leave special tokens out.
    context: ids that stand before the first pushed one (the prompt). The text then continues them, so
      a leading space stays; without context it goes, as it does at the start of any decoded text.

    A character whose bytes lie in several tokens comes with the last of them. U+FFFD is shown only once
    no later token can complete the character. The work per token does not grow with the text.
    """

    def __init__(
        self, tokenizer: TokenSource, *, skip_special: bool = False, context: Sequence[int] = ()
    ) -> None:
        self._tokenizer = tokenizer
        self._rules = rules = tokenizer.rules
        self._skip = tokenizer.special_ids if skip_special else frozenset[int]()
        self._skip_special = skip_special
        errors = "replace" if rules.kind == "byte_level" else BYTEWISE
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors)
        self._first = not context
        self._strip = 0 if context else rules.strip_start
        self._window: list[int] = []
        self._shown = ""
        if rules.kind == "other":
            self._window = [i for i in context if i not in self._skip][-_CONTEXT:]
            self._shown = self._decode_window()

    def push(self, token_id: int) -> str:
        """The text that is certain now and was not before; often empty."""
        if token_id in self._skip:
            return ""
        if self._rules.kind == "other":
            return self._push_window(token_id)
        token = self._tokenizer.id_to_token(token_id)
        if token is None:
            return ""
        rules = self._rules
        if self._first:
            self._first = False
            if rules.drop_first:
                token = token.replace(rules.drop_first, "")
        return self._strip_start(self._utf8.decode(rules.token_bytes(token)))

    def finish(self) -> str:
        """What is left when no token follows: U+FFFD for a character that was never completed."""
        if self._rules.kind == "other":
            text = self._decode_window()
            delta = text[_common(text, self._shown) :]
            self._shown = text
            return delta
        return self._strip_start(self._utf8.decode(b"", True))

    def _strip_start(self, text: str) -> str:
        while self._strip and text:
            if text[0] != self._rules.strip_char:
                self._strip = 0
                break
            text = text[1:]
            self._strip -= 1
        return text

    def _decode_window(self) -> str:
        return self._tokenizer.library_decode(self._window, skip_special=self._skip_special)

    def _push_window(self, token_id: int) -> str:
        self._window.append(token_id)
        text = self._decode_window()
        grown = text.startswith(self._shown) and not text.endswith("\ufffd")
        if not grown and len(self._window) < _WINDOW:
            return ""
        delta = text[_common(text, self._shown) :]
        if delta:  # an empty delta may still change: keep the window whole
            del self._window[:-_CONTEXT]
            self._shown = self._decode_window()
        elif len(self._window) >= _WINDOW:
            del self._window[: -_WINDOW // 2]
            self._shown = self._decode_window()
        return delta


def _common(a: str, b: str) -> int:
    """Length of the common prefix."""
    n = min(len(a), len(b))
    return next((i for i in range(n) if a[i] != b[i]), n)
