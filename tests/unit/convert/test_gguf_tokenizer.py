"""Vocabularies of GGUF files as tokenizer.json: ids equal sentencepiece's and llama.cpp's."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from saragossa.errors import ConvertError
from saragossa.weights.convert.gguf_tokenizer import TokenizerFiles, tokenizer_files
from tiny_gguf import CONTROL, TOKENS, tokenizer_metadata

GOLDEN = json.loads(
    (Path(__file__).parents[2] / "golden" / "gguf_tokenizers.json").read_text(encoding="utf-8")
)
TEXTS: list[str] = GOLDEN["texts"]


def files(metadata: dict[str, Any], arch: str = "llama", rows: int = 10_000) -> TokenizerFiles:
    return tokenizer_files(metadata, arch, "x.gguf", rows)


def tokenizer(metadata: dict[str, Any], arch: str = "llama") -> Tokenizer:
    return Tokenizer.from_str(json.dumps(files(metadata, arch).tokenizer))


def bpe(pre: str | None, **changes: Any) -> dict[str, Any]:
    golden = GOLDEN["bpe"]
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": golden["tokens"],
        "tokenizer.ggml.merges": golden["merges"],
        "tokenizer.ggml.pre": pre,
    } | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    return {key: value for key, value in metadata.items() if value is not None}


def spm(**changes: Any) -> dict[str, Any]:
    golden = GOLDEN["spm"]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": list(golden["tokens"]),
        "tokenizer.ggml.scores": golden["scores"],
        "tokenizer.ggml.token_type": golden["types"],
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
    } | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    return {key: value for key, value in metadata.items() if value is not None}


@pytest.mark.parametrize("pre", sorted(GOLDEN["bpe"]["ids"]))
def test_byte_level_ids_equal_llama_cpp(pre: str) -> None:
    ours = tokenizer(bpe(pre))
    for text, ids in zip(TEXTS, GOLDEN["bpe"]["ids"][pre], strict=True):
        if pre == "qwen2" and unicodedata.normalize("NFC", text) != text:
            continue  # Qwen's own tokenizer.json normalises, llama.cpp does not
        if pre == "tekken" and any(unicodedata.category(char).startswith("M") for char in text):
            continue  # llama.cpp has no \\p{M} and cuts words at combining marks; Mistral does not
        found = ours.encode(text, add_special_tokens=False).ids
        assert found == ids, text
        assert ours.decode(found) == text


def test_pre_tokenizers_differ_in_the_goldens() -> None:
    """Else a mix-up of two would go unseen."""
    ids = GOLDEN["bpe"]["ids"]
    names = ["gpt-2", "smollm", "qwen2", "llama-bpe", "tekken", "default"]
    assert len({json.dumps(ids[name]) for name in names}) == len(names)


@pytest.mark.parametrize(("pre", "whole"), [("llama-bpe", True), ("tekken", True), ("qwen2", False)])
def test_whole_words_go_before_merges_where_the_model_wants_it(pre: str, whole: bool) -> None:
    tokens = [*GOLDEN["bpe"]["tokens"], "zqxj"]  # in the vocabulary, and no merge leads to it
    found = tokenizer(bpe(pre, tokens=tokens)).encode("zqxj", add_special_tokens=False).ids
    assert (found == [len(tokens) - 1]) is whole


def test_no_pre_tokenizer_is_the_default() -> None:
    assert files(bpe(None)).tokenizer == files(bpe("default")).tokenizer


def test_sentencepiece_ids_equal_its_own() -> None:
    ours = tokenizer(spm())
    for text, ids, decoded in zip(TEXTS, GOLDEN["spm"]["ids"], GOLDEN["spm"]["decoded"], strict=True):
        assert ours.encode(text).ids == ids, text
        assert ours.decode(ids) == decoded


def test_byte_fallback_is_used_in_the_goldens() -> None:
    types = GOLDEN["spm"]["types"]
    assert any(types[i] == 6 for ids in GOLDEN["spm"]["ids"] for i in ids)


def test_gemma_puts_no_space_in_front_and_keeps_runs() -> None:
    tokens, types = list(GOLDEN["spm"]["tokens"]), list(GOLDEN["spm"]["types"])
    tokens += ["\n\n", "  ", "<table>"]  # user-defined, with plain spaces as GGUF has them
    scores = [*GOLDEN["spm"]["scores"], -1000.0, -1000.0, -1000.0]
    metadata = spm(tokens=tokens, token_type=[*types, 4, 4, 4], scores=scores)
    ours = tokenizer(metadata, "gemma3")
    first = len(tokens) - 3
    assert ours.encode("a\n\na").ids[1] == first
    assert first + 1 in ours.encode("a  b").ids
    assert ours.encode("<table>").ids == [first + 2]
    assert not ours.encode("a").tokens[0].startswith("\u2581")
    for text in TEXTS:
        assert ours.decode(ours.encode(text).ids, skip_special_tokens=False) == text


def test_added_tokens_keep_their_ids_and_kinds() -> None:
    metadata = tokenizer_metadata()
    metadata["tokenizer.ggml.token_type"][-3:] = [3, 3, 4]
    result = files(metadata)
    ours = Tokenizer.from_str(json.dumps(result.tokenizer))
    assert ours.encode("<|im_start|>hello<|im_end|>").ids == [len(TOKENS) - 2, 259, len(TOKENS) - 1]
    assert [(t["content"], t["special"]) for t in result.tokenizer["added_tokens"]] == [
        (CONTROL[0], True),
        (CONTROL[1], True),
        (CONTROL[2], False),
    ]
    assert not set(CONTROL) & set(result.tokenizer["model"]["vocab"])
    decoder = result.config["added_tokens_decoder"]
    assert decoder[str(len(TOKENS) - 1)]["content"] == "<|im_end|>"


def test_control_tokens_in_front_and_padding_behind() -> None:
    metadata = tokenizer_metadata()
    metadata["tokenizer.ggml.tokens"] = [*CONTROL, *TOKENS[:-3], "[PAD1]", "[PAD2]"]
    metadata["tokenizer.ggml.token_type"] = [3] * 3 + [1] * (len(TOKENS) - 3) + [5, 5]
    for name, index in (("bos", 0), ("eos", 2), ("padding", 0)):
        metadata[f"tokenizer.ggml.{name}_token_id"] = index
    ours = tokenizer(metadata)
    assert ours.encode("<|im_start|>hello").ids == [1, 262]
    assert ours.token_to_id("[PAD1]") is None


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (spm(add_bos_token=None), [1]),
        (spm(), []),
        (bpe("llama-bpe", bos_token_id=7), [7]),
        (bpe("llama-bpe", bos_token_id=7, add_bos_token=False), []),
        (bpe("qwen2", bos_token_id=7), []),
        (bpe("qwen2", bos_token_id=7, add_bos_token=True), [7]),
    ],
)
def test_bos(metadata: dict[str, Any], expected: list[int]) -> None:
    result = files(metadata)
    ours = Tokenizer.from_str(json.dumps(result.tokenizer))
    plain = ours.encode("abc", add_special_tokens=False).ids
    assert ours.encode("abc").ids == [*expected, *plain]
    assert result.config["add_bos_token"] is bool(expected)


def test_end_tokens() -> None:
    metadata = tokenizer_metadata()
    assert files(metadata).eos == (len(TOKENS) - 1,)
    assert files(metadata, "qwen3").eos == (len(TOKENS) - 1, len(TOKENS) - 3)  # and <|endoftext|>
    metadata["tokenizer.ggml.eos_token_id"] = len(TOKENS) - 3
    assert files(metadata).eos == (len(TOKENS) - 3, len(TOKENS) - 1)  # <|im_end|> by its name
    metadata["tokenizer.ggml.eot_token_id"] = 5
    assert files(metadata).eos == (len(TOKENS) - 3, 5, len(TOKENS) - 1)
    assert files(metadata).ids["eos_token_id"] == len(TOKENS) - 3


def test_chat_templates() -> None:
    metadata = tokenizer_metadata()
    assert files(metadata).config["chat_template"] == "{{ messages[0].content }}"
    metadata |= {"tokenizer.chat_templates": ["tool_use"], "tokenizer.chat_template.tool_use": "T"}
    assert files(metadata).config["chat_template"] == [
        {"name": "tool_use", "template": "T"},
        {"name": "default", "template": "{{ messages[0].content }}"},
    ]
    del metadata["tokenizer.chat_template"], metadata["tokenizer.chat_templates"]
    assert "chat_template" not in files(metadata).config


def test_special_tokens_by_name() -> None:
    config = files(spm()).config
    assert (config["bos_token"], config["eos_token"], config["unk_token"]) == ("<s>", "</s>", "<unk>")
    assert config["pad_token"] is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pre": "chameleon"}, "the pre-tokenizer 'chameleon' is not supported; supported are gpt-2, smollm"),
        ({"model": "t5"}, "the tokenizer 't5' is not supported; gpt2 and llama are"),
        ({"model": None}, "the tokenizer None is not supported"),
        ({"model": "llama"}, "lacks tokenizer.ggml.scores"),
        ({"tokens": None}, "holds no vocabulary"),
        ({"tokens": [1, 2]}, "tokenizer.ggml.tokens is not a list of the right kind"),
        ({"token_type": [1, 1]}, r"tokenizer.ggml.token_type has 2 entries for \d+ tokens"),
        ({"scores": [0.5]}, r"tokenizer.ggml.scores has 1 entries for \d+ tokens"),
        ({"merges": ["nosuchpiece x"]}, "its vocabulary makes no valid tokenizer"),
        ({"merges": ["nospace"]}, "its vocabulary makes no valid tokenizer"),
        ({"eos_token_id": 10**6}, "tokenizer.ggml.eos_token_id is 1000000, not an id of the vocabulary"),
        ({"eos_token_id": -1}, "tokenizer.ggml.eos_token_id is -1, not an id"),
    ],
)
def test_refusals(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConvertError, match=message) as caught:
        files(bpe(changes.pop("pre", "gpt-2"), **changes))
    assert caught.value.message.startswith("x.gguf")


def test_more_tokens_than_rows() -> None:
    with pytest.raises(ConvertError, match="900 tokens, but the embedding has 600 rows"):
        files(bpe("gpt-2"), rows=600)


def test_a_token_twice_is_refused() -> None:
    metadata = tokenizer_metadata()
    metadata["tokenizer.ggml.tokens"] = [*TOKENS[:-1], "<|im_start|>"]
    with pytest.raises(ConvertError, match=r"token '<\|im_start\|>' got id"):
        files(metadata)
