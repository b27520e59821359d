"""Cases of the ops of mixtures of experts: part of CASES (cases.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator

from saragossa import _core_test as core
from unit.ops import reference, reference_moe
from unit.ops.harness import Array, Ops
from unit.ops.test_linear import Case as Quantised
from unit.ops.test_linear import make as make_weight

Arrays = dict[str, Array]
Form = tuple[int, int, str]  # bits, group, dtype
DENSE: Form = (0, 0, "f32")
TOLERANCE = 3e-5  # of products of two sums; codes and zero points cancel


def rolled(out: int, n_in: int, form: Form, by: int) -> Quantised:
    """A weight of the same shape and form as others, but not the same."""
    w = make_weight(out, n_in, *form)
    names = ("data", "scales", "biases", "w", "size")
    return replace(w, **{n: np.roll(getattr(w, n), by, axis=0) for n in names})


def named(form: Form) -> str:
    return f"mxfp{form[0]}" if form[2] == "u8" else f"{form[0]}bits{form[1]}"


@dataclass(frozen=True)
class Moe:
    """Shapes and forms of a block of experts, its weights seeded by them."""

    rows: int
    count: int
    top_k: int
    hidden: int = 64
    inner: int = 32
    shared: int = 0
    form: Form = DENSE
    up: Form | None = None  # none: as `form`
    shared_form: Form | None = None
    fused: bool = False  # gate and up in one weight
    act: str = "silu"
    ids: str = "spread"  # or "one": all rows have the same experts

    def __str__(self) -> str:
        bits, _, dtype = self.form
        parts = [f"{self.rows}x{self.top_k}of{self.count}", f"{self.hidden}x{self.inner}+{self.shared}"]
        parts += [named(self.form) if bits else dtype, self.act, self.ids]
        parts += ["fused"] if self.fused else []
        parts += [f"up{named(self.up)}"] if self.up else []
        parts += [f"shared{named(self.shared_form)}"] if self.shared_form else []
        return "-".join(parts)

    def gate_up(self) -> tuple[Quantised, Quantised]:
        """Twice the same where they are fused."""
        n = self.count * self.inner
        if self.fused:
            both = rolled(2 * n, self.hidden, self.form, 1)
            return both, both
        return rolled(n, self.hidden, self.form, 1), rolled(n, self.hidden, self.up or self.form, 2)

    def down(self) -> Quantised:
        return rolled(self.count * self.hidden, self.inner, self.form, 3)

    def shared_weights(self) -> list[Quantised]:
        form, n = self.shared_form or self.form, self.shared
        shapes = [(n, self.hidden), (n, self.hidden), (self.hidden, n)]
        return [rolled(*s, form, 4 + i) for i, s in enumerate(shapes)] if n else []

    def dense(self) -> dict[str, Array]:
        """gate, up [experts, inner, hidden], down [experts, hidden, inner] as float64."""
        gate, up = (w.w for w in self.gate_up())
        if self.fused:
            both = gate.reshape(self.count, 2, self.inner, self.hidden)
            gate, up = both[:, 0], both[:, 1]
        shape = (self.count, self.inner, self.hidden)
        down = self.down().w.reshape(self.count, self.hidden, self.inner)
        return {"gate": gate.reshape(shape), "up": up.reshape(shape), "down": down}

    def experts(self, ops: Ops) -> Any:
        gate, up = self.gate_up()
        stride = 2 * self.inner if self.fused else self.inner
        first = gate.weight(ops)
        second = first if self.fused else up.weight(ops)
        shared = [w.weight(ops) for w in self.shared_weights()]
        names = ("shared_gate", "shared_up", "shared_down")
        return core.Experts(
            count=self.count,
            top_k=self.top_k,
            intermediate=self.inner,
            activation=self.act,
            gate=core.ExpertWeight(first, stride),
            up=core.ExpertWeight(second, stride, self.inner if self.fused else 0),
            down=core.ExpertWeight(self.down().weight(ops), self.hidden),
            shared_intermediate=self.shared,
            **dict(zip(names, shared, strict=False)),
        )

    def width(self) -> int:
        return self.top_k * self.inner + self.shared

    def pick(self, rng: Generator) -> Array:
        """ids [T, top_k], no expert twice in a row."""
        rows = [rng.permutation(self.count)[: self.top_k] for _ in range(self.rows)]
        return np.stack([rows[0]] * self.rows if self.ids == "one" else rows).astype(np.int32)

    def inputs(self, rng: Generator) -> Arrays:
        def normal(*shape: int) -> Array:
            return rng.standard_normal(shape).astype(np.float32)

        return {
            "x": normal(self.rows, self.hidden),
            "h": normal(self.rows, self.width()),
            "ids": self.pick(rng),
            "weights": rng.dirichlet(np.ones(self.top_k), self.rows).astype(np.float32),
            "shared": normal(self.rows, 1) * 3,
            "y": normal(self.rows, self.hidden),
            "norm": normal(self.hidden),
        }

    def h(self, a: Arrays) -> Array:
        w, shared = self.dense(), [s.w for s in self.shared_weights()]
        pair = (shared[0], shared[1]) if shared else None
        return reference_moe.moe_gated(a["x"], a["ids"], w["gate"], w["up"], self.act, pair)

    def y(self, a: Arrays, *, gate: bool) -> Array:
        shared = [s.w for s in self.shared_weights()]
        factor = a["shared"] if gate else None
        down = shared[2] if shared else None
        return reference_moe.moe_down(a["h"], a["ids"], a["weights"], self.dense()["down"], down, factor)


@dataclass(frozen=True)
class Parts:
    """What a Case (cases.py) is made of."""

    op: str
    label: str
    make: Callable[[Generator], Arrays]
    reference: Callable[[Arrays], Arrays]
    encode: Callable[[Ops, Any, Arrays], dict[str, Any]]
    tolerance: float


def route_case(
    rows: int,
    count: int,
    top_k: int,
    *,
    renormalize: bool = True,
    scaled: bool = False,
    kind: str = "plain",
) -> Parts:
    def make(rng: Generator) -> Arrays:
        x = rng.standard_normal((rows, count)).astype(np.float32)
        if kind == "ties":
            x = np.round(x)
        if kind == "equal":
            x[:] = 0.25
        if kind == "large":
            x = np.where(x > 0, 80.0, -80.0).astype(np.float32) + x
        if kind == "nan":
            x[::2, count // 2] = np.nan
        if kind == "minus":
            x[:, : count - 1] = -np.inf
        return {"logits": x, "scale": rng.uniform(0.5, 2, count).astype(np.float32)}

    def expected(a: Arrays) -> Arrays:
        scale = a["scale"] if scaled else None
        ids, weights = reference_moe.route(a["logits"], top_k, renormalize=renormalize, expert_scale=scale)
        return {"ids": ids, "weights": weights}

    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        ids, weights = ops.i32(np.full((rows, top_k), -7)), ops.empty(rows, top_k)
        scale = ops.f32(a["scale"]) if scaled else core.Tensor()
        enc.route(core.Routes(ids, weights), ops.f32(a["logits"]), renormalize, scale)
        return {"ids": ids, "weights": weights}

    label = f"{rows}x{top_k}of{count}-{kind}" + "-renormalized" * renormalize + "-scaled" * scaled
    return Parts("route", label, make, expected, encode, 2e-6)


def gated_case(m: Moe) -> Parts:
    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        h = ops.empty(m.rows, m.width())
        enc.moe_gated(h, ops.f32(a["x"]), ops.i32(a["ids"]), m.experts(ops))
        return {"h": h}

    return Parts("moe_gated", str(m), m.inputs, lambda a: {"h": m.h(a)}, encode, TOLERANCE)


def down_case(m: Moe, *, gate: bool = True, add: bool = True) -> Parts:
    gate = gate and m.shared > 0

    def expected(a: Arrays) -> Arrays:
        return {"y": m.y(a, gate=gate) + (a["y"] if add else 0)}

    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        y = ops.f32(a["y"]) if add else ops.empty(m.rows, m.hidden)
        routes = core.Routes(ops.i32(a["ids"]), ops.f32(a["weights"]))
        shared = ops.f32(a["shared"]) if gate else core.Tensor()
        enc.moe_down(y, ops.f32(a["h"]), routes, shared, m.experts(ops), add)
        return {"y": y}

    label = str(m) + "-gate" * gate + "-add" * add
    return Parts("moe_down", label, m.inputs, expected, encode, TOLERANCE)


def down_norm_case(m: Moe, eps: float = 1e-6) -> Parts:
    gate = m.shared > 0

    def expected(a: Arrays) -> Arrays:
        y = m.y(a, gate=gate) + a["y"]
        return {"y": y, "z": reference.rms_norm(y, a["norm"], eps)}

    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        y, z = ops.f32(a["y"]), ops.empty(m.rows, m.hidden)
        routes = core.Routes(ops.i32(a["ids"]), ops.f32(a["weights"]))
        shared = ops.f32(a["shared"]) if gate else core.Tensor()
        enc.moe_down_norm(y, z, ops.f32(a["h"]), routes, shared, m.experts(ops), ops.f32(a["norm"]), eps)
        return {"y": y, "z": z}

    return Parts("moe_down_norm", str(m), m.inputs, expected, encode, TOLERANCE)


def q(bits: int, group: int, dtype: str = "bf16") -> Form:
    return bits, group, dtype


def mx(bits: int) -> Form:
    return bits, 32, "u8"


BLOCKS = [
    Moe(1, 5, 1),
    Moe(1, 7, 7, hidden=20, inner=7, shared=13),  # no multiple of what kernels read at once
    Moe(3, 7, 2, hidden=40, inner=24, shared=10, form=(0, 0, "bf16"), fused=True),
    Moe(1, 128, 8, form=q(4, 32), shared=64, fused=True),
    Moe(2, 256, 10, form=q(4, 64), inner=64, shared=128),
    Moe(4, 7, 3, hidden=128, inner=64, shared=64, form=q(6, 64), fused=True, act="gelu_tanh"),
    Moe(5, 5, 2, hidden=128, inner=128, shared=128, form=q(8, 128), act="gelu_tanh"),
    Moe(2, 5, 2, hidden=192, inner=96, shared=64, form=q(8, 32, "f16"), shared_form=q(4, 64)),
    Moe(3, 6, 2, form=q(4, 32, "f32"), shared=20, shared_form=DENSE),
    Moe(3, 6, 2, inner=64, form=q(4, 64), up=q(6, 32), shared=32, shared_form=q(8, 32)),
    Moe(8, 5, 2, form=q(4, 32), shared=32, ids="one"),
    Moe(9, 5, 2, form=q(4, 32), shared=32, fused=True),
    Moe(9, 64, 4, form=q(6, 32)),
    Moe(33, 7, 2, form=q(4, 32), shared=32, ids="one"),
    Moe(33, 7, 3, hidden=40, inner=24, shared=10),
    Moe(100, 5, 2, form=q(8, 32), shared=64, shared_form=q(4, 32), fused=True),
    Moe(100, 3, 2, hidden=76, inner=13, act="gelu_tanh"),
    Moe(1, 7, 3, hidden=96, form=mx(8), shared=32),
    Moe(3, 6, 2, form=mx(4), up=mx(8), shared=32, shared_form=q(8, 32)),
    Moe(8, 5, 2, form=mx(8), up=q(8, 32), shared=64, shared_form=mx(4), ids="one"),
    Moe(33, 5, 2, form=mx(8), up=q(8, 32), shared=32, act="gelu_tanh"),
    Moe(33, 7, 2, hidden=96, form=mx(4), shared=32, fused=True),
    Moe(100, 5, 2, form=mx(8), fused=True),
    Moe(2, 5, 2, hidden=128, inner=64, form=q(3, 64), shared=32, shared_form=q(5, 32)),
    Moe(33, 5, 2, hidden=96, form=q(5, 32), up=q(2, 32), shared=32, shared_form=q(3, 32)),
]

MOE_CASES = [
    *(route_case(*s) for s in ((1, 5, 1), (3, 7, 7), (2, 128, 8), (4, 256, 8), (9, 256, 10), (1, 512, 16))),
    route_case(33, 60, 4, renormalize=False),
    route_case(3, 128, 8, scaled=True),
    route_case(2, 40, 6, renormalize=False, scaled=True),
    *(route_case(4, 70, 8, kind=kind) for kind in ("ties", "equal", "large", "nan", "minus")),
    route_case(2, 256, 8, kind="large", renormalize=False),
    *map(gated_case, BLOCKS),
    *map(down_case, BLOCKS),
    down_case(BLOCKS[4], gate=False),
    down_case(BLOCKS[4], add=False),
    down_case(BLOCKS[7], add=False),
    down_case(BLOCKS[11], gate=False, add=False),
    down_case(BLOCKS[15], add=False),
    *(down_norm_case(m) for m in BLOCKS if m.rows in (1, 2, 8, 9)),
]
