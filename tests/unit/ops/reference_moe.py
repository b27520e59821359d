"""Mixtures of experts in float64, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unit.ops import reference

Array = NDArray[Any]


def route(
    logits: Array, top_k: int, *, renormalize: bool, expert_scale: Array | None = None
) -> tuple[Array, Array]:
    """ids and weights [T, top_k] of logits [T, experts]."""
    rows, count = logits.shape
    ids, weights = np.empty((rows, top_k), np.int64), np.empty((rows, top_k))
    for t in range(rows):
        z = logits[t].astype(np.float64)
        if np.isnan(z).any():
            ids[t], weights[t] = np.arange(top_k), np.nan
            continue
        p = np.exp(z - z.max())
        p /= p.sum()
        ids[t] = np.lexsort((np.arange(count), -z))[:top_k]
        weights[t] = p[ids[t]]
        if renormalize:
            weights[t] /= weights[t].sum()
        if expert_scale is not None:
            weights[t] *= expert_scale[ids[t]]
    return ids, weights


def gated(x: Array, gate: Array, up: Array, act: str) -> Array:
    x = x.astype(np.float64)
    return np.asarray(reference.activate(x @ gate.T, act) * (x @ up.T))


def moe_gated(
    x: Array, ids: Array, gate: Array, up: Array, act: str, shared: tuple[Array, Array] | None
) -> Array:
    """h [T, top_k * inner + shared]; gate, up [experts, inner, hidden]."""
    rows = []
    for t in range(len(x)):
        parts = [gated(x[t], gate[e], up[e], act) for e in ids[t]]
        if shared is not None:
            parts.append(gated(x[t], *shared, act))
        rows.append(np.concatenate(parts))
    return np.stack(rows)


def moe_down(
    h: Array, ids: Array, weights: Array, down: Array, shared_down: Array | None, shared: Array | None
) -> Array:
    """down [experts, hidden, inner]; shared [T, 1]: what the sigmoid is taken of."""
    inner, h = down.shape[2], h.astype(np.float64)
    y = np.zeros((len(h), down.shape[1]))
    for t in range(len(h)):
        for k, e in enumerate(ids[t]):
            y[t] += weights[t, k] * (down[e] @ h[t, k * inner : (k + 1) * inner])
        if shared_down is not None:
            factor = 1.0 if shared is None else 1 / (1 + np.exp(-shared[t].astype(np.float64)))
            y[t] += factor * (shared_down @ h[t, ids.shape[1] * inner :])
    return y
