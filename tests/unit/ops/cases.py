"""The op cases that tests and benches share: odd shapes for truth, the shapes of real models for speed.

A case makes its inputs from a seeded generator, has a float64 reference and encodes itself on an `Ops`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from saragossa import _core_test as core
from unit.ops import kv_codes, reference
from unit.ops.cases_moe import MOE_CASES
from unit.ops.harness import Ops, from_bf16, to_bf16

Array = NDArray[Any]
Arrays = dict[str, Array]


@dataclass(frozen=True)
class Case:
    """One op at one shape. `encode` returns the tensors that the op wrote, named as in `reference`."""

    op: str
    label: str
    make: Callable[[Generator], Arrays]
    reference: Callable[[Arrays], Arrays]
    encode: Callable[[Ops, Any, Arrays], dict[str, Any]]
    tolerance: float = 2e-6  # to the reference, as harness.error measures

    def __str__(self) -> str:
        return f"{self.op}-{self.label}"

    def inputs(self) -> Arrays:
        return self.make(np.random.default_rng(abs(hash_of(str(self)))))


def hash_of(text: str) -> int:
    """Stable between runs, which Python's own is not."""
    value = 0
    for byte in text.encode():
        value = (value * 131 + byte) % (1 << 62)
    return value


def normal(rng: Generator, *shape: int, scale: float = 1.0) -> Array:
    return (rng.standard_normal(shape) * scale).astype(np.float32)


# --- one tensor in, one out -----------------------------------------------------------------------------


def norm_case(op: str, rows: int, n: int, eps: float = 1e-6, scale: float = 1.0) -> Case:
    def make(rng: Generator) -> Arrays:
        return {"x": normal(rng, rows, n, scale=scale), "w": normal(rng, n), "y": normal(rng, rows, n)}

    def expected(a: Arrays) -> Arrays:
        normed = reference.rms_norm(a["x"], a["w"], eps)
        return {"y": normed + a["y"] if op == "norm_add" else normed}

    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        y = ops.f32(a["y"])
        getattr(enc, op)(y, ops.f32(a["x"]), ops.f32(a["w"]), eps)
        return {"y": y}

    return Case(op, f"{rows}x{n}-scale{scale:g}", make, expected, encode)


def norm_add_norm_case(rows: int, n: int, eps: float = 1e-6) -> Case:
    def make(rng: Generator) -> Arrays:
        return {
            "x": normal(rng, rows, n),
            "y": normal(rng, rows, n, scale=3.0),
            "w": normal(rng, n),
            "w2": normal(rng, n),
        }

    def expected(a: Arrays) -> Arrays:
        y = reference.rms_norm(a["x"], a["w"], eps) + a["y"]
        return {"y": y, "z": reference.rms_norm(y, a["w2"], eps)}

    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        y, z = ops.f32(a["y"]), ops.empty(rows, n)
        enc.norm_add_norm(y, z, ops.f32(a["x"]), ops.f32(a["w"]), ops.f32(a["w2"]), eps)
        return {"y": y, "z": z}

    return Case("norm_add_norm", f"{rows}x{n}", make, expected, encode)


def linear_case(rows: int, out: int, n: int) -> Case:
    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        y = ops.empty(rows, out)
        enc.linear(y, ops.f32(a["x"]), ops.dense(a["w"]), ops.f32(a["bias"]))
        return {"y": y}

    return Case(
        "linear",
        f"{rows}x{out}x{n}",
        lambda rng: {"x": normal(rng, rows, n), "w": normal(rng, out, n), "bias": normal(rng, out)},
        lambda a: {"y": a["x"].astype(np.float64) @ a["w"].astype(np.float64).T + a["bias"]},
        encode,
        tolerance=1e-5,  # of many products, one after another
    )


def linear_add_norm_case(rows: int, out: int, n: int, eps: float = 1e-6) -> Case:
    def make(rng: Generator) -> Arrays:
        return {
            "x": normal(rng, rows, n),
            "y": normal(rng, rows, out, scale=5.0),
            "w": normal(rng, out, n),
            "bias": normal(rng, out),
            "norm": normal(rng, out),
        }

    def expected(a: Arrays) -> Arrays:
        y = a["y"] + a["x"].astype(np.float64) @ a["w"].astype(np.float64).T + a["bias"]
        return {"y": y, "z": reference.rms_norm(y, a["norm"], eps)}

    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        y, z = ops.f32(a["y"]), ops.empty(rows, out)
        x, w, bias, norm = ops.f32(a["x"]), ops.dense(a["w"]), ops.f32(a["bias"]), ops.f32(a["norm"])
        enc.linear_add_norm(y, z, x, w, bias, norm, eps)
        return {"y": y, "z": z}

    return Case("linear_add_norm", f"{rows}x{out}x{n}", make, expected, encode)


def add_case(rows: int, n: int) -> Case:
    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        y = ops.empty(rows, n)
        enc.add(y, ops.f32(a["a"]), ops.f32(a["b"]))
        return {"y": y}

    return Case(
        "add",
        f"{rows}x{n}",
        lambda rng: {"a": normal(rng, rows, n), "b": normal(rng, rows, n)},
        lambda a: {"y": (a["a"] + a["b"]).astype(np.float64)},
        encode,
        tolerance=0.0,
    )


def act_case(act: str, rows: int, n: int, scale: float = 3.0) -> Case:
    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        y = ops.empty(rows, n)
        enc.act_mul(y, ops.f32(a["gate"]), ops.f32(a["up"]), act)
        return {"y": y}

    return Case(
        "act_mul",
        f"{act}-{rows}x{n}-scale{scale:g}",
        lambda rng: {"gate": normal(rng, rows, n, scale=scale), "up": normal(rng, rows, n)},
        lambda a: {"y": reference.activate(a["gate"], act) * a["up"]},
        encode,
    )


def softcap_case(rows: int, n: int, cap: float) -> Case:
    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        x = ops.f32(a["x"])
        enc.softcap(x, cap)
        return {"x": x}

    return Case(
        "softcap",
        f"{rows}x{n}-cap{cap:g}",
        lambda rng: {"x": normal(rng, rows, n, scale=20.0)},
        lambda a: {"x": cap * np.tanh(a["x"].astype(np.float64) / cap)},
        encode,
    )


def embed_case(dtype: str, vocab: int, n: int, scale: float = 1.0) -> Case:
    def make(rng: Generator) -> Arrays:
        table = normal(rng, vocab, n)
        ids = np.array([0, vocab - 1, -1, vocab, 3, 2**31 - 1, 3, -(2**31)], np.int32)
        return {"table": from_bf16(to_bf16(table)) if dtype == "bf16" else table, "ids": ids}

    def expected(a: Arrays) -> Arrays:
        y = np.full((len(a["ids"]), n), np.nan)
        for t, token in enumerate(a["ids"]):
            if 0 <= token < vocab:
                y[t] = a["table"][token].astype(np.float64) * scale
        return {"y": y}

    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        y = ops.f32(np.zeros((len(a["ids"]), n)))
        enc.embed(y, ops.dense(a["table"], dtype), ops.i32(a["ids"]), scale)
        return {"y": y}

    return Case("embed", f"{dtype}-{vocab}x{n}-scale{scale:g}", make, expected, encode)


def gather_case(rows: int, n: int, take: list[int]) -> Case:
    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        y = ops.empty(len(take), n)
        enc.gather_rows(y, ops.f32(a["x"]), ops.i32(take))
        return {"y": y}

    return Case(
        "gather_rows",
        f"{rows}x{n}-{len(take)}",
        lambda rng: {"x": normal(rng, rows, n)},
        lambda a: {"y": a["x"][take].astype(np.float64)},
        encode,
        tolerance=0.0,
    )


def rope_case(rows: int, heads: int, d: int, dims: int, start: int = 0, factor: float = 1.0) -> Case:
    inv_freq = (10000.0 ** (-np.arange(0, dims, 2) / dims)).astype(np.float32)
    positions = np.arange(start, start + rows, dtype=np.int32)

    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        x = ops.f32(a["x"])
        enc.rope(x, core.Rope(ops.f32(inv_freq), factor), ops.i32(positions))
        return {"x": x}

    return Case(
        "rope",
        f"{rows}x{heads}x{d}-dims{dims}-at{start}",
        lambda rng: {"x": normal(rng, rows, heads, d)},
        lambda a: {"x": reference.rope(a["x"], inv_freq, positions, factor)},
        encode,
    )


# --- the KV cache ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Paged:
    """Rows of several sequences over a cache of shuffled blocks; what no row may see holds NaN."""

    spans: tuple[tuple[int, int], ...]  # (first position, rows) of each sequence
    heads: int
    kv_heads: int
    d: int
    block: int = 256
    dtype: str = "bf16"
    behind: int | None = 1 << 30  # table entries behind every window; None: a block of another's, full of NaN

    @property
    def rows(self) -> int:
        return sum(n for _, n in self.spans)

    @property
    def max_blocks(self) -> int:
        return max((first + n + self.block - 1) // self.block for first, n in self.spans)

    def table(self) -> Array:
        """[sequences, max_blocks], no block twice, -1 behind the last."""
        table = np.full((len(self.spans), self.max_blocks), -1, np.int32)
        used = [
            (s, b) for s, (first, n) in enumerate(self.spans) for b in range(-(-(first + n) // self.block))
        ]
        order = np.random.default_rng(7).permutation(len(used))
        for (s, b), block in zip(used, order, strict=True):
            table[s, b] = block
        return table

    def blocks(self) -> int:
        return int(self.table().max()) + (2 if self.behind is None else 1)

    def positions(self) -> Array:
        return np.concatenate([np.arange(first, first + n) for first, n in self.spans]).astype(np.int32)

    def sequence(self) -> Array:
        return np.repeat(np.arange(len(self.spans)), [n for _, n in self.spans]).astype(np.int32)

    def paged(self, per_sequence: list[Array]) -> Array:
        """[n, kv_heads, d] of each sequence to [blocks, kv_heads, block, d]."""
        cache = np.full((self.blocks(), self.kv_heads, self.block, self.d), np.nan, np.float32)
        table = self.table()
        for s, x in enumerate(per_sequence):
            for p in range(len(x)):
                cache[table[s, p // self.block], :, p % self.block] = x[p]
        return cache

    def appended(self, x: Array) -> Array:
        """x [rows, kv_heads, d] at the places of the rows, 7 elsewhere: [blocks, kv_heads, block, d]."""
        cache, table = np.full((self.blocks(), self.kv_heads, self.block, self.d), 7.0), self.table()
        for t, (position, s) in enumerate(zip(self.positions(), self.sequence(), strict=True)):
            cache[table[s, position // self.block], :, position % self.block] = x[t]
        return cache

    def rounded(self, x: Array) -> Array:
        """As a cache of the dtype gives it back."""
        if self.dtype == "u8":
            return kv_codes.decode(*kv_codes.encode(x))
        return from_bf16(to_bf16(x)) if self.dtype == "bf16" else x

    def layer(self, ops: Ops, k: Array, v: Array) -> Any:
        if self.dtype == "u8":
            (k, k_scales), (v, v_scales) = kv_codes.encode(k), kv_codes.encode(v)
            return core.KvLayer(ops.u8(k), ops.u8(v), ops.bf16_bits(k_scales), ops.bf16_bits(v_scales))
        put = ops.bf16 if self.dtype == "bf16" else ops.f32
        return core.KvLayer(put(k), put(v))

    def contents(self, kv: Any) -> dict[str, Any]:
        """The tensors of a layer."""
        out = {"cache_k": kv.k, "cache_v": kv.v}
        return {**out, "k_scales": kv.k_scales, "v_scales": kv.v_scales} if self.dtype == "u8" else out

    def expected_contents(self, k: Array, v: Array) -> Arrays:
        """What they hold, of the values in the cache's layout."""
        if self.dtype != "u8":
            return {"cache_k": self.rounded(k), "cache_v": self.rounded(v)}
        (k, k_scales), (v, v_scales) = kv_codes.encode(k), kv_codes.encode(v)
        scales = {"k_scales": from_bf16(k_scales), "v_scales": from_bf16(v_scales)}
        return {"cache_k": k, "cache_v": v, **scales}

    def batch(self, ops: Ops, window: int = 0) -> Any:
        """Blocks that no window reaches are given back: their entries hold what would crash a reader."""
        table = self.table()
        for s, (first, _) in enumerate(self.spans):
            if window:
                behind = self.blocks() - 1 if self.behind is None else self.behind
                table[s, : max(0, first - window + 1) // self.block] = behind
        return core.Batch(
            ids=ops.i32(np.zeros(self.rows)),
            positions=ops.i32(self.positions()),
            sequence=ops.i32(self.sequence()),
            block_table=ops.i32(table),
            max_keys=int(self.positions().max()) + 1,
            runs=[n for _, n in self.spans],
        )


def attention_case(
    label: str, p: Paged, *, window: int = 0, softcap: float = 0.0, spread: float = 1.0
) -> Case:
    scale = p.d**-0.5

    def make(rng: Generator) -> Arrays:
        out = {"q": normal(rng, p.rows, p.heads, p.d, scale=spread)}
        for s, (first, n) in enumerate(p.spans):
            for name in ("k", "v"):
                out[f"{name}{s}"] = normal(rng, first + n, p.kv_heads, p.d)
        return out

    def expected(a: Arrays) -> Arrays:
        y, row = np.empty((p.rows, p.heads, p.d)), 0
        for s, (first, n) in enumerate(p.spans):
            positions = np.arange(first, first + n)
            y[row : row + n] = reference.attention(
                a["q"][row : row + n],
                p.rounded(a[f"k{s}"]),
                p.rounded(a[f"v{s}"]),
                positions,
                scale=scale,
                window=window,
                softcap=softcap,
            )
            row += n
        return {"y": y}

    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        y = ops.empty(p.rows, p.heads, p.d)
        cache = [p.paged([a[f"{name}{s}"] for s in range(len(p.spans))]) for name in ("k", "v")]
        if window:  # what lies before every window may be freed: nobody reads it
            for s, (first, _) in enumerate(p.spans):
                for position in range(max(0, first - window + 1)):
                    for c in cache:
                        c[p.table()[s, position // p.block], :, position % p.block] = np.nan
        params = core.AttentionParams(scale=scale, window=window, softcap=softcap)
        enc.attention(y, ops.f32(a["q"]), p.layer(ops, *cache), p.batch(ops, window), params)
        return {"y": y}

    return Case("attention", label, make, expected, encode, tolerance=1e-5)


def append_case(label: str, p: Paged) -> Case:
    def make(rng: Generator) -> Arrays:
        return {name: normal(rng, p.rows, p.kv_heads, p.d) for name in ("k", "v")}

    def expected(a: Arrays) -> Arrays:
        return p.expected_contents(p.appended(a["k"]), p.appended(a["v"]))

    def encode(ops: Ops, enc: Any, a: Arrays) -> dict[str, Any]:
        cache = np.full((p.blocks(), p.kv_heads, p.block, p.d), 7.0)
        kv = p.layer(ops, cache, cache)
        enc.kv_append(kv, ops.f32(a["k"]), ops.f32(a["v"]), p.batch(ops))
        return p.contents(kv)

    return Case("kv_append", label, make, expected, encode, tolerance=0.0)


ATTENTION = [
    attention_case("decode-short", Paged(((4, 1),), 4, 2, 64)),
    attention_case("decode-first", Paged(((0, 1),), 4, 4, 16)),
    attention_case("decode-blocks", Paged(((700, 1),), 16, 8, 128)),
    attention_case("decode-edge", Paged(((255, 1),), 8, 8, 64)),
    attention_case("decode-next", Paged(((256, 1),), 8, 8, 64)),
    attention_case("decode-group3", Paged(((90, 1),), 9, 3, 64)),
    attention_case("decode-group7", Paged(((90, 2),), 14, 2, 80)),
    attention_case("decode-rows8", Paged(((509, 8),), 8, 2, 96)),
    attention_case("decode-odd", Paged(((77, 3),), 6, 2, 72, block=64)),
    attention_case("decode-tail", Paged(((77, 2),), 5, 1, 20, block=16)),
    attention_case("decode-window", Paged(((1000, 2),), 4, 1, 256), window=512),
    attention_case("decode-window-small", Paged(((70, 4),), 4, 2, 64, block=32), window=5),
    attention_case("decode-softcap", Paged(((300, 1),), 4, 2, 64), softcap=5.0, spread=4.0),
    attention_case("decode-f32", Paged(((300, 2),), 4, 2, 64, dtype="f32")),
    attention_case("decode-batch", Paged(((3, 1), (600, 2), (255, 1)), 8, 4, 64)),
    attention_case("prefill", Paged(((0, 300),), 4, 2, 64)),
    attention_case("prefill-continued", Paged(((250, 77),), 4, 2, 128)),
    attention_case("prefill-9", Paged(((0, 9),), 3, 3, 80)),
    attention_case("prefill-group8", Paged(((30, 40),), 8, 1, 256)),
    attention_case("prefill-odd", Paged(((13, 50),), 6, 2, 72, block=16)),
    attention_case("prefill-tail", Paged(((5, 21),), 5, 1, 20, block=64)),
    attention_case("prefill-window", Paged(((100, 200),), 4, 2, 64), window=70),
    attention_case("prefill-window-small", Paged(((0, 90),), 4, 2, 64, block=24), window=3),
    attention_case("prefill-window-odd", Paged(((205, 60),), 4, 2, 32, block=20), window=24),
    attention_case("prefill-softcap", Paged(((0, 100),), 4, 2, 64), softcap=5.0, spread=4.0),
    attention_case("prefill-f32", Paged(((64, 70),), 4, 2, 64, dtype="f32")),
    attention_case("prefill-batch", Paged(((0, 33), (255, 12), (7, 1), (0, 140)), 4, 2, 64)),
]

CASES = [
    *(
        norm_case(op, r, n)
        for op in ("rms_norm", "norm_add")
        for r, n in ((1, 1), (3, 7), (5, 64), (2, 1027), (70, 576))
    ),
    *(norm_add_norm_case(r, n) for r, n in ((1, 1), (3, 7), (2, 1027), (9, 640), (2, 4608))),
    *(linear_add_norm_case(*s) for s in ((1, 1, 3), (3, 7, 20), (8, 576, 64), (2, 1027, 40), (20, 96, 64))),
    # Few rows and outputs, many inputs: what a GPU splits.
    *(linear_case(*s) for s in ((9, 70, 1040), (17, 130, 517), (32, 1, 2048), (33, 70, 1040))),
    linear_add_norm_case(20, 96, 1024),
    norm_case("rms_norm", 1, 4608),
    norm_case("rms_norm", 2, 100, scale=1e-4),
    norm_case("rms_norm", 2, 100, scale=1e4),
    *(add_case(r, n) for r, n in ((1, 1), (3, 13), (97, 1001))),
    *(act_case(act, r, n) for act in ("silu", "gelu_tanh") for r, n in ((1, 3), (7, 129), (40, 1536))),
    act_case("silu", 3, 101, scale=60.0),
    act_case("gelu_tanh", 3, 101, scale=60.0),
    softcap_case(3, 1001, 30.0),
    softcap_case(1, 5, 50.0),
    embed_case("f32", 11, 65),
    embed_case("bf16", 40, 576, scale=24.0),
    gather_case(9, 33, [8, 0, 0, 3]),
    rope_case(1, 3, 64, 64, start=1000),
    rope_case(5, 2, 80, 80, start=3, factor=1.2),
    rope_case(4, 2, 96, 24),
    rope_case(3, 2, 20, 14, start=250),
    rope_case(300, 4, 128, 128),
    append_case("one", Paged(((5, 1),), 2, 2, 64)),
    append_case("crossing", Paged(((250, 20),), 2, 2, 20)),
    append_case("f32", Paged(((15, 9), (0, 3)), 3, 3, 33, block=16, dtype="f32")),
    append_case("many", Paged(((0, 513),), 4, 4, 128)),
    *ATTENTION,
    *(Case(m.op, m.label, m.make, m.reference, m.encode, m.tolerance) for m in MOE_CASES),
]

# Shapes of Qwen3-0.6B: for bench/ops.
BENCH = [
    norm_case("rms_norm", 1, 1024),
    norm_case("norm_add", 512, 1024),
    act_case("silu", 1, 3072),
    act_case("silu", 512, 3072),
    rope_case(512, 16, 128, 128),
    attention_case("decode-128", Paged(((127, 1),), 16, 8, 128)),
    attention_case("decode-2048", Paged(((2047, 1),), 16, 8, 128)),
    attention_case("prefill-512", Paged(((0, 512),), 16, 8, 128)),
]
