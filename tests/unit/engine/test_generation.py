"""End tokens, stop strings and limits, with a scripted session in the model's place."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from saragossa.engine.generation import stream_tokens, token_limit
from saragossa.engine.options import Chunk, GenerationOptions, TokenLogprobs
from saragossa.errors import ContextLengthError
from saragossa.text.tokenizer import Tokenizer

WORDS = ["<eos>", "<end2>", "red gr", "een bl", "ue violet", "a", "b"]


@pytest.fixture
def tokenizer() -> Tokenizer:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    vocab = {c: i + 2 for i, c in enumerate(sorted(alphabet))} | {"<eos>": 0, "<end2>": 1}
    for word in WORDS[2:5]:
        vocab[word.replace(" ", "Ġ")] = len(vocab)
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<eos>", "<end2>"])
    return Tokenizer(backend, end_ids=[0, 1])


class ScriptedSession:
    """Stands where the core's session stands: gives the tokens of a script."""

    def __init__(self, script: Sequence[int], context: int = 100) -> None:
        self.script = list(script)
        self.context = context
        self.length = 0
        self.steps = 0
        self.prompt: list[int] = []

    def configure(self, options: GenerationOptions) -> None:
        pass

    def prefill(self, ids: Sequence[int], *, progress: object = None) -> None:
        self.prompt = list(ids)
        self.length += len(ids)

    def step(self, wanted: int | None = None) -> int:
        self.steps += 1
        return self.script[self.steps - 1]

    def logprobs(self) -> TokenLogprobs | None:
        return None


def ids_of(tokenizer: Tokenizer, *words: str) -> list[int]:
    found = [tokenizer.backend.token_to_id(word.replace(" ", "Ġ")) for word in words]
    assert all(token is not None for token in found)
    return found


def run(
    session: ScriptedSession, tokenizer: Tokenizer, *, prompt: Sequence[int] = (5,), **options: object
) -> list[Chunk]:
    return list(stream_tokens(session, tokenizer, prompt, GenerationOptions(**options)))  # type: ignore[arg-type]


def test_stop_string_over_token_boundaries(tokenizer: Tokenizer) -> None:
    script = ids_of(tokenizer, "red gr", "een bl", "ue violet", "a", "b")
    session = ScriptedSession(script)
    chunks = run(session, tokenizer, stop=["green blue"])
    assert "".join(c.text for c in chunks) == "red "
    assert chunks[-1].finish_reason == "stop"
    assert session.steps == 3  # nothing is generated after the match
    assert [c.token_id for c in chunks] == script[:3]


def test_held_text_comes_out_at_the_end(tokenizer: Tokenizer) -> None:
    script = ids_of(tokenizer, "red gr", "een bl", "a")
    chunks = run(ScriptedSession(script), tokenizer, stop=["green blue"], max_tokens=2)
    assert "".join(c.text for c in chunks) == "red green bl"
    assert chunks[-1].finish_reason == "length"


@pytest.mark.parametrize("end", [0, 1])
def test_every_end_token_ends_and_is_counted(tokenizer: Tokenizer, end: int) -> None:
    a = ids_of(tokenizer, "a")[0]
    chunks = run(ScriptedSession([a, end, a]), tokenizer)
    assert [c.token_id for c in chunks] == [a, end]
    assert "".join(c.text for c in chunks) == "a"
    assert chunks[-1].finish_reason == "stop"


def test_ignore_eos_goes_on(tokenizer: Tokenizer) -> None:
    a = ids_of(tokenizer, "a")[0]
    chunks = run(ScriptedSession([a, 0, a]), tokenizer, ignore_eos=True, max_tokens=3)
    assert [c.token_id for c in chunks] == [a, 0, a]
    assert chunks[-1].finish_reason == "length"


def test_half_a_character_is_held_until_it_is_whole(tokenizer: Tokenizer) -> None:
    euro = tokenizer.encode("€")
    assert len(euro) == 3
    chunks = run(ScriptedSession([*euro, 0]), tokenizer)
    assert [c.text for c in chunks] == ["", "", "€", ""]


def test_context_leaves_two_tokens(tokenizer: Tokenizer) -> None:
    a = ids_of(tokenizer, "a")[0]
    chunks = run(ScriptedSession([a] * 50, context=10), tokenizer, prompt=[5] * 8, max_tokens=50)
    assert len(chunks) == 2
    assert chunks[-1].finish_reason == "length"


def test_prompt_longer_than_the_context_names_both_numbers() -> None:
    with pytest.raises(ContextLengthError, match=r"11 tokens.*10"):
        token_limit(11, 10, None)


def test_closing_the_stream_stops_the_steps(tokenizer: Tokenizer) -> None:
    a = ids_of(tokenizer, "a")[0]
    session = ScriptedSession([a] * 50)
    stream = stream_tokens(session, tokenizer, [5], GenerationOptions())  # type: ignore[arg-type]
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert session.steps == 1
