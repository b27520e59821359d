"""Named special tokens (bos_token, eos_token, ...) and end-token ids from a model folder's JSON files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from saragossa.errors import ConfigError, TokenizerError
from saragossa.files import read_optional_object

CONFIG_FILE = "tokenizer_config.json"
MAP_FILE = "special_tokens_map.json"
NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
MAX_END_TOKENS = 256


def token_content(value: object, *, source: str, key: str) -> str | None:
    """The text of a token that is written as a string, as {"content": ...} or as null."""
    if isinstance(value, Mapping):
        value = value.get("content")
    if value is None or isinstance(value, str):
        return value or None
    raise TokenizerError(f"{source}: {key} is {value!r}, a string or an object with `content` is expected")


def read_special_tokens(path: Path) -> dict[str, str]:
    """Name to text. tokenizer_config.json wins over the older special_tokens_map.json."""
    found: dict[str, str] = {}
    for file in (path / MAP_FILE, path / CONFIG_FILE):
        config = read_optional_object(file, error=TokenizerError)
        entries = {name: config[name] for name in NAMES if name in config}
        extra = config.get("extra_special_tokens")
        if isinstance(extra, Mapping):  # model specific names, e.g. image_token
            entries |= {str(name): value for name, value in extra.items()}
        for name, value in entries.items():
            content = token_content(value, source=str(file), key=name)
            if content is None:
                found.pop(name, None)
            else:
                found[name] = content
    return found


def read_end_ids(config: Mapping[str, object], *, source: str, vocab: int | None = None) -> frozenset[int]:
    """`eos_token_id` of a parsed config.json or generation_config.json: an id, a list of ids, or absent."""
    value = config.get("eos_token_id")
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if len(ids) > MAX_END_TOKENS:
        raise TokenizerError(f"{source}: eos_token_id lists {len(ids)} ids, at most {MAX_END_TOKENS}")
    for token_id in ids:
        if isinstance(token_id, bool) or not isinstance(token_id, int) or token_id < 0:
            raise TokenizerError(
                f"{source}: eos_token_id is {value!r}, a token id or a list of them is expected"
            )
        if vocab is not None and token_id >= vocab:
            raise ConfigError(
                f"{source}: eos_token_id {token_id!r:.30} is out of range; the vocabulary has {vocab}",
                cure="a model without its end token never stops: correct the file",
            )
    return frozenset(ids)
