"""Tiny tokenizers of the two families that models use."""

from __future__ import annotations

import string
from collections.abc import Callable

import pytest
import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [
    "The colour of the sky is blue, and the answer is four.",
    "system user assistant tool call response name arguments start end im think",
    "naïve 東京 שָׁלוֹם ok 12 345 don't  two  spaces\n\nlines\n",
] * 4
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
STRUCTURE = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
)


def make_byte_level() -> tokenizers.Tokenizer:
    """Byte-level BPE in the manner of Qwen: special and other added tokens outside the vocabulary."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in STRUCTURE])
    return tokenizer


def make_sentencepiece(*, prefix: bool) -> tokenizers.Tokenizer:
    """BPE with byte fallback: control tokens inside the vocabulary, one of them reachable by merges.

    prefix: a space is put before the text and taken away by the decoder (Llama 2); else Gemma's way.
    """
    pieces = ["<unk>", "<s>", "</s>", "<start_of_turn>", "<end_of_turn>", "<h1>"]
    pieces += [f"<0x{i:02X}>" for i in range(256)]
    pieces += ["▁", *string.ascii_letters, *string.digits, *string.punctuation, "\n", "é"]
    merges = [("<", "/"), ("</", "s"), ("</s", ">"), ("t", "h"), ("▁", "th"), ("▁th", "e"), ("i", "n")]
    pieces += [a + b for a, b in merges if a + b not in pieces]
    tokenizer = tokenizers.Tokenizer(
        models.BPE(
            vocab={piece: i for i, piece in enumerate(pieces)},
            merges=merges,
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    replace = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = (
        normalizers.Sequence([normalizers.Prepend("▁"), replace])
        if prefix
        else normalizers.Sequence([replace])
    )
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if prefix else []))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    controls = ["<unk>", "<s>", "</s>", "<start_of_turn>", "<end_of_turn>"]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in controls])
    tokenizer.add_tokens([AddedToken("<h1>", special=False, normalized=False)])
    return tokenizer


def make_metaspace() -> tokenizers.Tokenizer:
    """Unigram with the Metaspace decoder."""
    pieces = [("<unk>", 0.0), ("▁", -2.0), ("▁the", -1.0), ("the", -1.5), ("▁a", -1.2), ("é", -3.0)]
    pieces += [(c, -4.0) for c in string.ascii_lowercase]
    tokenizer = tokenizers.Tokenizer(models.Unigram(pieces, 0, False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def make_wordpiece() -> tokenizers.Tokenizer:
    """WordPiece, for which only the library's decoder speaks."""
    words = ["[UNK]", "the", "sky", "##s", "is", "blue", ".", "don", "'", "t", "##er"]
    tokenizer = tokenizers.Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


MAKERS: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    "byte_level": make_byte_level,
    "llama2": lambda: make_sentencepiece(prefix=True),
    "gemma": lambda: make_sentencepiece(prefix=False),
    "metaspace": make_metaspace,
    "wordpiece": make_wordpiece,
}


@pytest.fixture(scope="session")
def backends() -> dict[str, tokenizers.Tokenizer]:
    return {name: make() for name, make in MAKERS.items()}
