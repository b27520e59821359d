"""From a prompt's token ids to a stream of text: end tokens, stop strings, limits."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from saragossa.engine.options import Chunk, FinishReason, GenerationOptions, TokenLogprobs
from saragossa.engine.session import Progress, Session
from saragossa.errors import ContextLengthError
from saragossa.text.detokenizer import Detokenizer
from saragossa.text.stop import StopStrings
from saragossa.text.tokenizer import Tokenizer


@dataclass(slots=True)
class Timing:
    """Seconds of the two phases; the first token belongs to the prefill."""

    prefill_s: float = 0.0
    decode_s: float = 0.0
    decoded: int = 0  # tokens after the first

    def rate(self, prompt_tokens: int) -> tuple[float, float]:
        """(prefill, decode) in tokens per second; 0 where nothing was measured."""
        prefill = prompt_tokens / self.prefill_s if self.prefill_s else 0.0
        return prefill, self.decoded / self.decode_s if self.decode_s else 0.0


@dataclass(slots=True)
class TextStream:
    """Turns the tokens of one sequence into chunks, until it is finished."""

    tokenizer: Tokenizer
    options: GenerationOptions
    prompt: Sequence[int]
    limit: int  # tokens at most
    continues: bool = (
        True  # the text goes on from the prompt's; false: it begins anew, as a chat's answer does
    )
    token_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    _detokenizer: Detokenizer = field(init=False)
    _stops: StopStrings = field(init=False)

    def __post_init__(self) -> None:
        self._detokenizer = Detokenizer(
            self.tokenizer, skip_special=True, context=self.prompt if self.continues else ()
        )
        self._stops = StopStrings(self.options.stop)

    def push(self, token: int, logprobs: TokenLogprobs | None = None) -> Chunk:
        """The chunk of one more token; its finish_reason is set on the last."""
        self.token_ids.append(token)
        ended = token in self.tokenizer.eos_ids and not self.options.ignore_eos
        text, stopped = ("", False) if ended else self._stops.push(self._detokenizer.push(token))
        if ended or stopped:
            self.finish_reason = "stop"
        elif len(self.token_ids) >= self.limit:
            self.finish_reason = "length"
        if self.finish_reason is not None and not stopped:
            rest, stopped = self._stops.push(self._detokenizer.finish())
            text += rest if stopped else rest + self._stops.finish()
            if stopped:
                self.finish_reason = "stop"
        return Chunk(text, token, logprobs, self.finish_reason)


def token_limit(prompt_tokens: int, context: int, max_tokens: int | None) -> int:
    """Tokens that may be generated. Raises ContextLengthError where the context leaves none."""
    room = context - prompt_tokens
    if room < 1:
        raise ContextLengthError(prompt_tokens, context)
    return room if max_tokens is None else min(room, max_tokens)


def stream_tokens(
    session: Session,
    tokenizer: Tokenizer,
    prompt: Sequence[int],
    options: GenerationOptions,
    *,
    continues: bool = True,
    timing: Timing | None = None,
    progress: Progress | None = None,
) -> Iterator[Chunk]:
    """Prefill the prompt and yield a chunk a token. The generator may be closed at any point.

    continues: the text goes on from the prompt's; false where it begins anew, as a chat's answer does.
    """
    options.validate()
    limit = token_limit(session.length + len(prompt), session.context, options.max_tokens)
    stream = TextStream(tokenizer, options, prompt, limit, continues)
    session.configure(options)
    timing = timing if timing is not None else Timing()

    start = time.perf_counter()
    session.prefill(prompt, progress=progress)
    token = session.step()
    timing.prefill_s = time.perf_counter() - start
    while True:
        chunk = stream.push(token, session.logprobs())
        yield chunk
        if chunk.finish_reason is not None:
            return
        start = time.perf_counter()
        token = session.step(limit - len(stream.token_ids))
        timing.decode_s += time.perf_counter() - start
        timing.decoded += 1
