"""The tokenizer of a model folder: ids of a text, text of ids, end tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import tokenizers

from saragossa.errors import TokenizerError
from saragossa.files import check_file, read_optional_object
from saragossa.text.detokenizer import Detokenizer
from saragossa.text.pieces import DecodeRules, read_rules
from saragossa.text.plain import well_formed
from saragossa.text.special_tokens import CONFIG_FILE, read_end_ids, read_special_tokens, token_content

FILE = "tokenizer.json"
MAX_BYTES = 256 << 20  # the largest known tokenizer.json has 35 MB
_OTHER_FORMATS = ("tokenizer.model", "tekken.json", "tiktoken.model", "spiece.model", "vocab.json")


class Tokenizer:
    """Encodes and decodes as transformers does with the same folder.

    special_tokens: name to text (bos_token, eos_token, ...).
    add_bos, add_eos: as tokenizer_config.json says; None for both leaves it to tokenizer.json.
    end_ids: end tokens that the configs name by id.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        special_tokens: Mapping[str, str] | None = None,
        add_bos: bool | None = None,
        add_eos: bool | None = None,
        end_ids: Iterable[int] = (),
    ) -> None:
        self._backend = backend
        backend.no_truncation()  # both may be stored in tokenizer.json
        backend.no_padding()
        self.special_tokens = dict(special_tokens or {})
        self._explicit = add_bos is not None or add_eos is not None
        self._add_bos, self._add_eos = bool(add_bos), bool(add_eos)
        known = {token.content for token in backend.get_added_tokens_decoder().values()}
        named = [text for text in dict.fromkeys(self.special_tokens.values()) if text not in known]
        # A named token that the vocabulary lacks would get an id that the model has no row for.
        backend.add_special_tokens([text for text in named if backend.token_to_id(text) is not None])
        self.bos_id = self._named_id("bos_token")
        self.eos_id = self._named_id("eos_token")
        self.eos_ids = frozenset(end_ids) | ({self.eos_id} if self.eos_id is not None else frozenset())

    @classmethod
    def from_dir(cls, path: str | Path, *, vocab: int | None = None) -> Tokenizer:
        """Load tokenizer.json and its optional companions; a TokenizerError names the file and the cure.

        vocab: rows of the model's embedding; an end token beyond them is a ConfigError.
        """
        folder = Path(path)
        backend = _load_backend(folder)
        file = folder / CONFIG_FILE
        config = read_optional_object(file, error=TokenizerError)
        _add_missing(backend, config, source=str(file))
        end_ids: frozenset[int] = frozenset()
        for name in ("config.json", "generation_config.json"):
            model_config = read_optional_object(folder / name, error=TokenizerError)
            end_ids |= read_end_ids(model_config, source=str(folder / name), vocab=vocab)
            if isinstance(text_config := model_config.get("text_config"), dict):
                end_ids |= read_end_ids(text_config, source=f"{folder / name}: text_config", vocab=vocab)
        return cls(
            backend,
            special_tokens=read_special_tokens(folder),
            add_bos=_flag(config, "add_bos_token", str(file)),
            add_eos=_flag(config, "add_eos_token", str(file)),
            end_ids=end_ids,
        )

    @cached_property
    def vocab_size(self) -> int:
        """One more than the highest id; a model's embedding may have more rows."""
        model = self._backend.model
        base = self._backend.get_vocab_size(with_added_tokens=False)
        if any(model.id_to_token(i) is None for i in range(base)):  # holes: some id is higher
            base = 1 + max(self._backend.get_vocab(with_added_tokens=False).values())
        return max(base, 1 + max(self.added_tokens, default=-1))

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids that `skip_special` leaves out of a text."""
        return frozenset(i for i, token in self.added_tokens.items() if token.special)

    @cached_property
    def added_tokens(self) -> dict[int, tokenizers.AddedToken]:
        """Tokens that are matched in the text before the vocabulary's model sees it."""
        return self._backend.get_added_tokens_decoder()

    @cached_property
    def rules(self) -> DecodeRules:
        """How this vocabulary's tokens become text."""
        decoder = self._backend.decoder
        return read_rules(decoder.__getstate__() if decoder is not None else None)

    @property
    def backend(self) -> tokenizers.Tokenizer:
        """The library's tokenizer; not to be changed."""
        return self._backend

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        """Ids of `text`. Special tokens written in it count as such; see `encode_chat` for user input.

        add_special: put BOS (and whatever else the checkpoint says) around it.
        """
        text = well_formed(text)
        if not (add_special and self._explicit):
            return self._backend.encode(text, add_special_tokens=add_special).ids
        ids = self._backend.encode(text, add_special_tokens=False).ids
        if self._add_bos and self.bos_id is not None:
            ids.insert(0, self.bos_id)
        if self._add_eos and self.eos_id is not None:
            ids.append(self.eos_id)
        return ids

    def decode(self, ids: Sequence[int], skip_special: bool = False) -> str:
        """Text of `ids`; ids outside the vocabulary are left out.

        The same as the library's decoder, but for byte tokens of which some are invalid: there the valid
        characters around them are kept.
        """
        if self.rules.kind != "sentencepiece":
            return self.library_decode(ids, skip_special=skip_special)
        stream = Detokenizer(self, skip_special=skip_special)
        return "".join([stream.push(i) for i in ids]) + stream.finish()

    def library_decode(self, ids: Sequence[int], *, skip_special: bool) -> str:
        """The tokenizer library's own decoder."""
        known = [i for i in ids if 0 <= i < 1 << 32]
        return self._backend.decode(known, skip_special_tokens=skip_special)

    def id_to_token(self, token_id: int) -> str | None:
        """The vocabulary's string for an id (in its own alphabet), None if there is none."""
        return self._backend.id_to_token(token_id) if 0 <= token_id < 1 << 32 else None

    def token_bytes(self, token_id: int) -> bytes:
        """UTF-8 bytes of one token inside a text, b"" for an unknown id. May be half a character."""
        token = self.id_to_token(token_id)
        return b"" if token is None else self.rules.token_bytes(token)

    def _named_id(self, name: str) -> int | None:
        text = self.special_tokens.get(name)
        return None if text is None else self._backend.token_to_id(text)


def _load_backend(folder: Path) -> tokenizers.Tokenizer:
    file = folder / FILE
    if not file.is_file():
        if not folder.is_dir():
            raise TokenizerError(f"{folder} is not a folder")
        other = next((name for name in _OTHER_FORMATS if (folder / name).is_file()), None)
        found = f"only {other}" if other else "no tokenizer"
        raise TokenizerError(
            f"{folder} has {found}, {FILE} is needed",
            cure="fetch the complete model, or save it once with transformers' AutoTokenizer.save_pretrained",
        )
    check_file(file, MAX_BYTES, TokenizerError)
    try:
        return tokenizers.Tokenizer.from_file(str(file))
    except Exception as e:  # the library raises plain Exception
        raise TokenizerError(f"{file} cannot be read: {e}", cure="fetch the file again") from e


def _flag(config: Mapping[str, object], key: str, source: str) -> bool | None:
    value = config.get(key)
    if value is None or isinstance(value, bool):
        return value
    raise TokenizerError(f"{source}: {key} is {value!r}, true or false is expected")


def _add_missing(backend: tokenizers.Tokenizer, config: Mapping[str, object], *, source: str) -> None:
    """Add tokens of `added_tokens_decoder` that tokenizer.json lacks, under the ids given there."""
    listed = config.get("added_tokens_decoder", {})
    if not isinstance(listed, Mapping):
        raise TokenizerError(f"{source}: added_tokens_decoder is no object")
    present = {token.content for token in backend.get_added_tokens_decoder().values()}
    missing: list[tuple[int, str, Mapping[str, object]]] = []
    for key, entry in listed.items():
        text = token_content(entry, source=source, key=f"added_tokens_decoder[{key}]")
        if not str(key).isdecimal() or not isinstance(entry, Mapping) or text is None:
            raise TokenizerError(f"{source}: added_tokens_decoder[{key!r}] is no token with an id")
        if text not in present:
            missing.append((int(key), text, entry))
    for token_id, text, entry in sorted(missing, key=lambda item: item[0]):
        flags = {
            name: bool(entry.get(name, False)) for name in ("single_word", "lstrip", "rstrip", "normalized")
        }
        special = bool(entry.get("special", False))
        token = tokenizers.AddedToken(text, special=special, **flags)
        add = backend.add_special_tokens if special else backend.add_tokens
        add([token])
        if (got := backend.token_to_id(text)) != token_id:
            raise TokenizerError(
                f"{source}: added_tokens_decoder gives {text!r} the id {token_id}, {FILE} gives it {got}",
                cure="take both files from one revision",
            )
