"""tokenizer.json and tokenizer_config.json from a GGUF file's vocabulary."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from saragossa.errors import ConvertError

from .gguf_bpe import byte_level_spec
from .gguf_spm import sentencepiece_spec
from .gguf_vocab import CONTROL, Vocabulary

# Tokens that end an assistant's turn, looked up by name where the file names no such id.
_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>")
_QWEN_END = "<|endoftext|>"


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """What the folder gets: two JSON values, the ids for config.json, the end tokens (best first)."""

    tokenizer: dict[str, Any]
    config: dict[str, Any]
    ids: dict[str, int]
    eos: tuple[int, ...]


def tokenizer_files(metadata: Mapping[str, Any], arch: str, where: str, rows: int) -> TokenizerFiles:
    """Builds and checks the tokenizer.

    where: names the file in errors; rows: rows of the embedding, which bound the ids.
    Raises ConvertError on an unknown tokenizer or an inconsistent vocabulary.
    """
    vocab = Vocabulary(metadata, where)
    if len(vocab.tokens) > rows:
        raise ConvertError(f"{where}: {len(vocab.tokens)} tokens, but the embedding has {rows} rows")
    model = metadata.get("tokenizer.ggml.model")
    if model == "gpt2":
        spec = byte_level_spec(vocab)
    elif model == "llama":
        spec = sentencepiece_spec(vocab, gemma=arch == "gemma3")
    else:
        raise ConvertError(f"{where}: the tokenizer {model!r} is not supported; gpt2 and llama are")
    _check(spec, vocab, where)
    ids = {f"{name}_token_id": vocab.special[name] for name in ("bos", "pad") if name in vocab.special}
    eos = _end_tokens(vocab, arch)
    if eos:
        ids["eos_token_id"] = eos[0]
    return TokenizerFiles(spec, _config(metadata, vocab, spec, where), ids, eos)


def _config(
    metadata: Mapping[str, Any], vocab: Vocabulary, spec: dict[str, Any], where: str
) -> dict[str, Any]:
    added = {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in spec["added_tokens"]}
    arch = metadata.get("general.architecture")
    config: dict[str, Any] = {
        "add_bos_token": vocab.add_bos,
        "add_eos_token": vocab.add_eos,
        "added_tokens_decoder": added,
        "clean_up_tokenization_spaces": False,
        "model_max_length": metadata.get(f"{arch}.context_length"),
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    for name in ("bos", "eos", "unk", "pad"):
        index = vocab.special.get(name)
        config[f"{name}_token"] = None if index is None else vocab.tokens[index]
    if template := _chat_template(metadata, where):
        config["chat_template"] = template
    return config


def _chat_template(metadata: Mapping[str, Any], where: str) -> str | list[dict[str, str]] | None:
    """One template, or the named ones as transformers lists them."""
    default = metadata.get("tokenizer.chat_template")
    names = metadata.get("tokenizer.chat_templates", [])
    named = {name: metadata.get(f"tokenizer.chat_template.{name}") for name in names}
    for template in (default, *named.values()):
        if not isinstance(template, str | None):
            raise ConvertError(f"{where}: the chat template is not a text")
    if not any(named.values()):
        return default
    if default is not None:
        named["default"] = default
    return [{"name": name, "template": text} for name, text in named.items() if text]


def _end_tokens(vocab: Vocabulary, arch: str) -> tuple[int, ...]:
    found = [vocab.special[name] for name in ("eos", "eot", "eom") if name in vocab.special]
    for name in (*_TURN_ENDS, *((_QWEN_END,) if arch.startswith("qwen") else ())):
        index = vocab.index.get(name)
        if index is not None and vocab.types[index] == CONTROL:
            found.append(index)
    return tuple(dict.fromkeys(found))


def _check(spec: dict[str, Any], vocab: Vocabulary, where: str) -> None:
    """Loads the result: the library refuses a broken one, and every added token must keep its id."""
    try:
        tokenizer = Tokenizer.from_str(json.dumps(spec))
    except Exception as error:  # the library raises plain Exception
        raise ConvertError(f"{where}: its vocabulary makes no valid tokenizer ({error})") from error
    for token in spec["added_tokens"]:
        if (got := tokenizer.token_to_id(token["content"])) != token["id"]:
            raise ConvertError(f"{where}: token {token['content']!r} got id {got} instead of {token['id']}")
