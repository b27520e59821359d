"""A fused op equals its decomposition, and the switch takes the decomposition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from saragossa import _core_test as core
from unit.ops.cases import Paged, normal
from unit.ops.harness import ISAS, Array, Ops, error, ops_of, read

Encode = Callable[[Ops, Any], dict[str, Any]]


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def linear_group(rows: int, outs: tuple[int, ...], n: int) -> Encode:
    def encode(ops: Ops, enc: Any) -> dict[str, Any]:
        r = rng()
        x = ops.f32(normal(r, rows, n))
        ys = {f"y{o}": ops.empty(rows, o) for o in outs}
        parts = [
            core.LinearOut(y, ops.dense(normal(r, o, n)), ops.f32(normal(r, o)))
            for o, y in zip(outs, ys.values(), strict=True)
        ]
        enc.linear_group(x, parts)
        return ys

    return encode


def linear_add(rows: int, out: int, n: int) -> Encode:
    def encode(ops: Ops, enc: Any) -> dict[str, Any]:
        r = rng()
        y = ops.f32(normal(r, rows, out))
        enc.linear_add(y, ops.f32(normal(r, rows, n)), ops.dense(normal(r, out, n)), ops.f32(normal(r, out)))
        return {"y": y}

    return encode


def linear_gated(rows: int, out: int, n: int, act: str) -> Encode:
    def encode(ops: Ops, enc: Any) -> dict[str, Any]:
        r = rng()
        y = ops.empty(rows, out)
        x, gate, up = ops.f32(normal(r, rows, n)), ops.dense(normal(r, out, n)), ops.dense(normal(r, out, n))
        enc.linear_gated(y, x, gate, up, act, ops.f32(normal(r, out)), ops.f32(normal(r, out)))
        return {"y": y}

    return encode


def norm_add(rows: int, n: int) -> Encode:
    def encode(ops: Ops, enc: Any) -> dict[str, Any]:
        r = rng()
        y = ops.f32(normal(r, rows, n))
        enc.norm_add(y, ops.f32(normal(r, rows, n)), ops.f32(normal(r, n)), 1e-6)
        return {"y": y}

    return encode


def norm_add_norm(rows: int, n: int) -> Encode:
    def encode(ops: Ops, enc: Any) -> dict[str, Any]:
        r = rng()
        y, z = ops.f32(normal(r, rows, n)), ops.empty(rows, n)
        enc.norm_add_norm(
            y, z, ops.f32(normal(r, rows, n)), ops.f32(normal(r, n)), ops.f32(normal(r, n)), 1e-6
        )
        return {"y": y, "z": z}

    return encode


def qk_rope_append(p: Paged, dims: int, *, norms: bool) -> Encode:
    def encode(ops: Ops, enc: Any) -> dict[str, Any]:
        r = rng()
        q = ops.f32(normal(r, p.rows, p.heads, p.d))
        k, v = (ops.f32(normal(r, p.rows, p.kv_heads, p.d)) for _ in range(2))
        cache = np.zeros((p.blocks(), p.kv_heads, p.block, p.d))
        kv = p.layer(ops, cache, cache)
        norm = core.QkNorm(ops.f32(normal(r, p.d)), ops.f32(normal(r, p.d)), 1e-6) if norms else core.QkNorm()
        inv_freq = (1e4 ** (-np.arange(0, dims, 2) / dims)).astype(np.float32)
        enc.qk_rope_append(q, k, v, norm, core.Rope(ops.f32(inv_freq), 1.1), kv, p.batch(ops))
        return {"q": q, "k": k, "cache_k": kv.k, "cache_v": kv.v}

    return encode


EXACT: dict[str, Encode] = {
    "norm_add-1x576": norm_add(1, 576),
    "norm_add-70x101": norm_add(70, 101),
    "norm_add_norm-1x640": norm_add_norm(1, 640),
    "norm_add_norm-70x101": norm_add_norm(70, 101),
    "qk_rope_append-decode": qk_rope_append(Paged(((300, 1),), 4, 2, 64), 64, norms=True),
    "qk_rope_append-plain": qk_rope_append(Paged(((20, 3),), 6, 3, 20, block=16), 12, norms=False),
    "qk_rope_append-prefill": qk_rope_append(Paged(((200, 200), (0, 4)), 4, 2, 128), 128, norms=True),
}
ROUNDED: dict[str, Encode] = {
    "linear_group-1x(8,5)x64": linear_group(1, (8, 5), 64),
    "linear_group-9x(33,16,1)x96": linear_group(9, (33, 16, 1), 96),
    "linear_group-2x(7,300,5,1)x96": linear_group(2, (7, 300, 5, 1), 96),
    "linear_add-1x17x64": linear_add(1, 17, 64),
    "linear_add-20x64x128": linear_add(20, 64, 128),
    "linear_gated-1x33x64-silu": linear_gated(1, 33, 64, "silu"),
    "linear_gated-12x40x64-gelu": linear_gated(12, 40, 64, "gelu_tanh"),
}


def both_forms(isa: str, encode: Encode) -> tuple[dict[str, Array], dict[str, Array], list[str], list[str]]:
    results, names = [], []
    for fused in (True, False):
        ops = ops_of(isa, fused=fused)
        enc = ops.begin()
        out = encode(ops, enc)
        names.append([r.name for r in enc.records()])
        enc.submit().wait()
        results.append(read(out))
    return results[0], results[1], names[0], names[1]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("case", EXACT)
def test_fused_equals_parts_bit_for_bit(case: str, isa: str) -> None:
    fused, parts, fused_names, part_names = both_forms(isa, EXACT[case])
    assert fused_names == [case.split("-")[0]]
    assert len(part_names) > 1
    assert fused_names[0] not in part_names
    for name in fused:
        assert fused[name].tobytes() == parts[name].tobytes(), name


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("case", ROUNDED)
def test_fused_equals_parts(case: str, isa: str) -> None:
    fused, parts, fused_names, part_names = both_forms(isa, ROUNDED[case])
    assert fused_names == [case.split("-")[0]]
    assert fused_names[0] not in part_names
    for name in fused:
        assert error(fused[name], parts[name]) < 2e-6, name
