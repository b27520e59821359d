"""Measures drafts against plain decoding of the same text, turn by turn; the tokens must be the same."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from saragossa.engine.options import GenerationOptions, SpeculationMethod
from saragossa.engine.speculation import SpeculationStats
from saragossa.errors import SaragossaError

if TYPE_CHECKING:
    from saragossa.llm import LLM

# How often drafts are right depends on the text: code and quotations are easy, prose is not.
TEXT = """The old clock maker opened his shop at seven, as he had done for forty years. On the bench lay a
watch that nobody had been able to mend. He took the glass to his eye, turned the lamp a little, and looked
for a long time at the smallest wheel. Then he wrote into his book, line by line, what he saw and what he
meant to do about it:
"""


@dataclass(frozen=True, slots=True)
class SpeculationReport:
    """Rates in tokens per second; each the median of `runs`, which took turns."""

    method: SpeculationMethod
    device: str
    prompt_tokens: int
    tokens: int
    runs: int
    acceptance: float  # share of the drafts that were right
    tokens_per_verification: float
    verifications: int  # of all runs
    plain_steps: int  # among them: steps without drafts
    tok_s: float
    tok_s_min: float
    tok_s_max: float
    plain_tok_s: float
    plain_tok_s_min: float
    plain_tok_s_max: float

    @property
    def speedup(self) -> float:
        return self.tok_s / self.plain_tok_s if self.plain_tok_s else 0.0


def measure(
    model: LLM,
    method: SpeculationMethod,
    ids: Sequence[int],
    *,
    tokens: int,
    repeat: int,
    progress: Callable[[str], None] = lambda _: None,
) -> SpeculationReport:
    """Decode greedily behind `ids`, with and without drafts in turn. Raises where the tokens differ."""
    stats = SpeculationStats()
    rates: dict[SpeculationMethod, list[float]] = {"off": [], method: []}
    wanted: list[int] | None = None
    _decode(model, "off", ids, min(tokens, 4), SpeculationStats())  # touches the weights
    for run in range(repeat):
        for kind in ("off", method) if run % 2 == 0 else (method, "off"):
            progress(f"run {run + 1} of {repeat}: {'plain' if kind == 'off' else kind}")
            found, rate = _decode(model, kind, ids, tokens, stats)
            rates[kind].append(rate)
            wanted = wanted or found
            if found != wanted:
                at = next(i for i, (a, b) in enumerate(zip(found, wanted, strict=True)) if a != b)
                raise SaragossaError(
                    f"token {at} differs between plain decoding and '{method}'",
                    cure="this is a fault of the engine: please report it",
                )
    drafted, plain = rates[method], rates["off"]
    return SpeculationReport(
        method,
        model.device_description,
        len(ids),
        tokens,
        repeat,
        stats.acceptance,
        stats.tokens_per_verification,
        stats.verifications,
        stats.plain,
        statistics.median(drafted),
        min(drafted),
        max(drafted),
        statistics.median(plain),
        min(plain),
        max(plain),
    )


def _decode(
    model: LLM, method: SpeculationMethod, ids: Sequence[int], tokens: int, stats: SpeculationStats
) -> tuple[list[int], float]:
    session = model.session()
    session.configure(GenerationOptions(speculate=method))
    session.prefill(ids)
    out = [session.step()]
    start = time.perf_counter()
    out += [session.step(tokens - i) for i in range(tokens)]
    rate = tokens / (time.perf_counter() - start)
    stats.add(session.stats)
    return out, rate
