"""Control tokens in a request's own text: found on the way in, encoded as ordinary text.

Turns come from the request's structure only. Where a user writes `<|im_end|>`, the model must read these
ten characters and not the token. Control tokens are the special tokens, and such other added tokens as
the chat template writes itself (`<tool_call>`, `<think>`).

1. `TextMarker` puts invisible marks around suspicious text on its way into the template.
2. `take_marks` removes them from the rendered prompt and keeps the places.
3. `ControlEncoder` encodes a prompt in which some control tokens are text: the template's own ones are
   replaced by private names, and a twin of the tokenizer knows only those names. So there are no
   seams: all else merges as it does in the whole prompt.
"""

from __future__ import annotations

import json
import re
import secrets
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import cast

import tokenizers

from saragossa.errors import TemplateError
from saragossa.text.messages import Message
from saragossa.text.tokenizer import Tokenizer

Span = tuple[int, int]

_PRIVATE = range(0x10FF00, 0x10FFFE)  # plane 16, private use
_STRUCTURE = ("role", "type")  # values that templates compare, never free text


def unused_characters(text: str, count: int) -> list[str]:
    """Private characters that `text` does not hold."""
    free = [chr(code) for code in _PRIVATE if chr(code) not in text]
    if len(free) < count:
        raise TemplateError("the messages use too many private Unicode characters (U+10FF00 on)")
    return free[:count]


class TokenText:
    """Finds the text of some tokens, whole or as a part that may be completed by what stands beside it."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self.tokens = frozenset(t for t in tokens if t)
        lengths: dict[str, set[int]] = {}
        for token in self.tokens:
            lengths.setdefault(token[0], set()).add(len(token))
        self._lengths = {char: sorted(found, reverse=True) for char, found in lengths.items()}
        self._first = re.compile("|".join(map(re.escape, sorted(lengths))) or "(?!)")
        self._longest = max(map(len, self.tokens), default=0)

    def whole(self, text: str) -> Iterator[Span]:
        """Leftmost, longest matches, in order."""
        done = 0
        for match in self._first.finditer(text):
            start = match.start()
            if start < done:
                continue
            for length in self._lengths[match[0]]:
                if text[start : start + length] in self.tokens:
                    done = start + length
                    yield start, done
                    break

    # A part is suspicious from half of the token on: of two halves one is at least that long.

    @cached_property
    def _starts(self) -> frozenset[str]:
        return frozenset(t[:k] for t in self.tokens for k in range((len(t) + 1) // 2, len(t)))

    @cached_property
    def _ends(self) -> frozenset[str]:
        return frozenset(t[-k:] for t in self.tokens for k in range((len(t) + 1) // 2, len(t)))

    @cached_property
    def _joined(self) -> str:
        return "\0".join(self.tokens)

    def suspicious(self, text: str) -> list[Span]:
        """Disjoint spans, in order, that are or may become the text of a token."""
        spans = list(self.whole(text))
        reach = min(len(text), self._longest - 1)
        start = next((k for k in range(reach, 0, -1) if text[:k] in self._ends), 0)
        end = next((k for k in range(reach, 0, -1) if text[-k:] in self._starts), 0)
        if 1 < len(text) < self._longest and text in self._joined and not text.isidentifier():
            start = len(text)  # the middle of a token
        if start:
            spans.insert(0, (0, start))
        if end:
            spans.append((len(text) - end, len(text)))
        merged: list[Span] = []
        for a, b in spans:
            if merged and a < merged[-1][1]:
                merged[-1] = (merged[-1][0], max(b, merged[-1][1]))
            else:
                merged.append((a, b))
        return merged


class TextMarker:
    """Marks suspicious text in messages and other values. `changed` tells whether there was any.

    special: text of special tokens. control: of these and of the template's other tokens. The
    assistant's own text may hold the latter, which the model writes itself (`<think>`).
    """

    def __init__(self, special: TokenText, control: TokenText, marks: Sequence[str]) -> None:
        self._special, self._control = special, control
        self._open, self._close = marks
        self.changed = False

    def message(self, message: Message) -> Message:
        """A copy with marks."""
        own = message["role"] == "assistant"
        marked: Message = {}
        for key, value in message.items():
            text = self._special if own and key != "tool_calls" else self._control
            marked[key] = value if key in _STRUCTURE else self._mark(value, text)
        return marked

    def value(self, value: object) -> object:
        """A copy with marks, for tools and variables."""
        return self._mark(value, self._control)

    def _mark(self, value: object, finder: TokenText) -> object:
        if isinstance(value, str):
            return self._mark_text(value, finder)
        if isinstance(value, list):
            return [self._mark(item, finder) for item in value]
        if isinstance(value, dict):
            return {
                self._mark_text(key, finder): item if key in _STRUCTURE else self._mark(item, finder)
                for key, item in value.items()
            }
        return value

    def _mark_text(self, text: str, finder: TokenText) -> str:
        spans = finder.suspicious(text)
        if not spans:
            return text
        self.changed = True
        pieces, done = [], 0
        for a, b in spans:
            pieces += [text[done:a], self._open, text[a:b], self._close]
            done = b
        return "".join([*pieces, text[done:]])


def take_marks(prompt: str, marks: Sequence[str]) -> tuple[str, list[Span]]:
    """The prompt without marks, and the spans that stood between them.

    A mark whose partner the template removed gives an empty span: text that stands across it is not the
    template's.
    """
    opening, closing = marks
    for mark in marks:  # a template's tojson(ensure_ascii=true) writes them as escapes
        prompt = prompt.replace(json.dumps(mark)[1:-1], mark)
    pieces, spans = [], []
    length, opened = 0, -1
    for piece in re.split(f"([{opening}{closing}])", prompt):
        if piece == opening:
            opened = length
            spans.append((length, length))
        elif piece == closing:
            spans.append((opened if opened >= 0 else length, length))
            opened = -1
        else:
            pieces.append(piece)
            length += len(piece)
    return "".join(pieces), spans


class ControlEncoder:
    """Encodes rendered prompts; `control` are the tokens that the request's text must not make."""

    def __init__(self, tokenizer: Tokenizer, template_sources: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.added_tokens
        sources = "\0".join(template_sources)
        self.special = TokenText(token.content for token in added.values() if token.special)
        self.control = TokenText(
            token.content
            for token in added.values()
            if token.special or (token.content in sources and not token.content.isspace())
        )
        self._all = TokenText(token.content for token in added.values())
        self._control_ids = {
            i: token.content for i, token in added.items() if token.content in self.control.tokens
        }
        self._twin: tuple[tokenizers.Tokenizer, dict[str, str], dict[int, int]] | None = None

    def encode(self, prompt: str, foreign: Sequence[Span]) -> list[int]:
        """Ids of `prompt`, in which control tokens that touch a `foreign` span are ordinary text."""
        matches = [(a, b) for a, b in self._all.whole(prompt) if prompt[a:b] in self.control.tokens]
        own = _outside(matches, foreign)
        if len(own) == len(matches):
            ids = self._tokenizer.encode(prompt, add_special=False)
            found = [self._control_ids[i] for i in ids if i in self._control_ids]
            if found == [prompt[a:b] for a, b in own]:
                return ids
        return self._encode_apart(prompt, own)

    def _encode_apart(self, prompt: str, own: Sequence[Span]) -> list[int]:
        twin, names, real = self._twin = self._twin or self._make_twin()
        pieces, done = [], 0
        for a, b in own:
            pieces += [prompt[done:a], names[prompt[a:b]]]
            done = b
        ids: list[int] = []
        for i in twin.encode("".join([*pieces, prompt[done:]]), add_special_tokens=False).ids:
            if i in self._control_ids and i not in real:  # the model itself made it from ordinary text
                ids += self._spell(self._control_ids[i])
            else:
                ids.append(real.get(i, i))
        return ids

    def _make_twin(self) -> tuple[tokenizers.Tokenizer, dict[str, str], dict[int, int]]:
        """The same model (shared, not copied) with private names for the control tokens.

        Returns the tokenizer, private name by token text, and the real id by the twin's id.
        """
        backend = self._tokenizer.backend
        twin = tokenizers.Tokenizer(backend.model)
        for part in ("normalizer", "pre_tokenizer"):
            if getattr(backend, part) is not None:
                setattr(twin, part, getattr(backend, part))
        nonce = secrets.token_hex(8)  # a request cannot write a name that it does not know
        names: dict[str, str] = {}
        tokens: list[tokenizers.AddedToken] = []
        added: list[tuple[int, str]] = []
        for i, token in sorted(self._tokenizer.added_tokens.items()):
            text = token.content
            if i in self._control_ids:
                text = names[token.content] = f"{chr(_PRIVATE.stop)}{nonce}.{i}{chr(_PRIVATE.stop + 1)}"
            flags = {"lstrip": token.lstrip, "rstrip": token.rstrip, "normalized": token.normalized}
            single_word = token.single_word and i not in self._control_ids
            tokens.append(tokenizers.AddedToken(text, single_word=single_word, **flags))
            added.append((i, text))
        twin.add_tokens(tokens)  # at once: each call builds the matcher anew
        real = {cast(int, twin.token_to_id(text)): i for i, text in added}
        return twin, names, real

    def _spell(self, text: str) -> list[int]:
        """Ids of a control token's text, a character at a time."""
        model = self._tokenizer.backend.model
        return [token.id for char in text for token in model.tokenize(char)]


def _outside(spans: Sequence[Span], foreign: Sequence[Span]) -> list[Span]:
    """The spans that touch no foreign one; an empty one is touched from both sides. All are in order."""
    ends = [end for _, end in foreign]
    kept = []
    for start, end in spans:
        i = bisect_right(ends, start)  # the first that ends behind our start
        if i == len(foreign) or foreign[i][0] >= end:
            kept.append((start, end))
    return kept
