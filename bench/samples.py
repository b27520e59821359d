"""Samples of a comparison, medians and ratios over its rounds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """One figure of one contender in one round."""

    round: int
    contender: str
    threads: int
    metric: str
    value: float
    unit: str = "tok/s"


class Samples:
    """All samples; ratios are taken within a round, so that a slow minute hits both sides."""

    def __init__(self, samples: Iterable[Sample] = ()) -> None:
        self.all = list(samples)

    def add(self, sample: Sample) -> None:
        self.all.append(sample)

    def by_round(self, contender: str, metric: str, threads: int) -> dict[int, float]:
        """Value by round; empty where it was not measured."""
        wanted = (contender, metric, threads)
        return {s.round: s.value for s in self.all if (s.contender, s.metric, s.threads) == wanted}

    def median(self, contender: str, metric: str, threads: int) -> float | None:
        values = self.by_round(contender, metric, threads).values()
        return statistics.median(values) if values else None

    def best_of(self, contenders: Iterable[str], metric: str, threads: int) -> str | None:
        """The contender with the highest median."""
        medians = {c: m for c in contenders if (m := self.median(c, metric, threads)) is not None}
        return max(medians, key=medians.__getitem__, default=None)

    def ratio(self, first: tuple[str, str, int], second: tuple[str, str, int]) -> float | None:
        """Median over the rounds that have both of first / second, each (contender, metric, threads)."""
        above, below = self.by_round(*first), self.by_round(*second)
        ratios = [above[r] / below[r] for r in sorted(above.keys() & below.keys()) if below[r] > 0]
        return statistics.median(ratios) if ratios else None
