"""A dialogue with a loaded model: its messages, its options, the cache kept from turn to turn."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saragossa.engine.options import GenerationOptions
    from saragossa.engine.session import Progress, Session
    from saragossa.llm import LLM


@dataclass(frozen=True, slots=True)
class Turn:
    """Figures of one answer. reused: prompt tokens that were in the cache already."""

    prompt_tokens: int
    reused: int
    tokens: int
    first_s: float  # from the question to the first token
    decode_tok_s: float
    finish_reason: str  # stop, length, or interrupted


class Conversation:
    """Messages in and text out. `overrides` are the options that the user named, by field."""

    def __init__(
        self,
        model: LLM,
        overrides: Mapping[str, Any] | None = None,
        *,
        system: str | None = None,
        thinking: bool | None = None,
    ) -> None:
        self.model = model
        self.overrides = dict(overrides or {})
        self.system = system
        self.thinking = thinking
        self.messages: list[dict[str, str]] = []  # user and assistant in turn
        self.last: Turn | None = None
        self._session: Session | None = None
        self._ids: list[int] = []  # what the session's cache holds, and maybe more

    @property
    def options(self) -> GenerationOptions:
        """The model's own sampling defaults with the user's overrides."""
        return self.model.chat_options(**self.overrides)

    def clear(self) -> None:
        """Forget the dialogue; system message and options stay."""
        self.messages.clear()
        self.last = None

    def answer(self, question: str, progress: Progress | None = None) -> Iterator[str]:
        """Ask, and yield the answer as it comes.

        Closed early (or on Ctrl-C) the part that came is kept as the answer; after an error the
        question is forgotten, as if it had not been asked.
        """
        self.messages.append({"role": "user", "content": question})
        parts: list[str] = []
        try:
            yield from self._stream(parts, progress)
        except (KeyboardInterrupt, GeneratorExit):
            if not parts:
                self.messages.pop()
            raise
        except BaseException:
            parts.clear()
            self.messages.pop()
            raise
        finally:
            if parts:
                self.messages.append({"role": "assistant", "content": "".join(parts)})

    def _stream(self, parts: list[str], progress: Progress | None) -> Iterator[str]:
        system = [{"role": "system", "content": self.system}] if self.system else []
        ids = self.model.chat_ids([*system, *self.messages], enable_thinking=self.thinking)
        options = self.options
        session, reused = self._resume(ids)
        tokens, reason = 0, "interrupted"
        start = first = end = time.perf_counter()
        try:
            for chunk in self.model.stream(
                ids[reused:], options, session=session, continues=False, progress=progress
            ):
                end = time.perf_counter()
                if chunk.token_id is not None:
                    tokens += 1
                    self._ids.append(chunk.token_id)
                    first = end if tokens == 1 else first
                reason = chunk.finish_reason or reason
                if chunk.text:
                    parts.append(chunk.text)
                    yield chunk.text
        finally:
            speed = (tokens - 1) / (end - first) if end > first else 0.0
            self.last = Turn(len(ids), reused, tokens, first - start, speed, reason)

    def _resume(self, ids: list[int]) -> tuple[Session, int]:
        """A session that holds a prefix of `ids`, and that prefix's length."""
        if self._session is None:
            self._session = self.model.session()
        held = self._ids[: self._session.length]
        pairs = enumerate(zip(held, ids, strict=False))
        # One token at least is left to run.
        reused = next((i for i, (old, new) in pairs if old != new), min(len(held), len(ids) - 1))
        reused = self._session.rewindable(reused)
        self._session.rewind(reused)
        self._ids = list(ids)
        return self._session, reused
