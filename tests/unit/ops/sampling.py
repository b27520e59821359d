"""One call of the sample op on rows of logits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from saragossa import _core_test as core
from unit.ops.harness import Array, Ops

PROMPT = np.uint32(0x80000000)
PARAM_WORDS = {"seed_lo": 7, "seed_hi": 8, "step": 9}  # in SampleParams


@dataclass
class Row:
    """What one row asks for; counts are per token."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    seed: int = 0
    step: int = 0
    top_logprobs: int = -1
    bias: dict[int, float] = field(default_factory=dict)
    mask: Array | None = None
    prompt: Array | None = None
    output: Array | None = None

    def params(self) -> Array:
        keys = (
            "temperature",
            "top_k",
            "top_p",
            "min_p",
            "repetition",
            "presence",
            "frequency",
            "seed",
            "step",
        )
        values = {key: getattr(self, key) for key in keys}
        packed: Array = core.sample_params(**values, n_bias=len(self.bias), top_logprobs=self.top_logprobs)
        return packed


@dataclass
class Drawn:
    ids: Array
    steps: Array
    counts: Array | None
    logprobs: Array
    logprob_ids: Array


def mask_words(allowed: Array) -> Array:
    padded = np.zeros((len(allowed) + 31) // 32 * 32, bool)
    padded[: len(allowed)] = allowed
    return np.packbits(padded, bitorder="little").view("<u4")


def draw(
    ops: Ops,
    logits: Array,
    rows: list[Row],
    *,
    top: int | None = 0,
    filtered: bool = True,
    pick: list[int] | None = None,
) -> Drawn:
    """logits [R, V] or [V] for all rows; optional tensors are passed where a row has something in them.

    top: columns of logprobs behind the first; None: no logprobs. pick: which of `rows` each row of logits
    draws with, in place of its own; ids and logprobs are then in that order, steps and counts of all rows.
    """
    drawn = len(rows if pick is None else pick)
    logits = np.broadcast_to(np.asarray(logits, np.float32), (drawn, np.shape(logits)[-1]))
    vocab = logits.shape[1]
    given: dict[str, Any] = {}
    if any(r.prompt is not None or r.output is not None for r in rows):
        counts = np.zeros((len(rows), vocab), np.uint32)
        for i, r in enumerate(rows):
            if r.output is not None:
                counts[i] += r.output.astype(np.uint32)
            if r.prompt is not None:
                counts[i] |= np.where(r.prompt > 0, PROMPT, 0).astype(np.uint32)
        given["counts"] = ops.u32(counts)
    if any(r.bias for r in rows):
        width = max(len(r.bias) for r in rows)
        ids, bias = np.full((len(rows), width), 0), np.full((len(rows), width), np.nan)
        for i, r in enumerate(rows):
            ids[i, : len(r.bias)], bias[i, : len(r.bias)] = list(r.bias), list(r.bias.values())
        given |= {"bias_ids": ops.i32(ids), "bias": ops.f32(bias)}
    if any(r.mask is not None for r in rows):
        given["mask"] = ops.u32(
            np.stack([mask_words(np.ones(vocab, bool) if r.mask is None else r.mask) for r in rows])
        )
    if pick is not None:
        given["rows"] = ops.i32(pick)
    out, params = ops.i32(np.full(drawn, -7)), ops.u8(np.stack([r.params() for r in rows]))
    logprobs, logprob_ids = (
        ops.empty(drawn, 1 + (top or 0)),
        ops.i32(np.full((drawn, 1 + (top or 0)), -7)),
    )
    if top is not None:
        given |= {"logprobs": logprobs, "logprob_ids": logprob_ids}
    if not filtered:
        given["filtered"] = False
    x = ops.f32(logits)
    ops.run(lambda e: e.sample(x, params, out, **given))
    assert np.array_equal(x.numpy(), logits, equal_nan=True)  # logits are read only
    return Drawn(
        out.numpy(),
        params.numpy().view("<u4")[:, PARAM_WORDS["step"]],
        given["counts"].numpy() if "counts" in given else None,
        logprobs.numpy(),
        logprob_ids.numpy(),
    )
