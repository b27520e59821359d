"""The streaming detokenizer: deltas join to the text, and no delta holds half a character."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models

from saragossa.text.detokenizer import Detokenizer
from saragossa.text.pieces import BYTE_ALPHABET
from saragossa.text.tokenizer import Tokenizer

TEXT = "naïve 東京 שָׁלוֹם 👩🏽‍🚀 ok"
FAMILIES = ["byte_level", "llama2", "gemma", "metaspace", "wordpiece"]
BYTE_TO_CHAR = {byte: char for char, byte in BYTE_ALPHABET.items()}
CACHE: dict[str, Tokenizer] = {}


def get(backends: dict[str, tokenizers.Tokenizer], name: str) -> Tokenizer:
    return CACHE.setdefault(name, Tokenizer(backends[name]))


def deltas(tokenizer: Tokenizer, ids: list[int], **options: object) -> list[str]:
    stream = Detokenizer(tokenizer, **options)  # type: ignore[arg-type]
    return [*map(stream.push, ids), stream.finish()]


def cut(data: bytes, size: int, first: int) -> list[bytes]:
    """Pieces of `size` bytes after one of `first` bytes."""
    rest = range(first, len(data), size)
    return [piece for piece in (data[:first], *(data[i : i + size] for i in rest)) if piece]


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("lead", ["", " "])
def test_pieces_cut_at_every_byte(size: int, lead: str) -> None:
    """A vocabulary of exactly the pieces, so that each cut is a sequence of tokens."""
    data = (lead + TEXT).encode()
    cuts = [cut(data, size, first) for first in range(size)]
    cuts += [[data[:i], data[i:]] for i in range(1, len(data))]
    names = {"".join(BYTE_TO_CHAR[b] for b in piece) for pieces in cuts for piece in pieces}
    vocab = {name: i for i, name in enumerate(sorted(names | set(BYTE_ALPHABET)))}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.decoder = tokenizers.decoders.ByteLevel()
    tokenizer = Tokenizer(backend)
    for pieces in cuts:
        ids = [vocab["".join(BYTE_TO_CHAR[b] for b in piece)] for piece in pieces]
        shown = deltas(tokenizer, ids)
        assert "".join(shown) == lead + TEXT
        assert not any("\ufffd" in delta for delta in shown)
        assert all(delta.encode("utf-8").decode("utf-8") == delta for delta in shown)  # no lone surrogate


@pytest.mark.parametrize("name", ["byte_level", "gemma", "llama2"])
def test_characters_come_with_their_last_byte(backends: dict[str, tokenizers.Tokenizer], name: str) -> None:
    tokenizer = get(backends, name)
    byte_ids = {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab_size - 1, -1, -1)}
    ids = [byte_ids[bytes([b])] for b in "a🚀b".encode()]
    assert deltas(tokenizer, ids) == ["a", "", "", "", "🚀", "b", ""]


@pytest.mark.parametrize("name", FAMILIES)
@given(text=st.text(alphabet=st.sampled_from("the skyisblue.'tér 東🚀ש\n"), max_size=40))
@settings(max_examples=60, deadline=None)
def test_deltas_join_to_the_librarys_text(
    backends: dict[str, tokenizers.Tokenizer], name: str, text: str
) -> None:
    tokenizer = get(backends, name)
    ids = tokenizer.encode(text)
    for skip in (False, True):
        shown = "".join(deltas(tokenizer, ids, skip_special=skip))
        assert shown == backends[name].decode(ids, skip_special_tokens=skip)
        assert shown == tokenizer.decode(ids, skip_special=skip)
    if name in ("byte_level", "gemma", "llama2"):
        assert "".join(deltas(tokenizer, ids, skip_special=True)) == text


@pytest.mark.parametrize("name", FAMILIES)
@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_deltas_join_to_decode_for_any_ids(
    backends: dict[str, tokenizers.Tokenizer], name: str, data: st.DataObject
) -> None:
    """Random ids: byte tokens in any order, special tokens anywhere, ids that do not exist."""
    tokenizer = get(backends, name)
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size + 2), max_size=30))
    skip = data.draw(st.booleans())
    assert "".join(deltas(tokenizer, ids, skip_special=skip)) == tokenizer.decode(ids, skip_special=skip)


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_byte_level_equals_the_library_for_any_ids(
    backends: dict[str, tokenizers.Tokenizer], data: st.DataObject
) -> None:
    tokenizer = get(backends, "byte_level")
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=20))
    assert "".join(deltas(tokenizer, ids)) == backends["byte_level"].decode(ids, skip_special_tokens=False)


def test_replacement_only_when_certain(backends: dict[str, tokenizers.Tokenizer]) -> None:
    for name in ("byte_level", "gemma"):
        tokenizer = get(backends, name)
        byte_ids = {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab_size - 1, -1, -1)}
        half = [byte_ids[bytes([b])] for b in "é".encode()[:1]]
        letter = byte_ids[b"a"]
        assert deltas(tokenizer, [*half, letter]) == ["", "\ufffda", ""]
        assert deltas(tokenizer, half) == ["", "\ufffd"]


def test_invalid_bytes_leave_their_neighbours(backends: dict[str, tokenizers.Tokenizer]) -> None:
    """The library loses the whole run of byte tokens; here the valid character stays."""
    tokenizer = get(backends, "gemma")
    ids = [tokenizer.backend.token_to_id(f"<0x{b:02X}>") for b in b"\xe6\x9d\xb1\xff"]
    assert deltas(tokenizer, ids) == ["", "", "東", "\ufffd", ""]
    assert tokenizer.decode(ids) == "東\ufffd"


def test_leading_space(backends: dict[str, tokenizers.Tokenizer]) -> None:
    """At the start of a text the space goes, in the continuation of a prompt it stays."""
    tokenizer = get(backends, "llama2")
    ids = tokenizer.encode("the in", add_special=False)
    assert "".join(deltas(tokenizer, ids)) == "the in"
    assert "".join(deltas(tokenizer, ids, context=[1])) == " the in"
    metaspace = get(backends, "metaspace")
    ids = metaspace.encode("the a")
    assert "".join(deltas(metaspace, ids)) == "the a"
    assert "".join(deltas(metaspace, ids, context=ids)) == " the a"
    wordpiece = get(backends, "wordpiece")
    ids = wordpiece.encode("the sky")
    assert "".join(deltas(wordpiece, ids, context=ids)) == " the sky"


def test_special_tokens_are_left_out(backends: dict[str, tokenizers.Tokenizer]) -> None:
    tokenizer = get(backends, "byte_level")
    ids = tokenizer.encode("<|im_start|>the sky<think><|im_end|>")
    assert "".join(deltas(tokenizer, ids, skip_special=True)) == "the sky<think>"
    assert "".join(deltas(tokenizer, ids)) == "<|im_start|>the sky<think><|im_end|>"


class Counting(Tokenizer):
    """Counts the tokens that are decoded or looked up."""

    windows: list[int]

    def library_decode(self, ids: Sequence[int], *, skip_special: bool) -> str:
        self.windows.append(len(ids))
        return super().library_decode(ids, skip_special=skip_special)

    def id_to_token(self, token_id: int) -> str | None:
        self.windows.append(1)
        return super().id_to_token(token_id)


@pytest.mark.parametrize("name", ["byte_level", "gemma", "wordpiece"])
def test_work_does_not_grow_with_the_text(backends: dict[str, tokenizers.Tokenizer], name: str) -> None:
    tokenizer = Counting(backends[name])
    tokenizer.windows = []
    ids = tokenizer.encode("the sky is blue. ")
    stream = Detokenizer(tokenizer)
    for token in ids * 200:
        stream.push(token)
    assert max(tokenizer.windows) <= 64
    assert sum(tokenizer.windows) <= 16 * len(ids) * 200
