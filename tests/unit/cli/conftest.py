"""A scripted model in place of a real one, and a way to run the command line in-process."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from saragossa.cli import loading
from saragossa.cli.main import main
from saragossa.engine.options import Chunk, Completion, GenerationOptions, Metrics, TokenLogprobs
from saragossa.errors import ContextLengthError


class ScriptedSession:
    """Counts tokens as the real one does; what is drawn does not matter."""

    def __init__(self) -> None:
        self.tokens: list[int] = []

    @property
    def length(self) -> int:
        return len(self.tokens)

    def rewindable(self, to: int) -> int:
        return to

    def rewind(self, to: int) -> None:
        del self.tokens[to:]

    def prefill(self, ids: Sequence[int]) -> None:
        self.tokens += ids

    def step(self) -> int:
        self.tokens.append(0)
        return 0


@dataclass
class ScriptedLLM:
    """Answers with `script`, one piece a token; a piece that is an exception is raised.

    A character is a token, a message is "role:content;".
    """

    script: list[str | BaseException] = field(default_factory=lambda: ["Hel", "lo", "."])
    context: int = 1000
    device_description: str = "cpu (scripted)"
    load_seconds: float = 0.25
    asked: list[list[int]] = field(default_factory=list)
    options: list[GenerationOptions] = field(default_factory=list)
    thinking: list[bool | None] = field(default_factory=list)
    closed: int = 0

    def __enter__(self) -> ScriptedLLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.closed += 1

    def tokenize(self, text: str, *, add_special: bool = True) -> list[int]:
        return [ord(c) for c in text]

    def detokenize(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))

    def chat_ids(
        self, messages: Sequence[dict[str, str]], *, enable_thinking: bool | None = None
    ) -> list[int]:
        self.thinking.append(enable_thinking)
        return self.tokenize("".join(f"{m['role']}:{m['content']};" for m in messages))

    def chat_options(self, **overrides: Any) -> GenerationOptions:
        return GenerationOptions(temperature=0.7, top_k=20).with_overrides(overrides)

    def session(self) -> ScriptedSession:
        return ScriptedSession()

    def stream(
        self,
        ids: Sequence[int],
        options: GenerationOptions,
        *,
        session: ScriptedSession | None = None,
        continues: bool = True,
        timing: Any = None,
        progress: Any = None,
    ) -> Iterator[Chunk]:
        session = session or self.session()
        if session.length + len(ids) >= self.context:
            raise ContextLengthError(session.length + len(ids), self.context)
        session.prefill(ids)
        self.asked.append(list(session.tokens))
        self.options.append(options)
        limit = len(self.script) if options.max_tokens is None else min(len(self.script), options.max_tokens)
        for i, piece in enumerate(self.script[:limit]):
            if isinstance(piece, BaseException):
                raise piece
            reason = None if i + 1 < limit else "stop" if limit == len(self.script) else "length"
            entry = TokenLogprobs(65 + i, -0.5, ((65 + i, -0.5), (90, -2.0)))
            logprobs = None if options.top_logprobs is None else entry
            yield Chunk(piece, 65 + i, logprobs, reason)
            if reason is None:
                session.step()

    def metrics(self, timing: Any, prompt_tokens: int) -> Metrics:
        return Metrics(self.load_seconds, 100.0, 50.0, 123_000_000, self.device_description)

    def generate(
        self, ids: Sequence[int], options: GenerationOptions, *, continues: bool = True
    ) -> Completion:
        chunks = list(self.stream(ids, options))
        entries = [c.logprobs for c in chunks if c.logprobs is not None]
        return Completion(
            "".join(c.text for c in chunks),
            [c.token_id for c in chunks if c.token_id is not None],
            len(ids),
            chunks[-1].finish_reason or "stop",
            self.metrics(None, len(ids)),
            entries or None,
        )


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> ScriptedLLM:
    """What every command of a test loads."""
    scripted = ScriptedLLM()
    monkeypatch.setattr(loading, "open_model", lambda args: scripted)
    return scripted


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


Cli = Callable[..., Result]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """Runs `saragossa ARGUMENTS` in this process; `stdin` is piped in."""
    monkeypatch.setenv("SARAGOSSA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("SARAGOSSA_STATE_DIR", str(tmp_path / "state"))

    def run(*arguments: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = main(arguments)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run
