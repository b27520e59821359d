"""Byte-level BPE (GPT-2's kind) as tokenizer.json; GGUF only names the pre-tokenizer."""

from __future__ import annotations

from typing import Any

from saragossa.errors import ConvertError

from .gguf_vocab import CONTROL, UNUSED, USER_DEFINED, Vocabulary

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_TAIL}"
_LLAMA3 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_TAIL}"
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# llama.cpp's splits for a file that names no pre-tokenizer, one after the other.
_DEFAULT = (
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
)


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _byte_level(use_regex: bool) -> dict[str, Any]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


_DIGITS = {"type": "Digits", "individual_digits": True}
_PLAIN = _byte_level(False)
# tokenizer.ggml.pre -> the pre-tokenizers in order
_PRE: dict[str, list[dict[str, Any]]] = {
    "gpt-2": [_byte_level(True)],
    "smollm": [_DIGITS, _byte_level(True)],
    "qwen2": [_split(_QWEN2), _PLAIN],
    "deepseek-r1-qwen": [_split(_QWEN2), _PLAIN],
    "llama-bpe": [_split(_LLAMA3), _PLAIN],
    "llama3": [_split(_LLAMA3), _PLAIN],
    "llama-v3": [_split(_LLAMA3), _PLAIN],
    "tekken": [_split(_TEKKEN), _PLAIN],
    "default": [*(_split(pattern) for pattern in _DEFAULT), _PLAIN],
}
# These take a whole piece that is in the vocabulary before they look at merges.
_IGNORE_MERGES = {"llama-bpe", "llama3", "llama-v3", "tekken"}
_NFC = {"qwen2"}


def byte_level_spec(vocab: Vocabulary) -> dict[str, Any]:
    """tokenizer.json for a `gpt2` vocabulary; raises ConvertError on an unknown pre-tokenizer."""
    if vocab.pre not in _PRE:
        raise ConvertError(
            f"{vocab.where}: the pre-tokenizer {vocab.pre!r} is not supported; "
            f"supported are {', '.join(_PRE)}"
        )
    template = vocab.template_processor()
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": vocab.added_tokens(),
        "normalizer": {"type": "NFC"} if vocab.pre in _NFC else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _PRE[vocab.pre]},
        "post_processor": template and {"type": "Sequence", "processors": [_PLAIN, template]},
        "decoder": _byte_level(True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": vocab.pre in _IGNORE_MERGES,
            "vocab": _model_vocab(vocab),
            "merges": vocab.merges,
        },
    }


def _model_vocab(vocab: Vocabulary) -> dict[str, int]:
    """The model's own pieces.

    Added tokens that follow the pieces are left to added_tokens, so that no text can turn into a
    control token by way of the vocabulary; those in front must stay, as the ids count from zero.
    Padding at the end (UNUSED) is no token at all.
    """
    end = len(vocab.tokens)
    while end and vocab.types[end - 1] == UNUSED:
        end -= 1
    while end and vocab.types[end - 1] in (CONTROL, USER_DEFINED):
        end -= 1
    return {token: i for i, token in enumerate(vocab.tokens[:end])}
