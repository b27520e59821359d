"""What each token stands for: the bytes of a token, and the rules by which tokens join to text.

Three families cover the models: byte-level BPE (GPT-2's alphabet, one character a byte), SentencePiece
style (a mark for the space, `<0x41>` tokens for bytes), and anything else, for which only the tokenizer
library's own decoder speaks (`kind == "other"`).
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
BYTEWISE = "saragossa.bytewise"


def _bytewise(error: UnicodeError) -> tuple[str, int]:
    """One U+FFFD for each undecodable byte, as SentencePiece decoders do."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error(BYTEWISE, _bytewise)


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's byte-level alphabet: printable bytes stand for themselves, the others from U+0100 on."""
    table: dict[str, int] = {}
    shifted = 0x100
    for byte in range(256):
        if 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or byte >= 0xAE:
            table[chr(byte)] = byte
        else:
            table[chr(shifted)] = byte
            shifted += 1
    return table


BYTE_ALPHABET = _byte_alphabet()


@dataclass(frozen=True, slots=True)
class DecodeRules:
    """How token strings become text.

    replacements: applied to every token, in order (the mark for the space).
    byte_fallback: tokens like `<0x41>` are bytes.
    drop_first: this character is left out of the first token (Metaspace's leading space).
    strip_start: so many of `strip_char` are left out at the start of the text.
    """

    kind: Literal["byte_level", "sentencepiece", "other"]
    replacements: tuple[tuple[str, str], ...] = ()
    byte_fallback: bool = False
    drop_first: str = ""
    strip_char: str = ""
    strip_start: int = 0

    def token_bytes(self, token: str) -> bytes:
        """The bytes of one token as it stands inside a text."""
        if self.kind == "byte_level":
            try:
                return bytes([BYTE_ALPHABET[char] for char in token])
            except KeyError:  # an added token with other characters stands for itself
                return token.encode("utf-8")
        if self.byte_fallback and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(match[1], 16)])
        for old, new in self.replacements:
            token = token.replace(old, new)
        return token.encode("utf-8")


def read_rules(decoder_state: bytes | str | None) -> DecodeRules:
    """Rules from the decoder block of tokenizer.json; kind "other" for any combination not known here."""
    if decoder_state is None:
        return DecodeRules("other")
    spec = json.loads(decoder_state)
    steps = spec.get("decoders", []) if spec.get("type") == "Sequence" else [spec]
    types = [step.get("type") for step in steps]
    if types == ["ByteLevel"]:
        return DecodeRules("byte_level")
    if types == ["Metaspace"]:
        mark = steps[0].get("replacement", "\u2581")
        never = steps[0].get("prepend_scheme", "always") == "never"
        return DecodeRules("sentencepiece", ((mark, " "),), drop_first="" if never else mark)
    return _sentencepiece(steps) or DecodeRules("other")


def _sentencepiece(steps: list[Mapping[str, object]]) -> DecodeRules | None:
    """Replace*, ByteFallback?, Fuse?, Strip? in this order; None for anything else."""
    order = {"Replace": 0, "ByteFallback": 1, "Fuse": 2, "Strip": 3}
    ranks = [order.get(str(step.get("type")), -1) for step in steps]
    once = [rank for rank in ranks if rank > 0]
    if not ranks or -1 in ranks or ranks != sorted(ranks) or len(set(once)) != len(once) or 0 not in ranks:
        return None
    replacements: list[tuple[str, str]] = []
    strip_char, strip_start = "", 0
    for step in steps:
        if step["type"] == "Replace":
            pattern = step.get("pattern")
            old = pattern.get("String") if isinstance(pattern, dict) else None
            new = step.get("content")
            if not isinstance(old, str) or not old or not isinstance(new, str):
                return None
            replacements.append((old, new))
        elif step["type"] == "Strip":
            char, start = step.get("content"), step.get("start")
            if 2 not in ranks or step.get("stop") or not isinstance(char, str) or not isinstance(start, int):
                return None
            strip_char, strip_start = char, start
    return DecodeRules("sentencepiece", tuple(replacements), 1 in ranks, "", strip_char, strip_start)
