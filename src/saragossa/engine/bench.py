"""Measures a loaded model: prefill, decode after several depths, load time, peak memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from saragossa.engine.memory import peak_rss_bytes

if TYPE_CHECKING:
    from saragossa.engine.session import Session
    from saragossa.llm import LLM

# Any text will do: what a token is does not change the work.
_TEXT = "The bells of the old town rang over the river, and the market opened its stalls one by one. "


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: `tokens` were run after `depth` others; rates in tokens per second over the runs."""

    kind: Literal["prefill", "decode"]
    tokens: int
    depth: int
    tok_s: float  # the median
    tok_s_min: float
    tok_s_max: float
    runs: int


@dataclass(slots=True)
class Report:
    """load_s: of a load whose file is in the page cache; peak_rss_bytes: of the process, weights included."""

    device: str
    context: int
    load_s: float
    peak_rss_bytes: int = 0
    rows: list[Row] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def measure(
    model: LLM,
    *,
    prefill: Sequence[int],
    depths: Sequence[int],
    tokens: int,
    repeat: int,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Time prefills of several lengths, and `tokens` decoded after several depths.

    What does not fit the context is skipped and named.
    """
    report = Report(model.device_description, model.context, model.load_seconds)
    ids = _ids(model, min(model.context, max([1, *prefill, *depths])))
    _warm_up(model, ids)
    for length in prefill:
        if length > model.context:
            report.skipped.append(f"prefill {length}: the context has {model.context} tokens")
            continue
        progress(f"prefill {length}")
        report.rows.append(_row("prefill", length, 0, [_prefill(model, ids[:length]) for _ in range(repeat)]))
    for depth in depths:
        if depth + 1 + tokens > model.context:
            report.skipped.append(f"decode at {depth}: the context has {model.context} tokens")
            continue
        progress(f"decode at {depth}")
        report.rows.append(_row("decode", tokens, depth, _decode(model, ids, depth, tokens, repeat)))
    report.peak_rss_bytes = peak_rss_bytes()
    return report


def _ids(model: LLM, count: int) -> list[int]:
    unit = model.tokenize(_TEXT, add_special=False)
    return (unit * (count // len(unit) + 1))[:count]


def _warm_up(model: LLM, ids: list[int]) -> None:
    """Touch the weights once, so that the first figure is not that of the disk."""
    session = model.session()
    session.prefill(ids[:1])
    for _ in range(min(3, model.context - 1)):
        session.step()


def _prefill(model: LLM, ids: list[int]) -> float:
    session = model.session()
    start = time.perf_counter()
    session.prefill(ids)
    return len(ids) / (time.perf_counter() - start)


def _decode(model: LLM, ids: list[int], depth: int, tokens: int, repeat: int) -> list[float]:
    session = model.session()
    if depth:
        session.prefill(ids[:depth])
    return [_decode_once(session, ids[0], depth, tokens) for _ in range(repeat)]


def _decode_once(session: Session, first: int, depth: int, tokens: int) -> float:
    session.rewind(depth)
    session.prefill([first])
    session.step()  # the token that the prefill drew
    start = time.perf_counter()
    for _ in range(tokens):
        session.step()
    return tokens / (time.perf_counter() - start)


def _row(kind: Literal["prefill", "decode"], tokens: int, depth: int, rates: list[float]) -> Row:
    return Row(kind, tokens, depth, statistics.median(rates), min(rates), max(rates), len(rates))
