"""The vocabulary that a GGUF file holds, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saragossa.errors import ConvertError

# Values of tokenizer.ggml.token_type.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

_SPECIAL_KEYS = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "eot": "eot_token_id",
    "eom": "eom_token_id",
    "unk": "unknown_token_id",
    "pad": "padding_token_id",
}
_LLAMA3 = ("llama-bpe", "llama3", "llama-v3")


class Vocabulary:
    """tokens [n], types [n], scores [n] or empty, merges, and the special ids by short name.

    `special` has a key of bos, eos, eot, eom, unk, pad only where the file names that token.
    """

    def __init__(self, metadata: Mapping[str, Any], where: str) -> None:
        """Raises ConvertError, beginning with `where`, on lists that do not fit together."""
        self.where = where
        self.tokens: list[str] = self._list(metadata, "tokens", str)
        if not self.tokens:
            raise ConvertError(f"{where} holds no vocabulary (tokenizer.ggml.tokens)")
        self.types: list[int] = self._list(metadata, "token_type", int) or [NORMAL] * len(self.tokens)
        self.scores: list[float] = self._list(metadata, "scores", int | float)
        self.merges: list[str] = self._list(metadata, "merges", str)
        self.index = {token: i for i, token in enumerate(self.tokens)}
        for name, length in (("token_type", len(self.types)), ("scores", len(self.scores))):
            if length not in (0, len(self.tokens)):
                raise ConvertError(
                    f"{where}: tokenizer.ggml.{name} has {length} entries for {len(self.tokens)} tokens"
                )
        self.pre = str(metadata.get("tokenizer.ggml.pre", "default"))
        self.special: dict[str, int] = {}
        for short, key in _SPECIAL_KEYS.items():
            value = metadata.get(f"tokenizer.ggml.{key}")
            if value is None:
                continue
            if not isinstance(value, int) or not 0 <= value < len(self.tokens):
                raise ConvertError(f"{where}: tokenizer.ggml.{key} is {value!r}, not an id of the vocabulary")
            self.special[short] = value
        sentencepiece = metadata.get("tokenizer.ggml.model") == "llama"
        # The defaults are llama.cpp's: files by older converters lack these keys.
        self.add_bos = bool(
            metadata.get("tokenizer.ggml.add_bos_token", sentencepiece or self.pre in _LLAMA3)
        )
        self.add_eos = bool(metadata.get("tokenizer.ggml.add_eos_token", False))
        self.add_space_prefix = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))

    def _list(self, metadata: Mapping[str, Any], key: str, kind: Any) -> list[Any]:
        values = metadata.get(f"tokenizer.ggml.{key}", [])
        if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
            raise ConvertError(f"{self.where}: tokenizer.ggml.{key} is not a list of the right kind")
        return values

    def added_tokens(self) -> list[dict[str, Any]]:
        """tokenizer.json's added_tokens: control tokens are special, user-defined ones are not."""
        return [
            {
                "id": i,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": kind == CONTROL,
            }
            for i, (token, kind) in enumerate(zip(self.tokens, self.types, strict=True))
            if kind in (CONTROL, USER_DEFINED)
        ]

    def template_processor(self) -> dict[str, Any] | None:
        """The post-processor that adds bos and eos where the file asks for it."""

        def special(name: str, kind: int) -> dict[str, Any]:
            return {"SpecialToken": {"id": self.tokens[self.special[name]], "type_id": kind}}

        def around(part: str, kind: int) -> list[dict[str, Any]]:
            return [
                *([special("bos", kind)] if bos else []),
                {"Sequence": {"id": part, "type_id": kind}},
                *([special("eos", kind)] if eos else []),
            ]

        bos = self.add_bos and "bos" in self.special
        eos = self.add_eos and "eos" in self.special
        if not bos and not eos:
            return None
        used = [self.special[name] for name, on in (("bos", bos), ("eos", eos)) if on]
        return {
            "type": "TemplateProcessing",
            "single": around("A", 0),
            "pair": around("A", 0) + around("B", 1),
            "special_tokens": {
                self.tokens[i]: {"id": self.tokens[i], "ids": [i], "tokens": [self.tokens[i]]} for i in used
            },
        }
