"""What the ops of the gated delta net compute, in float64: a row at a time, as arXiv 2412.06464 writes it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def causal_conv(x: Array, w: Array, window: Array) -> tuple[Array, Array]:
    """x [T, n], w [n, width], window [width - 1, n]: y [T, n] and the window after each row."""
    inputs = np.concatenate([window, x]).astype(np.float64)
    kept = w.shape[1] - 1
    y = np.stack([(inputs[t : t + kept + 1].T * w).sum(1) for t in range(len(x))])
    return silu(y), np.stack([inputs[t + 1 : t + 1 + kept] for t in range(len(x))])


def l2_norm(x: Array) -> Array:
    x = x.astype(np.float64)
    return x / np.sqrt((x**2).sum(-1, keepdims=True) + 1e-6)


def gates(a: Array, b: Array, a_log: Array, dt_bias: Array) -> tuple[Array, Array]:
    """Decay and beta [T, value_heads]."""
    softplus = np.logaddexp(0, a.astype(np.float64) + dt_bias)
    return np.exp(-np.exp(a_log.astype(np.float64)) * softplus), sigmoid(b)


def delta_rule(q: Array, k: Array, v: Array, decay: Array, beta: Array, state: Array) -> tuple[Array, Array]:
    """q, k [T, key_heads, dk], v [T, value_heads, dv], state [value_heads, dv, dk]: y as v, the state after
    each row."""
    group = v.shape[1] // k.shape[1]
    s, y, states = state.astype(np.float64), np.empty(v.shape), []
    for t in range(len(v)):
        s = s.copy()
        for h in range(v.shape[1]):
            key, query = k[t, h // group].astype(np.float64), q[t, h // group].astype(np.float64)
            s[h] *= decay[t, h]
            s[h] += np.outer(beta[t, h] * (v[t, h] - s[h] @ key), key)
            y[t, h] = s[h] @ query
        states.append(s)
    return y, np.stack(states)


def gated_norm(x: Array, z: Array, w: Array, eps: float) -> Array:
    """Over the last dimension."""
    x = x.astype(np.float64)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * w * silu(z)
