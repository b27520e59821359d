"""Cases of the gated delta net's ops: see cases.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator

from saragossa import _core_test as core
from unit.ops import reference_delta as reference
from unit.ops.cases import Array, Arrays, Case, normal
from unit.ops.harness import Ops

EPS = 1e-6


@dataclass(frozen=True)
class Run:
    """Rows of one sequence, the slot in front of them (-1: zeros), and which rows' states are kept where.

    last: the last row's in a new slot; each: every row's in one of its own; place: the last row's in the slot
    in front; place-each: the first row's there, the others' in new ones; none: no row's.
    """

    rows: int
    start: int = -1
    keep: str = "last"


@dataclass(frozen=True)
class Steps:
    """A batch of runs; sequences are numbered from the last run to the first."""

    runs: tuple[Run, ...]

    @property
    def rows(self) -> int:
        return sum(run.rows for run in self.runs)

    def starts(self) -> list[int]:
        return [0, *np.cumsum([run.rows for run in self.runs]).tolist()]

    def outs(self) -> tuple[list[int], int]:
        """The slot of each row, -1: none; and the number of slots. One behind those read is nobody's."""
        slots = max(run.start for run in self.runs) + 2
        outs = []
        for run in self.runs:
            last = run.rows - 1
            for t in range(run.rows):
                if (run.keep == "place" and t == last) or (run.keep == "place-each" and t == 0):
                    outs.append(run.start)
                elif run.keep in ("each", "place-each") or (run.keep == "last" and t == last):
                    outs.append(slots)
                    slots += 1
                else:
                    outs.append(-1)
        return outs, slots

    def state(self, rng: Generator, *shape: int) -> Array:
        """[slots, ...]; NaN where nobody reads."""
        read = {run.start for run in self.runs}
        out = np.full((self.outs()[1], *shape), np.nan, np.float32)
        for slot in range(len(out)):
            if slot in read:
                out[slot] = normal(rng, *shape)
        return out

    def batch(self, ops: Ops) -> Any:
        count = len(self.runs)
        sequence = np.repeat(np.arange(count)[::-1], [run.rows for run in self.runs])
        return core.Batch(
            ids=ops.i32(np.zeros(self.rows)),
            positions=ops.i32(np.arange(self.rows)),
            sequence=ops.i32(sequence),
            block_table=ops.i32(np.zeros((count, 1))),
            runs=[run.rows for run in self.runs],
            run_starts=ops.i32(self.starts()),
            state_in=ops.i32([run.start for run in self.runs][::-1]),
            state_out=ops.i32(self.outs()[0]),
        )

    def follow(self, state: Array, fn: Callable[[slice, Array], tuple[Array, Array]]) -> tuple[Array, Array]:
        """fn(rows, state in front) gives y and the state after each row; all y, and the slots."""
        out, ys, starts = state.astype(np.float64), [], self.starts()
        for run, first in zip(self.runs, starts[:-1], strict=True):
            front = state[run.start] if run.start >= 0 else np.zeros(state.shape[1:])
            y, states = fn(slice(first, first + run.rows), front)
            ys.append(y)
            for t, slot in enumerate(self.outs()[0][first : first + run.rows]):
                if slot >= 0:
                    out[slot] = states[t]
        return np.concatenate(ys), out


@dataclass(frozen=True)
class Heads:
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int

    @property
    def keys(self) -> int:
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        return self.value_heads * self.value_dim

    @property
    def channels(self) -> int:
        return 2 * self.keys + self.values

    def core(self) -> Any:
        return core.DeltaHeads(
            key_heads=self.key_heads,
            value_heads=self.value_heads,
            key_dim=self.key_dim,
            value_dim=self.value_dim,
        )

    def normed(self, x: Array) -> Array:
        """q and k heads of x [T, channels] as qk_l2_norm leaves them."""
        out = x.astype(np.float64)
        qk = reference.l2_norm(out[:, : 2 * self.keys].reshape(len(x), 2, self.key_heads, self.key_dim))
        qk[:, 0] *= self.key_dim**-0.5
        out[:, : 2 * self.keys] = qk.reshape(len(x), -1)
        return out

    def __str__(self) -> str:
        return f"{self.key_heads}x{self.key_dim}-{self.value_heads}x{self.value_dim}"


# --- the convolution and the norms ------------------------------------------------------------------------


def conv_case(label: str, steps: Steps, width: int, heads: Heads, fused: bool = False) -> Case:
    n = heads.channels

    def make(rng: Generator) -> Arrays:
        return {
            "x": normal(rng, steps.rows, n),
            "w": normal(rng, n, width),
            "state": steps.state(rng, width - 1, n),
        }

    def expected(a: Arrays) -> Arrays:
        y, state = steps.follow(
            a["state"], lambda rows, front: reference.causal_conv(a["x"][rows], a["w"], front)
        )
        return {"y": heads.normed(y) if fused else y, "state": state}

    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        y, state = ops.empty(steps.rows, n), ops.f32(a["state"])
        layer = core.RecurrentLayer(conv=state)
        x, w = ops.f32(a["x"]), ops.f32(a["w"])
        if fused:
            enc.conv_qk_norm(y, x, w, heads.core(), layer, steps.batch(ops))
        else:
            enc.causal_conv(y, x, w, layer, steps.batch(ops))
        return {"y": y, "state": state}

    op = "conv_qk_norm" if fused else "causal_conv"
    return Case(op, f"{label}-{heads}-width{width}", make, expected, encode)


def l2_norm_case(rows: int, heads: Heads, scale: float = 1.0) -> Case:
    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        x = ops.f32(a["x"])
        enc.qk_l2_norm(x, heads.core())
        return {"x": x}

    return Case(
        "qk_l2_norm",
        f"{rows}-{heads}-scale{scale:g}",
        lambda rng: {"x": normal(rng, rows, heads.channels, scale=scale)},
        lambda a: {"x": heads.normed(a["x"])},
        encode,
    )


def gated_norm_case(rows: int, heads: int, n: int, scale: float = 1.0) -> Case:
    def make(rng: Generator) -> Arrays:
        shape = (rows, heads * n)
        return {
            "x": normal(rng, *shape, scale=scale),
            "z": normal(rng, *shape, scale=3.0),
            "w": normal(rng, n),
        }

    def expected(a: Arrays) -> Arrays:
        x, z = a["x"].reshape(-1, n), a["z"].reshape(-1, n)
        return {"x": reference.gated_norm(x, z, a["w"], EPS).reshape(rows, -1)}

    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        x = ops.f32(a["x"])
        enc.gated_norm(x, ops.f32(a["z"]), ops.f32(a["w"]), EPS)
        return {"x": x}

    return Case("gated_norm", f"{rows}x{heads}x{n}-scale{scale:g}", make, expected, encode)


# --- the delta rule -----------------------------------------------------------------------------------------

# a, dt_bias and a_log: decays of a trained model; almost one; almost zero, and zero; all of them, row by row.
DECAYS: dict[str, Callable[[Generator, int, int], tuple[Array, Array, Array]]] = {
    "usual": lambda rng, t, h: (normal(rng, t, h), normal(rng, h), np.log(rng.uniform(0.01, 1, h))),
    "slow": lambda rng, t, h: (normal(rng, t, h), normal(rng, h) - 10, np.log(rng.uniform(0.5, 1, h))),
    "fast": lambda rng, t, h: (normal(rng, t, h), normal(rng, h) + 20, np.log(rng.uniform(1, 16, h))),
    "mixed": lambda rng, t, h: (
        normal(rng, t, h, scale=20.0),
        normal(rng, h) - 20,
        np.log(rng.uniform(0.5, 16, h)),
    ),
}


def delta_inputs(rng: Generator, steps: Steps, heads: Heads, decays: str) -> Arrays:
    a, dt_bias, a_log = DECAYS[decays](rng, steps.rows, heads.value_heads)
    return {
        "qkv": heads.normed(normal(rng, steps.rows, heads.channels)).astype(np.float32),
        "a": a.astype(np.float32),
        "b": normal(rng, steps.rows, heads.value_heads, scale=2.0),
        "a_log": a_log.astype(np.float32),
        "dt_bias": dt_bias.astype(np.float32),
        "z": normal(rng, steps.rows, heads.values),
        "w": normal(rng, heads.value_dim),
        "state": steps.state(rng, heads.value_heads, heads.value_dim, heads.key_dim),
    }


def delta_expected(a: Arrays, steps: Steps, heads: Heads, norm: bool) -> Arrays:
    decay, beta = reference.gates(a["a"], a["b"], a["a_log"], a["dt_bias"])
    q, k, v = np.split(a["qkv"], [heads.keys, 2 * heads.keys], axis=1)
    q, k = (x.reshape(-1, heads.key_heads, heads.key_dim) for x in (q, k))
    v = v.reshape(-1, heads.value_heads, heads.value_dim)
    y, state = steps.follow(
        a["state"], lambda r, front: reference.delta_rule(q[r], k[r], v[r], decay[r], beta[r], front)
    )
    if norm:
        y = reference.gated_norm(y, a["z"].reshape(y.shape), a["w"], EPS)
    return {"y": y.reshape(steps.rows, -1), "state": state}


def encode_delta(ops: Ops, enc: Any, a: Arrays, steps: Steps, heads: Heads, norm: bool) -> dict[str, Any]:
    y, state = ops.empty(steps.rows, heads.values), ops.f32(a["state"])
    gates = core.DeltaGates(*(ops.f32(a[name]) for name in ("a", "b", "a_log", "dt_bias")))
    layer, batch = core.RecurrentLayer(delta=state), steps.batch(ops)
    if norm:
        z, w = ops.f32(a["z"]), ops.f32(a["w"])
        enc.delta_rule_norm(y, ops.f32(a["qkv"]), gates, heads.core(), z, w, EPS, layer, batch)
    else:
        enc.delta_rule(y, ops.f32(a["qkv"]), gates, heads.core(), layer, batch)
    return {"y": y, "state": state}


def delta_case(label: str, steps: Steps, heads: Heads, decays: str = "usual", norm: bool = False) -> Case:
    return Case(
        "delta_rule_norm" if norm else "delta_rule",
        f"{label}-{heads}-{decays}",
        lambda rng: delta_inputs(rng, steps, heads, decays),
        lambda a: delta_expected(a, steps, heads, norm),
        lambda ops, enc, a: encode_delta(ops, enc, a, steps, heads, norm),
        # Sums of many products, over rows that build on each other; the norm makes large what is nearly zero.
        tolerance=5e-5 if norm else 1e-5,
    )


ONE = Steps((Run(1, 0, "place"),))
FEW = Steps((Run(3, 0, "place-each"), Run(1, 1, "last"), Run(8, -1, "each"), Run(2, 1, "none")))
LONG = Steps((Run(9, 0, "place"), Run(20, 2, "last"), Run(17, -1, "last"), Run(1, 2, "last")))
TWO, ODD, WIDE, REAL = Heads(2, 2, 16, 12), Heads(3, 9, 20, 7), Heads(2, 4, 12, 40), Heads(1, 2, 128, 128)

STEPS = [("one", ONE), ("fresh", Steps((Run(1),))), ("few", FEW), ("long", LONG)]

CASES = [
    *(
        conv_case(label, steps, width, ODD, fused=fused)
        for fused in (False, True)
        for label, steps in STEPS
        for width in (1, 2, 4)
    ),
    conv_case("few", FEW, 3, TWO),
    conv_case("few", FEW, 5, TWO),
    conv_case("long", LONG, 5, WIDE, fused=True),
    conv_case("few", FEW, 4, Heads(2, 4, 128, 128), fused=True),
    conv_case("one", ONE, 16, TWO),
    l2_norm_case(1, ODD),
    l2_norm_case(5, REAL),
    l2_norm_case(3, TWO, scale=1e-3),
    l2_norm_case(3, WIDE, scale=1e4),
    gated_norm_case(1, 3, 20),
    gated_norm_case(7, 2, 128),
    gated_norm_case(3, 5, 7, scale=1e-3),
    *(
        delta_case(label, steps, heads, norm=norm)
        for norm in (False, True)
        for label, steps in STEPS
        for heads in (TWO, ODD, WIDE)
    ),
    *(delta_case("few", FEW, ODD, decays) for decays in ("slow", "fast", "mixed")),
    *(delta_case("few", FEW, REAL, norm=norm) for norm in (False, True)),
    *(delta_case(f"rows{n}", Steps((Run(n, 0, "last"),)), TWO) for n in (63, 64, 65, 130)),
    *(
        delta_case("rows100", Steps((Run(100, 0, "place"),)), TWO, decays)
        for decays in ("slow", "fast", "mixed")
    ),
]

# Shapes of Qwen3.6-35B-A3B: for bench/ops.
BENCH_HEADS = Heads(16, 32, 128, 128)
BENCH = [
    replace(make(f"rows{n}", Steps((Run(n, 0, "place"),))), tolerance=1e-4)
    for n in (1, 4, 512)
    for make in (
        lambda label, steps: conv_case(label, steps, 4, BENCH_HEADS, fused=True),
        lambda label, steps: delta_case(label, steps, BENCH_HEADS, norm=True),
    )
]
