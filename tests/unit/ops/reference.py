"""What the ops compute, in float64 and in the plainest form."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def rms_norm(x: Array, w: Array, eps: float) -> Array:
    x = x.astype(np.float64)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * w


def activate(x: Array, act: str) -> Array:
    x = x.astype(np.float64)
    if act == "silu":
        return x / (1 + np.exp(-x))
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def rope(x: Array, inv_freq: Array, positions: Array, factor: float) -> Array:
    """x [T, heads, head_dim]; channel i of the first 2 * len(inv_freq) goes with i + len(inv_freq)."""
    half = len(inv_freq)
    angle = (positions[:, None].astype(np.float32) * inv_freq).astype(np.float64)[:, None, :]
    a, b = x[..., :half].astype(np.float64), x[..., half : 2 * half].astype(np.float64)
    cos, sin = np.cos(angle) * factor, np.sin(angle) * factor
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., 2 * half :]], -1)


def attention(
    q: Array,
    keys: Array,
    values: Array,
    positions: Array,
    *,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
) -> Array:
    """q [T, heads, d] of one sequence; keys, values [n, kv_heads, d] from position 0 on."""
    group = q.shape[1] // keys.shape[1]
    out = np.empty(q.shape)
    for t, position in enumerate(positions):
        begin = max(0, position - window + 1) if window else 0
        for h in range(q.shape[1]):
            k = keys[begin : position + 1, h // group].astype(np.float64)
            s = k @ q[t, h].astype(np.float64) * scale
            if softcap:
                s = softcap * np.tanh(s / softcap)
            p = np.exp(s - s.max())
            out[t, h] = p / p.sum() @ values[begin : position + 1, h // group].astype(np.float64)
    return out


def processed(
    logits: Array,
    *,
    bias: dict[int, float] | None = None,
    mask: Array | None = None,
    prompt: Array | None = None,
    output: Array | None = None,
    repetition: float = 1.0,
    presence: float = 0.0,
    frequency: float = 0.0,
) -> Array:
    """Logits of one row after bias, mask and penalties; prompt, output: counts per token."""
    z = logits.astype(np.float64).copy()
    for token, value in (bias or {}).items():
        z[token] += value
    if mask is not None:
        z[~mask] = -np.inf
    none = np.zeros(len(z))
    prompt, output = none if prompt is None else prompt, none if output is None else output
    seen = (prompt > 0) | (output > 0)
    z[seen] = np.where(z[seen] > 0, z[seen] / repetition, z[seen] * repetition)
    return z - frequency * output - presence * (output > 0)


def kept(z: Array, *, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> set[int]:
    """Tokens that top-k, then top-p, then min-p leave; z after the temperature."""
    order = np.lexsort((np.arange(len(z)), -z))
    order = order[np.isfinite(z[order])]
    if top_k > 0:
        order = order[:top_k]
    p = np.exp(z[order] - z.max())
    if top_p < 1:
        mass = np.cumsum(p) / p.sum()
        order = order[: int(np.searchsorted(mass, top_p)) + 1]
    if min_p > 0:
        order = order[np.exp(z[order] - z.max()) >= min_p]
    return set(order.tolist())


def philox(counter: Array, key: tuple[int, int]) -> Array:
    """Philox4x32-10 of counters [n, 4]: words [n, 4] (Salmon et al., 2011)."""
    c = [counter[:, i].astype(np.uint64) for i in range(4)]
    k0, k1, low = key[0], key[1], np.uint64(0xFFFFFFFF)
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [
            (b >> np.uint64(32)) ^ c[1] ^ np.uint64(k0),
            b & low,
            (a >> np.uint64(32)) ^ c[3] ^ np.uint64(k1),
            a & low,
        ]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c, -1)


def gumbel(vocab: int, seed: int, step: int) -> Array:
    """The noise of each token."""
    n = (vocab + 3) // 4
    counter = np.zeros((n, 4), np.uint64)
    counter[:, 0], counter[:, 1] = np.arange(n), step
    words = philox(counter, (seed & 0xFFFFFFFF, seed >> 32)).reshape(-1)[:vocab].astype(np.float64)
    v = np.minimum(words * 2.0**-32 + 2.0**-33, 1 - 2.0**-24)
    return -np.log(-np.log1p(-v))
