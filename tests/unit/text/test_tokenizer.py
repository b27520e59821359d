"""Loading a folder, encoding, decoding, end tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from saragossa.errors import ConfigError, TokenizerError
from saragossa.text.generation_defaults import GenerationDefaults
from saragossa.text.tokenizer import Tokenizer


def folder(path: Path, backend: tokenizers.Tokenizer, **files: Any) -> Path:
    backend.save(str(path / "tokenizer.json"))
    for name, value in files.items():
        (path / f"{name}.json").write_text(json.dumps(value))
    return path


def test_only_tokenizer_json_is_needed(tmp_path: Path, backends: dict[str, tokenizers.Tokenizer]) -> None:
    tokenizer = Tokenizer.from_dir(folder(tmp_path, backends["byte_level"]))
    text = "The sky, don't 123 東京\n"
    assert tokenizer.encode(text) == backends["byte_level"].encode(text).ids
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (None, frozenset())
    assert tokenizer.special_ids == {backends["byte_level"].token_to_id(t) for t in
                                     ("<|endoftext|>", "<|im_start|>", "<|im_end|>")}  # fmt: skip
    assert tokenizer.vocab_size == backends["byte_level"].get_vocab_size()


@pytest.mark.parametrize(
    ("config", "ids"),
    [
        ({}, [1, "a"]),  # tokenizer.json's post-processor speaks
        ({"add_bos_token": True, "bos_token": "<s>"}, [1, "a"]),
        ({"add_bos_token": False, "bos_token": "<s>"}, ["a"]),
        ({"add_bos_token": None, "bos_token": "<s>"}, [1, "a"]),
        ({"add_bos_token": True, "add_eos_token": True, "bos_token": "<s>", "eos_token": {"content": "</s>"}},
         [1, "a", 2]),
    ],
)  # fmt: skip
def test_tokens_around_a_prompt(
    tmp_path: Path, backends: dict[str, tokenizers.Tokenizer], config: dict[str, Any], ids: list[Any]
) -> None:
    tokenizer = Tokenizer.from_dir(folder(tmp_path, backends["gemma"], tokenizer_config=config))
    letter = backends["gemma"].token_to_id("a")
    assert tokenizer.encode("a") == [letter if i == "a" else i for i in ids]
    assert tokenizer.encode("a", add_special=False) == [letter]


def test_end_tokens_are_the_union(tmp_path: Path, backends: dict[str, tokenizers.Tokenizer]) -> None:
    path = folder(
        tmp_path,
        backends["gemma"],
        tokenizer_config={"eos_token": {"content": "<end_of_turn>"}, "bos_token": "<s>"},
        special_tokens_map={"eos_token": "<unk>", "unk_token": "<unk>"},
        config={"eos_token_id": 2, "text_config": {"eos_token_id": 7}},
        generation_config={"eos_token_id": [2, 9]},
    )
    tokenizer = Tokenizer.from_dir(path)
    assert tokenizer.eos_ids == {2, 4, 7, 9}
    assert (tokenizer.bos_id, tokenizer.eos_id) == (1, 4)
    assert tokenizer.special_tokens == {
        "eos_token": "<end_of_turn>",
        "bos_token": "<s>",
        "unk_token": "<unk>",
    }


def test_stored_truncation_and_padding_do_not_apply(
    tmp_path: Path, backends: dict[str, tokenizers.Tokenizer]
) -> None:
    backend = tokenizers.Tokenizer.from_str(backends["byte_level"].to_str())
    backend.enable_truncation(4)
    backend.enable_padding(length=64)
    tokenizer = Tokenizer.from_dir(folder(tmp_path, backend))
    assert (
        tokenizer.encode("The sky is blue, isn't it")
        == backends["byte_level"].encode("The sky is blue, isn't it").ids
    )


def test_tokens_that_only_the_config_lists(tmp_path: Path, backends: dict[str, tokenizers.Tokenizer]) -> None:
    size = backends["byte_level"].get_vocab_size()
    listed = {str(size): {"content": "<|extra|>", "special": True}, str(size + 1): {"content": "<b>"}}
    path = folder(tmp_path, backends["byte_level"], tokenizer_config={"added_tokens_decoder": listed})
    tokenizer = Tokenizer.from_dir(path)
    assert tokenizer.encode("<|extra|><b>") == [size, size + 1]
    assert size in tokenizer.special_ids
    assert size + 1 not in tokenizer.special_ids
    (path / "tokenizer_config.json").write_text(
        json.dumps({"added_tokens_decoder": {"3": {"content": "<|x|>"}}})
    )
    with pytest.raises(TokenizerError, match=r"'<\|x\|>' the id 3, tokenizer.json gives it"):
        Tokenizer.from_dir(path)


def test_a_named_token_without_a_row_is_not_added(
    tmp_path: Path, backends: dict[str, tokenizers.Tokenizer]
) -> None:
    path = folder(
        tmp_path, backends["byte_level"], tokenizer_config={"pad_token": "[PAD]", "bos_token": "<x>"}
    )
    tokenizer = Tokenizer.from_dir(path)
    assert tokenizer.vocab_size == backends["byte_level"].get_vocab_size()
    assert tokenizer.bos_id is None


def test_vocabulary_with_holes() -> None:
    for vocab, size in (({"a": 0, "b": 5}, 6), ({"a": 3, "b": 4, "c": 2, "d": 7}, 8), ({"a": 0, "b": 1}, 2)):
        backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
        assert Tokenizer(backend).vocab_size == size
        backend.add_tokens(["<x>"])
        assert Tokenizer(backend).vocab_size == 1 + max(size - 1, backend.token_to_id("<x>"))


def test_token_bytes(backends: dict[str, tokenizers.Tokenizer]) -> None:
    byte_level, gemma = Tokenizer(backends["byte_level"]), Tokenizer(backends["gemma"])
    text = "The 東京 é"
    for tokenizer in (byte_level, gemma):
        ids = tokenizer.encode(text, add_special=False)
        assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()
    assert gemma.token_bytes(backends["gemma"].token_to_id("<0xE6>")) == b"\xe6"
    assert byte_level.token_bytes(backends["byte_level"].token_to_id("<|im_end|>")) == b"<|im_end|>"
    assert byte_level.token_bytes(10**6) == byte_level.token_bytes(-1) == b""


def test_lone_surrogates_become_replacement_characters(backends: dict[str, tokenizers.Tokenizer]) -> None:
    tokenizer = Tokenizer(backends["byte_level"])
    assert tokenizer.decode(tokenizer.encode("x\ud800y \ud83d\ude00 \udc00\0")) == "x\ufffdy 😀 \ufffd\0"


def test_unknown_ids_are_left_out(backends: dict[str, tokenizers.Tokenizer]) -> None:
    for name in ("byte_level", "gemma", "wordpiece"):
        assert Tokenizer(backends[name]).decode([10**9, -1, 1 << 70]) == ""


@given(text=st.text(max_size=30))
@settings(max_examples=80, deadline=None)
def test_byte_level_round_trip(backends: dict[str, tokenizers.Tokenizer], text: str) -> None:
    tokenizer = Tokenizer(backends["byte_level"])
    normal = backends["byte_level"].normalizer.normalize_str(text)
    assert tokenizer.decode(tokenizer.encode(text)) == normal


def test_broken_folders_are_named(tmp_path: Path, backends: dict[str, tokenizers.Tokenizer]) -> None:
    with pytest.raises(TokenizerError, match="is not a folder"):
        Tokenizer.from_dir(tmp_path / "none")
    with pytest.raises(TokenizerError, match=r"has no tokenizer, tokenizer.json is needed \(fetch"):
        Tokenizer.from_dir(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"x")
    with pytest.raises(
        TokenizerError, match=r"only tokenizer.model, tokenizer.json is needed \(.*save_pretrained"
    ):
        Tokenizer.from_dir(tmp_path)
    file = tmp_path / "tokenizer.json"
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\n")
    with pytest.raises(TokenizerError, match=r"tokenizer.json is a Git LFS pointer.*git lfs pull"):
        Tokenizer.from_dir(tmp_path)
    file.write_text('{"model": ')
    with pytest.raises(TokenizerError, match=r"tokenizer.json cannot be read: .*fetch the file again"):
        Tokenizer.from_dir(tmp_path)
    with file.open("wb") as huge:
        huge.truncate(300 << 20)
    with pytest.raises(TokenizerError, match=r"tokenizer.json is larger than 268435456 bytes"):
        Tokenizer.from_dir(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("tokenizer_config", "{", "tokenizer_config.json is not valid JSON"),
        ("tokenizer_config", "[1]", "holds a JSON list, an object is expected"),
        ("tokenizer_config", "[" * 100000, "tokenizer_config.json is not valid JSON"),
        ("tokenizer_config", b"\xff\xfe", "is not UTF-8: byte 0"),
        ("tokenizer_config", '{"add_bos_token": "yes"}', "add_bos_token is 'yes', true or false"),
        ("tokenizer_config", '{"bos_token": 1}', "bos_token is 1, a string"),
        ("tokenizer_config", '{"added_tokens_decoder": {"x": {"content": "a"}}}', "is no token with an id"),
        ("special_tokens_map", '{"eos_token": []}', "special_tokens_map.json: eos_token is []"),
        ("generation_config", '{"eos_token_id": "2"}', "generation_config.json: eos_token_id is '2'"),
        ("config", '{"eos_token_id": [1, -2]}', "config.json: eos_token_id is [1, -2]"),
        ("config", '{"eos_token_id": true}', "config.json: eos_token_id is True"),
    ],
)
def test_bad_companions_are_named(
    tmp_path: Path, backends: dict[str, tokenizers.Tokenizer], name: str, text: str | bytes, words: str
) -> None:
    folder(tmp_path, backends["byte_level"])
    (tmp_path / f"{name}.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(TokenizerError) as error:
        Tokenizer.from_dir(tmp_path)
    assert words in str(error.value)


def test_generation_defaults(tmp_path: Path) -> None:
    assert GenerationDefaults.from_dir(tmp_path) == GenerationDefaults()
    config = {
        "do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 1, "min_p": None,
        "repetition_penalty": 1.1, "transformers_version": "5.0", "eos_token_id": [1],
    }  # fmt: skip
    (tmp_path / "generation_config.json").write_text(json.dumps(config))
    assert GenerationDefaults.from_dir(tmp_path) == GenerationDefaults(True, 0.6, 20, 1.0, None, 1.1)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("do_sample", 1), ("temperature", -0.1), ("temperature", "0.6"), ("temperature", float("nan")),
        ("temperature", True), ("top_k", -1), ("top_k", 1.5), ("top_k", True), ("top_p", 0), ("top_p", 1.1),
        ("min_p", -0.5), ("min_p", 2), ("repetition_penalty", 0), ("repetition_penalty", float("inf")),
        ("repetition_penalty", [1]), ("temperature", 10**400),
    ],
)  # fmt: skip
def test_bad_generation_defaults_are_named(tmp_path: Path, key: str, value: object) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps({key: value}))
    with pytest.raises(ConfigError, match=f"generation_config.json: {key} is "):
        GenerationDefaults.from_dir(tmp_path)
