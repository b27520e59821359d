"""A fused op equals its decomposition, and the switch takes the decomposition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from saragossa import _core_test as core
from unit.ops.cases import Case, Paged, normal
from unit.ops.cases_attention import attention_gated_case, norm_group_case, qk_rope_append_case
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


def norm_add_norm(rows: int, n: int, factor: float = 1.0) -> Encode:
    def encode(ops: Ops, enc: Any) -> dict[str, Any]:
        r = rng()
        y, z = ops.f32(normal(r, rows, n)), ops.empty(rows, n)
        enc.norm_add_norm(
            y, z, ops.f32(normal(r, rows, n)), ops.f32(normal(r, n)), ops.f32(normal(r, n)), 1e-6, factor
        )
        return {"y": y, "z": z}

    return encode


def of_case(case: Case) -> Encode:
    return lambda ops, enc: case.encode(ops, enc, case.inputs())


def qk_rope_append(p: Paged, dims: int, norms: str, *, keys: bool = True, values: bool = True) -> Encode:
    return of_case(qk_rope_append_case("fused", p, dims, norms=norms, keys=keys, values=values))


EXACT: dict[str, Encode] = {
    "norm_add-1x576": norm_add(1, 576),
    "norm_add-70x101": norm_add(70, 101),
    "norm_add_norm-1x640": norm_add_norm(1, 640),
    "norm_add_norm-70x101": norm_add_norm(70, 101),
    "norm_add_norm-scaled": norm_add_norm(3, 640, 0.37),
    "norm_group-3": of_case(norm_group_case(5, 640, 3)),
    "norm_group-2": of_case(norm_group_case(70, 101, 2)),
    "qk_rope_append-decode": qk_rope_append(Paged(((300, 1),), 4, 2, 64), 64, "qk"),
    "qk_rope_append-plain": qk_rope_append(Paged(((20, 3),), 6, 3, 20, block=16), 12, ""),
    "qk_rope_append-prefill": qk_rope_append(Paged(((200, 200), (0, 4)), 4, 2, 128), 128, "qk"),
    "qk_rope_append-v-norm": qk_rope_append(Paged(((70, 5),), 4, 2, 64), 32, "qkv"),
    "qk_rope_append-keys-as-values": qk_rope_append(Paged(((70, 5),), 8, 1, 512), 128, "qkv", values=False),
    "qk_rope_append-query": qk_rope_append(Paged(((70, 5),), 4, 2, 64), 64, "q", keys=False, values=False),
    "qk_rope_append-u8": qk_rope_append(Paged(((70, 5),), 4, 2, 200, dtype="u8"), 64, "qkv", values=False),
    "attention_gated-decode": of_case(attention_gated_case("fused", Paged(((300, 2),), 6, 2, 80))),
    "attention_gated-prefill": of_case(attention_gated_case("fused", Paged(((9, 40),), 8, 1, 256))),
}
ROUNDED: dict[str, Encode] = {
    "linear_group-1x(8,5)x64": linear_group(1, (8, 5), 64),
    "linear_group-9x(33,16,1)x96": linear_group(9, (33, 16, 1), 96),
    "linear_group-2x(7,300,5,1)x96": linear_group(2, (7, 300, 5, 1), 96),
    "linear_group-1x(8,5,3,2)x64": linear_group(1, (8, 5, 3, 2), 64),
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
