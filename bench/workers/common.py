"""What every worker does: one engine, one process, the same measurement.

A worker is started as `python workers/<engine>.py '<job as JSON>'` and prints one line of JSON. It measures
prefills (prompt in, first token out; the best of the repeats) and decode (after `depth` tokens; the median
over blocks of 8 tokens). The median over rounds is compare.py's.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

BLOCK = 8


@dataclass(frozen=True)
class Job:
    """model: path; prefill: prompt lengths; depth: tokens before the `decode` ones; vocab: ids below it."""

    model: str
    threads: int
    prefill: tuple[int, ...] = ()
    depth: int = 64
    decode: int = 64
    repeats: int = 2
    vocab: int = 32000
    memory: bool = False
    dtype: str = "bfloat16"  # torch's

    @property
    def ids(self) -> list[int]:
        """A prompt: what a token is does not change the work."""
        return [100 + (i * 7919) % (self.vocab - 1000) for i in range(max([self.depth, *self.prefill]))]

    @property
    def context(self) -> int:
        """Tokens that a sequence of this job may reach."""
        return max([self.depth + self.decode, *self.prefill]) + 2 * BLOCK


class Engine(Protocol):
    """One loaded model with one sequence."""

    def prefill(self, ids: list[int]) -> int:
        """Start over with these tokens; the first token that follows."""

    def step(self, token: int) -> int:
        """The token after `token`, which came from the call before."""


def measure(engine: Engine, job: Job) -> dict[str, float]:
    """The figures of one engine in tokens per second."""
    ids = job.ids
    token = engine.prefill(ids[: min(16, len(ids))])
    engine.step(token)
    figures = {}
    for length in job.prefill:
        seconds = min(_seconds(partial(engine.prefill, ids[:length])) for _ in range(job.repeats))
        figures[f"prefill_{length}"] = length / seconds
    if job.decode:
        figures["decode"] = _decode_rate(engine, ids[: job.depth], job.decode)
    return figures


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _decode_rate(engine: Engine, prompt: list[int], tokens: int) -> float:
    token = engine.prefill(prompt)
    rates = []
    for _ in range(max(1, tokens // BLOCK)):
        start = time.perf_counter()
        for _ in range(BLOCK):
            token = engine.step(token)
        rates.append(BLOCK / (time.perf_counter() - start))
    return statistics.median(rates)


def main(load: Callable[[Job], tuple[Engine, dict[str, Any]]]) -> None:
    """Run a worker: `load` gives the engine and facts about it (versions, threads in use)."""
    values = json.loads(sys.argv[1])
    job = Job(**values | {"prefill": tuple(values.get("prefill", ()))})
    start = time.perf_counter()
    engine, facts = load(job)
    facts["load_s"] = time.perf_counter() - start
    print(json.dumps(facts | measure(engine, job)), flush=True)
