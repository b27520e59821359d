"""Two traces of the same tokens: are they equal, where do they part, which layer is the first to differ.

Byte identity is the gate: greedy ids are equal, or they part at a near tie, which is qualified by both
candidates' margins. The prompt's positions count like the decoded ones, and logits may differ no more than
what the layers' tolerance explains. What differs otherwise is wrong.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from saragossa.engine.trace import Floats, Trace
from saragossa.errors import UsageError

TOP = 5
# A logit sums over all channels, and the largest difference of a whole vocabulary is some deviations out.
LOGIT_DEVIATIONS = 4.0
IDENTICAL, EQUAL, NEAR_TIE, DIFFERENT = "identical", "equal", "near tie", "different"


@dataclass(frozen=True, slots=True)
class Bounds:
    """margin: of a near tie, in logits. layer: difference of a layer's fingerprint, relative.

    Logits may differ by LOGIT_DEVIATIONS times as much of their standard deviation.
    """

    margin: float
    layer: float


# The same arithmetic in another order; and with rounded activations (15 bits) and keys and values (bf16).
EXACT = Bounds(margin=1e-3, layer=1e-3)
ROUNDED = Bounds(margin=0.1, layer=0.05)


@dataclass(frozen=True, slots=True)
class Parting:
    """A step at which the two choose different tokens, after the same text; below 0 within the prompt, where
    -1 is the position before its last.

    margins: how far each of them sees its own token before the other's; the golden's, where the file has no
    logits of that step, is before its second best. top: (id, logit), best first; empty where not known.
    """

    step: int
    ids: tuple[int, int]
    margins: tuple[float, float]
    top: tuple[tuple[tuple[int, float], ...], tuple[tuple[int, float], ...]]

    @property
    def margin(self) -> float:
        return max(self.margins) if not any(map(math.isnan, self.margins)) else math.inf


@dataclass(frozen=True, slots=True)
class Comparison:
    """A's and B's figures in pairs. layers: relative differences of the fingerprints at layer_step.

    logit_share: the largest difference of logits in standard deviations of theirs.
    """

    verdict: str
    md5: tuple[str, str]
    greedy: tuple[tuple[int, ...], tuple[int, ...]]
    partings: tuple[Parting, ...]
    logit_difference: float
    logit_position: int
    logit_share: float
    positions: int
    layers: tuple[float, ...]
    layer_step: int
    first_layer: int | None
    failures: tuple[str | None, str | None]
    bounds: Bounds

    @property
    def logits_differ(self) -> bool:
        return self.logit_share > LOGIT_DEVIATIONS * self.bounds.layer


def md5_of(ids: Sequence[int]) -> str:
    """Of token ids as little-endian int32."""
    return hashlib.md5(np.asarray(ids, "<i4").tobytes(), usedforsecurity=False).hexdigest()


def compare(a: Trace, b: Trace, bounds: Bounds) -> Comparison:
    """Raises UsageError where the two are not of one shape: then there is nothing to compare."""
    for name, left, right in (
        ("vocabulary", a.vocab, b.vocab),
        ("layers", a.layers, b.layers),
        ("channels", a.hidden or b.hidden, b.hidden or a.hidden),
    ):
        if left != right:
            raise UsageError(f"A and B cannot be compared: {name}: {left} in A, {right} in B")
    if a.prompt != b.prompt:
        raise UsageError("A and B cannot be compared: their prompts differ")
    partings = _partings(a, b)
    difference, position, count = _logit_difference(a, b)
    step, layers = _layers(a, b, bounds.layer)
    first = next((i for i, value in enumerate(layers) if value > bounds.layer), None)
    result = Comparison(
        IDENTICAL if difference == 0 else EQUAL,
        (md5_of(a.greedy), md5_of(b.greedy)),
        (a.greedy, b.greedy),
        tuple(partings),
        difference,
        position,
        _logit_share(a, b),
        count,
        tuple(layers),
        step,
        first,
        (a.failure, b.failure),
        bounds,
    )
    if (
        any(result.failures)
        or first is not None
        or result.logits_differ
        or any(p.margin > bounds.margin for p in partings)
    ):
        return replace(result, verdict=DIFFERENT)
    return replace(result, verdict=NEAR_TIE) if partings else result


def _partings(a: Trace, b: Trace) -> list[Parting]:
    """Steps whose likeliest tokens differ, after the same text; and the first at which the decoded ids do."""
    steps = max(len(a.greedy), len(b.greedy))
    found = {}
    for step in range(1 - len(a.prompt), steps):
        left, right = _choice(a, step), _choice(b, step)
        if left is not None and right is not None and left != right:
            found[step] = (left, right)
    parts = (i for i, (x, y) in enumerate(zip(a.greedy, b.greedy, strict=False)) if x != y)
    if (first := next(parts, None)) is not None:
        found.setdefault(first, (a.greedy[first], b.greedy[first]))
    return [_parting(a, b, step, ids) for step, ids in sorted(found.items())]


def _choice(trace: Trace, step: int) -> int | None:
    logits = trace.at_step(step)
    if logits is not None:
        return int(logits.argmax())
    known = trace.margins is not None and 0 <= step < len(trace.greedy)
    return trace.greedy[step] if known else None


def _parting(a: Trace, b: Trace, step: int, ids: tuple[int, int]) -> Parting:
    return Parting(
        step,
        ids,
        (_margin(a, step, ids[0], ids[1]), _margin(b, step, ids[1], ids[0])),
        (_top(a, step), _top(b, step)),
    )


def _margin(trace: Trace, step: int, own: int, other: int) -> float:
    logits = trace.at_step(step)
    if logits is not None:
        return float(logits[own] - logits[other])
    return float(trace.margins[step]) if trace.margins is not None else math.nan


def _top(trace: Trace, step: int) -> tuple[tuple[int, float], ...]:
    logits = trace.at_step(step)
    if logits is None:
        return ()
    best = np.argsort(-logits, kind="stable")[:TOP]
    return tuple((int(i), float(logits[i])) for i in best)


def _logit_difference(a: Trace, b: Trace) -> tuple[float, int, int]:
    """The largest, its position, and at how many it was looked for. What is no number counts as infinite."""
    shared = sorted(a.logits.keys() & b.logits.keys())
    largest, at = -1.0, 0
    for position in shared:
        worst = _largest(a.logits[position], b.logits[position])
        if worst > largest:
            largest, at = worst, position
    return largest, at, len(shared)


def _logit_share(a: Trace, b: Trace) -> float:
    """Over all positions; infinite where logits are no numbers, or differ and have no deviation."""
    worst = 0.0
    for position in a.logits.keys() & b.logits.keys():
        x, y = a.logits[position], b.logits[position]
        if difference := _largest(x, y):
            scale = min(float(x.std()), float(y.std())) if math.isfinite(difference) else 0.0
            worst = max(worst, difference / scale if scale > 0 else math.inf)
    return worst


def _largest(x: Floats, y: Floats) -> float:
    with np.errstate(invalid="ignore"):
        worst = float(np.abs(x - y).max())
    return math.inf if math.isnan(worst) else worst


def _layers(a: Trace, b: Trace, tolerance: float) -> tuple[int, list[float]]:
    """The first step at which a layer differs by more than the tolerance, else the one that differs most."""
    hidden = a.hidden or b.hidden
    if not hidden:
        raise UsageError("two golden files cannot be compared", cure="give a device for A or B")
    by_step = []
    for step in range(min(len(a.norms), len(b.norms))):
        values = [
            _fingerprint_difference(x, y, float(n), float(m), hidden)
            for x, y, n, m in zip(a.first8[step], b.first8[step], a.norms[step], b.norms[step], strict=True)
        ]
        if max(values) > tolerance:
            return step, values
        by_step.append(values)
    step = max(range(len(by_step)), key=lambda i: max(by_step[i]))
    return step, by_step[step]


def _fingerprint_difference(x: Floats, y: Floats, norm: float, other: float, hidden: int) -> float:
    """The values' relative to their root mean square, or the norm's, whichever is more."""
    scale = max(norm, other)
    if not math.isfinite(norm) or not math.isfinite(other):
        return math.inf
    if scale == 0:
        return 0.0
    return max(_largest(x, y) * math.sqrt(hidden), abs(norm - other)) / scale
