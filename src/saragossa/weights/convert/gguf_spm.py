"""SentencePiece BPE vocabularies (`llama` in GGUF) as BPE with byte fallback in tokenizer.json.

SentencePiece joins the pair whose result has the best score; a merge list says the same by its
order, so the merges are all ways to make a piece of two pieces, best score first.
"""

from __future__ import annotations

from typing import Any

from saragossa.errors import ConvertError

from .gguf_vocab import NORMAL, USER_DEFINED, Vocabulary

SPACE = "\u2581"
_MAX_PIECE = 256  # characters; longer pieces are user-defined texts, not merge results


def sentencepiece_spec(vocab: Vocabulary, *, gemma: bool) -> dict[str, Any]:
    """tokenizer.json for a `llama` vocabulary.

    gemma: spaces stay attached to the piece before them and no space is put in front.
    Raises ConvertError if the scores or the unknown token are missing.
    """
    if not vocab.scores:
        raise ConvertError(f"{vocab.where} lacks tokenizer.ggml.scores, which a llama tokenizer needs")
    if gemma:  # GGUF writes these with plain spaces
        vocab.tokens = [
            token.replace(" ", SPACE) if kind == USER_DEFINED else token
            for token, kind in zip(vocab.tokens, vocab.types, strict=True)
        ]
        vocab.index = {token: i for i, token in enumerate(vocab.tokens)}
    prefix = vocab.add_space_prefix and not gemma
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    prepend = {"type": "Prepend", "prepend": SPACE}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    split = {
        "type": "Split",
        "pattern": {"String": " "},
        "behavior": "MergedWithPrevious",
        "invert": False,
    }
    unknown = vocab.special.get("unk")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": vocab.added_tokens(),
        "normalizer": {"type": "Sequence", "normalizers": [prepend, replace]} if prefix else replace,
        "pre_tokenizer": split if gemma else None,
        "post_processor": vocab.template_processor(),
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                *([strip] if prefix else []),
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None if unknown is None else vocab.tokens[unknown],
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(vocab.tokens)},
            "merges": _merges(vocab),
        },
    }


def _merges(vocab: Vocabulary) -> list[list[str]]:
    """Pairs, best first: by the score of the result, then longer left part."""
    index = vocab.index
    found: list[tuple[float, int, int, int, list[str]]] = []
    for piece, kind, score in zip(vocab.tokens, vocab.types, vocab.scores, strict=True):
        if kind == USER_DEFINED and len(set(piece)) == 1:
            score = float("inf")  # runs of newlines, tabs or spaces are matched before anything else
        elif kind != NORMAL:
            continue
        if len(piece) > _MAX_PIECE:
            continue
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in index and right in index:
                found.append((-score, -cut, index[left], index[right], [left, right]))
    found.sort(key=lambda merge: merge[:4])
    return [merge[4] for merge in found]
