"""Op cases around attention: values that are keys, normed values, caches of others, gates, norm groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator

from saragossa import _core_test as core
from unit.ops import reference
from unit.ops.cases import Arrays, Case, Paged, append_case, attention_case, normal, rope_case
from unit.ops.harness import Ops

EPS = 1e-6


# --- element by element -----------------------------------------------------------------------------------


def scale_case(rows: int, n: int, factor: float) -> Case:
    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        x = ops.f32(a["x"])
        enc.scale(x, factor)
        return {"x": x}

    return Case(
        "scale",
        f"{rows}x{n}-by{factor:g}",
        lambda rng: {"x": normal(rng, rows, n)},
        lambda a: {"x": a["x"].astype(np.float64) * np.float32(factor)},
        encode,
        tolerance=1e-6,
    )


def copy_case(rows: int, n: int) -> Case:
    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        y = ops.empty(rows, n)
        enc.copy(y, ops.f32(a["x"]))
        return {"y": y}

    return Case(
        "copy",
        f"{rows}x{n}",
        lambda rng: {"x": normal(rng, rows, n)},
        lambda a: {"y": a["x"].astype(np.float64)},
        encode,
        tolerance=0.0,
    )


def sigmoid_mul_case(rows: int, n: int, spread: float = 3.0, *, in_place: bool = False) -> Case:
    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        x = ops.f32(a["x"])
        y = x if in_place else ops.empty(rows, n)
        enc.sigmoid_mul(y, x, ops.f32(a["gate"]))
        return {"y": y}

    return Case(
        "sigmoid_mul",
        f"{rows}x{n}-spread{spread:g}" + ("-in-place" if in_place else ""),
        lambda rng: {"x": normal(rng, rows, n), "gate": normal(rng, rows, n, scale=spread)},
        lambda a: {"y": a["x"] * reference.sigmoid(a["gate"])},
        encode,
    )


# --- norms ------------------------------------------------------------------------------------------------


def per_layer_inputs_case(layers: int, rows: int, n: int) -> Case:
    def make(rng: Generator) -> Arrays:
        return {
            "projected": normal(rng, rows, layers * n, scale=4.0),
            "embedded": normal(rng, rows, layers * n),
            "w": normal(rng, n),
        }

    def expected(a: Arrays) -> Arrays:
        projected, embedded = (a[k].reshape(rows, layers, n) for k in ("projected", "embedded"))
        y = (reference.rms_norm(projected, a["w"], EPS) + embedded) / np.sqrt(2)
        return {"y": y.transpose(1, 0, 2)}

    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        y = ops.empty(layers, rows, n)
        enc.per_layer_inputs(y, ops.f32(a["projected"]), ops.f32(a["embedded"]), ops.f32(a["w"]), EPS)
        return {"y": y}

    return Case("per_layer_inputs", f"{layers}x{rows}x{n}", make, expected, encode)


def norm_group_case(rows: int, n: int, outs: int) -> Case:
    def make(rng: Generator) -> Arrays:
        return {"x": normal(rng, rows, n), **{f"w{i}": normal(rng, n) for i in range(outs)}}

    def expected(a: Arrays) -> Arrays:
        return {f"y{i}": reference.rms_norm(a["x"], a[f"w{i}"], EPS) for i in range(outs)}

    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        ys = {f"y{i}": ops.empty(rows, n) for i in range(outs)}
        parts = [core.NormOut(y, ops.f32(a[f"w{i}"])) for i, y in enumerate(ys.values())]
        enc.norm_group(ops.f32(a["x"]), parts, EPS)
        return ys

    return Case("norm_group", f"{outs}-of-{rows}x{n}", make, expected, encode)


def scaled_norms_case(rows: int, n: int, factor: float) -> Case:
    def make(rng: Generator) -> Arrays:
        return {
            "x": normal(rng, rows, n),
            "y": normal(rng, rows, n, scale=3.0),
            "w": normal(rng, n),
            "w2": normal(rng, n),
        }

    def expected(a: Arrays) -> Arrays:
        y = (reference.rms_norm(a["x"], a["w"], EPS) + a["y"]) * np.float32(factor)
        return {"y": y, "z": reference.rms_norm(y, a["w2"], EPS)}

    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        y, z = ops.f32(a["y"]), ops.empty(rows, n)
        enc.norm_add_norm(y, z, ops.f32(a["x"]), ops.f32(a["w"]), ops.f32(a["w2"]), EPS, factor)
        return {"y": y, "z": z}

    return Case("norm_add_norm", f"{rows}x{n}-by{factor:g}", make, expected, encode, tolerance=4e-6)


def linear_group_case(rows: int, n: int, outs: tuple[int, ...]) -> Case:
    def make(rng: Generator) -> Arrays:
        return {"x": normal(rng, rows, n), **{f"w{i}": normal(rng, o, n) for i, o in enumerate(outs)}}

    def expected(a: Arrays) -> Arrays:
        x = a["x"].astype(np.float64)
        return {f"y{i}": x @ a[f"w{i}"].astype(np.float64).T for i in range(len(outs))}

    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        ys = {f"y{i}": ops.empty(rows, o) for i, o in enumerate(outs)}
        parts = [core.LinearOut(y, ops.dense(a[f"w{i}"])) for i, y in enumerate(ys.values())]
        enc.linear_group(ops.f32(a["x"]), parts)
        return ys

    label = f"{rows}x{n}-to-" + "-".join(map(str, outs))
    return Case("linear_group", label, make, expected, encode, tolerance=1e-5)


# --- into the cache ---------------------------------------------------------------------------------------


def qk_rope_append_case(
    label: str, p: Paged, dims: int, *, norms: str = "qk", keys: bool = True, values: bool = True
) -> Case:
    """norms: which of q, k and v have one. Without values they are the keys as they come."""
    inv_freq = (1e4 ** (-np.arange(0, dims, 2) / dims)).astype(np.float32)

    def make(rng: Generator) -> Arrays:
        out = {"q": normal(rng, p.rows, p.heads, p.d)}
        for name in ("k", "v"):
            out[name] = normal(rng, p.rows, p.kv_heads, p.d, scale=2.0)
            out[f"w{name}"] = normal(rng, p.d)
        return {**out, "wq": normal(rng, p.d)}

    def expected(a: Arrays) -> Arrays:
        x = {"q": a["q"], "k": a["k"], "v": a["v"] if values else a["k"]}
        x = {k: reference.rms_norm(v, a[f"w{k}"], EPS) if k in norms else v for k, v in x.items()}
        for name in ("q", "k"):
            x[name] = reference.rope(x[name], inv_freq, p.positions(), 1.1)
        if not keys:
            return {"q": x["q"]}
        return {"q": x["q"], **p.expected_contents(p.appended(x["k"]), p.appended(x["v"]))}

    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        cache = np.full((p.blocks(), p.kv_heads, p.block, p.d), 7.0)
        kv, q = p.layer(ops, cache, cache), ops.f32(a["q"])
        w = {name: ops.f32(a[f"w{name}"]) if name in norms else core.Tensor() for name in "qkv"}
        k, v = (ops.f32(a[name]) if there else None for name, there in (("k", keys), ("v", values)))
        norm = core.QkNorm(w["q"], w["k"], EPS, w["v"])
        enc.qk_rope_append(q, k, v, norm, core.Rope(ops.f32(inv_freq), 1.1), kv, p.batch(ops))
        return {"q": q, **(p.contents(kv) if keys else {})}

    # A value of a bf16 or u8 cache may round the other way.
    tolerance = 2**-6 if p.dtype != "f32" and keys else 3e-6
    return Case("qk_rope_append", label, make, expected, encode, tolerance)


def attention_gated_case(label: str, p: Paged, *, window: int = 0) -> Case:
    plain = attention_case(label, p, window=window)

    def make(rng: Generator) -> Arrays:
        return {"gate": normal(rng, p.rows, p.heads, p.d, scale=2.0), **plain.make(rng)}

    def expected(a: Arrays) -> Arrays:
        return {"y": plain.reference(a)["y"] * reference.sigmoid(a["gate"])}

    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        class Gated:
            """The plain case encodes itself on it."""

            @staticmethod
            def attention(y: Any, q: Any, kv: Any, batch: Any, params: Any) -> None:
                enc.attention_gated(y, q, ops.f32(a["gate"]), kv, batch, params)

        return plain.encode(ops, Gated, a)

    return Case("attention_gated", label, make, expected, encode, plain.tolerance)


# Channels of a head that models have, beside 64 and 128, and how many query heads share a kv head.
HEADS = [
    attention_case(f"{form}-head{d}-group{group}", Paged(spans, group * kv, kv, d, block=64))
    for d, group, kv in (
        (80, 1, 3),
        (80, 16, 1),
        (96, 3, 2),
        (96, 8, 1),
        (192, 6, 1),
        (192, 1, 2),
        (256, 8, 2),
        (256, 6, 1),
        (256, 16, 1),
        (512, 1, 2),
        (512, 3, 1),
        (512, 8, 2),
        (512, 16, 1),
    )
    for form, spans in (("decode", ((300, 1),)), ("prefill", ((50, 11),)))
]

# Windows beside blocks of 16: smaller, equal, larger. `first` is a position whose window begins with the last
# token of a block, with the first of the next, and far ones. What lies behind is given back: no kernel may
# look there.
WINDOWS = [
    attention_case(
        f"window-{form}-{window}-at{first}-{'stale' if behind is None else behind}",
        Paged(((first, rows), (window // 2, 1)), 4, 2, 64, block=16, behind=behind),
        window=window,
    )
    for window in (7, 16, 33)
    for first, behind in ((62 + window, -1), (63 + window, None), (2000, -1), (2005, None))
    for form, rows in (("decode", 2), ("prefill", 20))
]

# The end of 32768 tokens, beside a short neighbour.
FAR = [
    attention_case("far-decode", Paged(((32_767, 1), (3, 1)), 3, 1, 64), spread=3.0),
    # A row's sums have 32768 terms.
    replace(attention_case("far-prefill", Paged(((32_764, 4),), 1, 1, 32), spread=3.0), tolerance=4e-5),
    qk_rope_append_case("far", Paged(((32_764, 8), (0, 1)), 4, 2, 64), 32),
]

# A cache of u8: whole and partial groups of channels, every form of attention.
CODES = [
    append_case("u8", Paged(((250, 9),), 2, 2, 64, dtype="u8")),
    append_case("u8-groups", Paged(((3, 5), (0, 2)), 3, 3, 200, block=16, dtype="u8")),
    append_case("u8-odd", Paged(((14, 4),), 2, 2, 33, block=16, dtype="u8")),
    attention_case("u8-decode", Paged(((700, 1),), 16, 8, 128, dtype="u8")),
    attention_case("u8-decode-odd", Paged(((77, 3),), 4, 2, 33, block=16, dtype="u8")),
    attention_case("u8-decode-head20", Paged(((77, 3),), 5, 1, 20, block=16, dtype="u8")),
    attention_case("u8-decode-group8", Paged(((300, 2),), 8, 1, 256, dtype="u8")),
    attention_case("u8-decode-window", Paged(((500, 2),), 4, 2, 80, block=64, dtype="u8"), window=70),
    attention_case("u8-prefill", Paged(((50, 40),), 4, 2, 64, dtype="u8")),
    attention_case("u8-prefill-odd", Paged(((13, 50),), 6, 2, 33, block=16, dtype="u8")),
    attention_case("u8-prefill-head72", Paged(((13, 50),), 6, 2, 72, block=64, dtype="u8"), window=24),
    attention_case("u8-prefill-512", Paged(((20, 10),), 8, 1, 512, dtype="u8")),
    attention_gated_case("u8", Paged(((20, 10), (90, 1)), 8, 1, 256, dtype="u8")),
    qk_rope_append_case("u8", Paged(((250, 9),), 6, 2, 128, dtype="u8"), 128),
    qk_rope_append_case(
        "u8-keys-as-values", Paged(((5, 3),), 8, 1, 96, dtype="u8"), 24, norms="qkv", values=False
    ),
    qk_rope_append_case("u8-v-normed", Paged(((5, 3),), 4, 2, 33, dtype="u8"), 20, norms="v"),
]

KV = Paged(((250, 9), (3, 1)), 6, 2, 40, dtype="f32")
CASES = [
    *(scale_case(r, n, f) for r, n, f in ((1, 1, 0.5), (3, 13, -1.7), (33, 1001, 0.0625))),
    *(copy_case(r, n) for r, n in ((1, 1), (3, 13), (33, 1001))),
    *(sigmoid_mul_case(r, n) for r, n in ((1, 1), (3, 13), (33, 1001))),
    sigmoid_mul_case(3, 101, spread=60.0),
    sigmoid_mul_case(5, 70, in_place=True),
    *(per_layer_inputs_case(*s) for s in ((1, 1, 3), (3, 2, 20), (5, 9, 64), (2, 3, 257))),
    *(norm_group_case(*s) for s in ((1, 1, 1), (3, 7, 2), (2, 1027, 3), (9, 640, 3), (2, 4608, 2))),
    *(scaled_norms_case(*s) for s in ((1, 1, 0.3), (3, 7, 2.0), (9, 640, 0.0625), (2, 4608, 1.3))),
    *(linear_group_case(*s) for s in ((1, 64, (8, 5, 3, 2)), (9, 96, (33, 16, 1, 40)))),
    qk_rope_append_case("all-norms", KV, 40, norms="qkv"),
    qk_rope_append_case("v-normed", KV, 16, norms="v"),
    qk_rope_append_case("keys-as-values", KV, 40, norms="qk", values=False),
    qk_rope_append_case("normed-keys-as-values", KV, 24, norms="qkv", values=False),
    qk_rope_append_case("keys-as-values-plain", KV, 24, norms="", values=False),
    qk_rope_append_case("query-alone", KV, 40, norms="q", keys=False, values=False),
    qk_rope_append_case("query-alone-plain", KV, 10, norms="", keys=False, values=False),
    qk_rope_append_case("bf16", Paged(((70, 3),), 8, 1, 512), 128, norms="qkv", values=False),
    qk_rope_append_case("odd", Paged(((14, 4),), 3, 3, 33, block=16, dtype="f32"), 20, norms="qkv"),
    qk_rope_append_case("prompt", Paged(((0, 70),), 4, 2, 256), 64, norms="qk"),
    attention_gated_case("decode", Paged(((90, 1),), 6, 2, 64)),
    attention_gated_case("decode-splits", Paged(((700, 2),), 8, 1, 256)),
    attention_gated_case("decode-odd", Paged(((77, 3),), 4, 2, 33, block=16)),
    attention_gated_case("prefill", Paged(((20, 40),), 6, 1, 64)),
    attention_gated_case("prefill-256", Paged(((20, 12),), 16, 2, 256)),
    attention_gated_case("prefill-f32", Paged(((0, 30),), 4, 2, 20, dtype="f32")),
    attention_gated_case("batch", Paged(((0, 33), (255, 12), (7, 1)), 4, 2, 64)),
    attention_gated_case("window", Paged(((100, 60), (500, 1)), 4, 2, 64, block=64), window=33),
    *HEADS,
    *CODES,
    *WINDOWS,
    *FAR,
    *(rope_case(3, 2, 64, 64, start=start) for start in (32_766, 131_069)),
]
