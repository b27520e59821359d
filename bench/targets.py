"""The figures that the engine promises, checked against a run's samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from samples import Samples

OURS = "saragossa"
LLAMA = ("llama.cpp Q4_0", "llama.cpp Q4_K_M")
TORCH = "torch bf16"
MEMORY = "memory"

DECODE = {1: (1.4, 1.6), 2: (1.25, 1.35)}  # threads: (target, goal), times llama.cpp
CEILING = (0.80, 0.88)  # of the tokens per second that the memory bandwidth allows
PREFILL = (1.0, 1.3)  # times the better of llama.cpp and torch
CONTENDED = 0.4  # of our own two-thread decode, while another process spins on one of the two cores
OVERHEAD_MB = 150  # resident beside mapped weights and KV
LOAD_S, IMPORT_S, HELP_S = 1.0, 0.15, 0.3


@dataclass(frozen=True)
class Verdict:
    """One line of the closing table. passed is None where a side was not measured."""

    what: str
    found: float | None
    target: float
    at_least: bool = True
    goal: float | None = None
    note: str = ""

    @property
    def passed(self) -> bool | None:
        if self.found is None:
            return None
        return self.found >= self.target if self.at_least else self.found <= self.target

    @property
    def word(self) -> str:
        return {None: "n/a", True: "PASS", False: "FAIL"}[self.passed]


def verdicts(samples: Samples, bytes_per_token: int, prefill: tuple[int, ...]) -> list[Verdict]:
    """Every promised figure, in the order of the README."""
    return [
        *_decode(samples, bytes_per_token),
        *_prefill(samples, prefill),
        *_contended(samples),
        *_plain(samples),
    ]


def _decode(samples: Samples, bytes_per_token: int) -> Iterator[Verdict]:
    for threads, (target, goal) in DECODE.items():
        rival = samples.best_of(LLAMA, "decode", threads)
        ratio = samples.ratio((OURS, "decode", threads), (rival or "", "decode", threads))
        yield Verdict(f"decode, {threads} threads, times {rival or 'llama.cpp'}", ratio, target, goal=goal)
    for threads in DECODE:
        per_byte = samples.ratio((OURS, "decode", threads), (MEMORY, "read", threads))  # tok/s over GB/s
        share = None if per_byte is None else per_byte * bytes_per_token / 1e9
        bandwidth = samples.median(MEMORY, "read", threads)
        note = "" if bandwidth is None else f"ceiling {bandwidth * 1e9 / bytes_per_token:.1f} tok/s"
        yield Verdict(
            f"decode, {threads} threads, share of the ceiling", share, CEILING[0], goal=CEILING[1], note=note
        )


def _prefill(samples: Samples, lengths: tuple[int, ...]) -> Iterator[Verdict]:
    for length in lengths:
        for threads in DECODE:
            metric = f"prefill_{length}"
            rival = samples.best_of((*LLAMA, TORCH), metric, threads)
            ratio = samples.ratio((OURS, metric, threads), (rival or "", metric, threads))
            name = rival or "the better of llama.cpp and torch"
            yield Verdict(
                f"prefill {length}, {threads} threads, times {name}", ratio, PREFILL[0], goal=PREFILL[1]
            )


def _contended(samples: Samples) -> Iterator[Verdict]:
    kept = samples.ratio((OURS, "contended_decode", 2), (OURS, "decode", 2))
    rival = samples.best_of(LLAMA, "contended_decode", 2)
    theirs = samples.ratio((rival or "", "contended_decode", 2), (rival or "", "decode", 2))
    note = "" if theirs is None else f"{rival} keeps {theirs:.2f}"
    yield Verdict("decode kept while another process spins on one core", kept, CONTENDED, note=note)


def _plain(samples: Samples) -> Iterator[Verdict]:
    for what, metric, threads, limit in (
        ("resident beside mapped weights and KV, MB", "overhead", 2, OVERHEAD_MB),
        ("warm load, s", "load_s", 2, LOAD_S),
        ("import saragossa, s", "import_s", 0, IMPORT_S),
        ("saragossa --help, s", "help_s", 0, HELP_S),
    ):
        yield Verdict(what, samples.median(OURS, metric, threads), limit, at_least=False)
