"""Every op refuses shapes and dtypes that do not fit, with the op, what was found and what is expected."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from saragossa import _core_test as core
from unit.ops.harness import Ops, ops_of


def f32(o: Ops, *shape: int) -> Any:
    return o.f32(np.zeros(shape))


def i32(o: Ops, *shape: int) -> Any:
    return o.i32(np.zeros(shape))


def kv(o: Ops, heads: int = 2, d: int = 8, dtype: str = "f32") -> Any:
    return core.KvLayer(*(o.device.zeros(dtype, [1, heads, 16, d]) for _ in range(2)))


def codes(o: Ops, d: int, scales: int) -> Any:
    shapes = ((("u8", d),) * 2) + ((("bf16", scales),) * 2)
    return core.KvLayer(*(o.device.zeros(dtype, [1, 2, 16, n]) for dtype, n in shapes))


def batch(o: Ops, rows: int = 3, runs: tuple[int, ...] = ()) -> Any:
    return core.Batch(
        ids=i32(o, rows),
        positions=i32(o, rows),
        sequence=i32(o, rows),
        block_table=i32(o, 1, 1),
        max_keys=1,
        runs=runs,
    )


def params(o: Ops, rows: int = 1) -> Any:
    return o.device.zeros("u8", [rows, 48])


def weight(o: Ops) -> Any:
    return o.dense(np.zeros((4, 8)))


def norm_over_input(o: Ops, e: Any) -> None:
    x = f32(o, 2, 8)
    e.norm_group(x, [core.NormOut(x, f32(o, 8))], 1e-6)


def append(o: Ops, e: Any, *, k: Any, v: Any, norm: Any = None) -> None:
    q, rope = f32(o, 3, 2, 8), core.Rope(f32(o, 4))
    e.qk_rope_append(q, k, v, norm or core.QkNorm(), rope, kv(o), batch(o))


A = core.AttentionParams
BAD: dict[str, tuple[Callable[[Ops, Any], None], str]] = {
    "embed ids": (
        lambda o, e: e.embed(f32(o, 2, 8), o.dense(np.zeros((4, 8))), f32(o, 2)),
        "embed: ids must be i32 [T]",
    ),
    "embed y": (
        lambda o, e: e.embed(f32(o, 2, 7), o.dense(np.zeros((4, 8))), i32(o, 2)),
        "embed: y is f32[2, 7], expected f32[2, 8]",
    ),
    "norm weight": (
        lambda o, e: e.rms_norm(f32(o, 2, 8), f32(o, 2, 8), f32(o, 7), 1e-6),
        "rms_norm: w is f32[7], expected f32[8]",
    ),
    "norm dtype": (
        lambda o, e: e.rms_norm(i32(o, 2, 8), i32(o, 2, 8), f32(o, 8), 1e-6),
        "rms_norm: inputs must be f32",
    ),
    "add": (lambda o, e: e.add(f32(o, 2), f32(o, 2), f32(o, 3)), "add: y is f32[2], expected f32[3]"),
    "act_mul": (
        lambda o, e: e.act_mul(f32(o, 2), f32(o, 3), f32(o, 2), "silu"),
        "act_mul: y is f32[2], expected f32[3]",
    ),
    "linear x": (
        lambda o, e: e.linear(f32(o, 1, 4), f32(o, 1, 7), o.dense(np.zeros((4, 8)))),
        "linear: x is f32[1, 7], expected f32[1, 8]",
    ),
    "linear rank": (
        lambda o, e: e.linear(f32(o, 4), f32(o, 8), o.dense(np.zeros((4, 8)))),
        "linear: x is f32[8], expected f32 with 2 dimensions",
    ),
    "linear bias": (
        lambda o, e: e.linear(f32(o, 1, 4), f32(o, 1, 8), o.dense(np.zeros((4, 8))), f32(o, 5)),
        "linear: bias is f32[5], expected f32[4]",
    ),
    "missing": (lambda o, e: e.add(f32(o, 2), f32(o, 2), core.Tensor()), "add: inputs must be f32"),
    "group": (lambda o, e: e.linear_group(f32(o, 1, 8), []), "linear_group: 0 outputs, 1 to 4 are supported"),
    "group of five": (
        lambda o, e: e.linear_group(f32(o, 1, 8), [core.LinearOut(f32(o, 1, 4), weight(o))] * 5),
        "linear_group: 5 outputs, 1 to 4 are supported",
    ),
    "scale": (lambda o, e: e.scale(i32(o, 2), 0.5), "scale: x must be f32"),
    "copy": (lambda o, e: e.copy(f32(o, 2), f32(o, 3)), "copy: y is f32[2], expected f32[3]"),
    "sigmoid_mul": (
        lambda o, e: e.sigmoid_mul(f32(o, 2), f32(o, 2), f32(o, 3)),
        "sigmoid_mul: y is f32[2], expected f32[3]",
    ),
    "per-layer rows": (
        lambda o, e: e.per_layer_inputs(f32(o, 2, 3, 4), f32(o, 3, 8), f32(o, 3, 7), f32(o, 4), 1e-6),
        "per_layer_inputs: embedded is f32[3, 7], expected f32[3, 8]",
    ),
    "per-layer weight": (
        lambda o, e: e.per_layer_inputs(f32(o, 2, 3, 4), f32(o, 3, 8), f32(o, 3, 8), f32(o, 8), 1e-6),
        "per_layer_inputs: w is f32[8], expected f32[4]",
    ),
    "no norms": (
        lambda o, e: e.norm_group(f32(o, 2, 8), [], 1e-6),
        "norm_group: 0 outputs, 1 to 3 are supported",
    ),
    "norms of four": (
        lambda o, e: e.norm_group(f32(o, 2, 8), [core.NormOut(f32(o, 2, 8), f32(o, 8))] * 4, 1e-6),
        "norm_group: 4 outputs, 1 to 3 are supported",
    ),
    "norm over its input": (norm_over_input, "norm_group: an output must not be x"),
    "scaled norms": (
        lambda o, e: e.norm_add_norm(
            f32(o, 2, 8), f32(o, 2, 8), f32(o, 2, 8), f32(o, 8), f32(o, 7), 1e-6, 2.0
        ),
        "rms_norm: w is f32[7], expected f32[8]",
    ),
    "gate": (
        lambda o, e: e.attention_gated(f32(o, 3, 2, 8), f32(o, 3, 2, 8), f32(o, 3, 16), kv(o), batch(o), A()),
        "attention_gated: y is f32[3, 2, 8], expected f32[3, 16]",
    ),
    "values without keys": (
        lambda o, e: append(o, e, k=None, v=f32(o, 3, 2, 8)),
        "qk_rope_append: v or a norm of keys without keys",
    ),
    "a norm of keys without keys": (
        lambda o, e: append(o, e, k=None, v=None, norm=core.QkNorm(k=f32(o, 8))),
        "qk_rope_append: v or a norm of keys without keys",
    ),
    "a norm of values": (
        lambda o, e: append(o, e, k=f32(o, 3, 2, 8), v=None, norm=core.QkNorm(v=f32(o, 7))),
        "rms_norm: w is f32[7], expected f32[8]",
    ),
    "rope": (
        lambda o, e: e.rope(f32(o, 3, 2, 8), core.Rope(f32(o, 5)), i32(o, 3)),
        "rope: 10 rotated channels, heads have 8",
    ),
    "rope positions": (
        lambda o, e: e.rope(f32(o, 3, 2, 8), core.Rope(f32(o, 4)), i32(o, 2)),
        "rope: positions is i32[2], expected i32[3]",
    ),
    "append heads": (
        lambda o, e: e.kv_append(kv(o, heads=1), f32(o, 3, 2, 8), f32(o, 3, 2, 8), batch(o)),
        "kv_append: cache [1, 1, 16, 8], expected 2 heads of 8",
    ),
    "append dtype": (
        lambda o, e: e.kv_append(kv(o, dtype="f16"), f32(o, 3, 2, 8), f32(o, 3, 2, 8), batch(o)),
        "kv_append: cache in f16, supported are bf16, f32 and u8",
    ),
    "append without scales": (
        lambda o, e: e.kv_append(kv(o, dtype="u8"), f32(o, 3, 2, 8), f32(o, 3, 2, 8), batch(o)),
        "kv_append: no k_scales of the cache",
    ),
    "attention with short scales": (
        lambda o, e: e.attention(f32(o, 3, 2, 65), f32(o, 3, 2, 65), codes(o, 65, scales=2), batch(o), A()),
        "attention: k_scales of the cache is bf16[1, 2, 16, 2], expected bf16[1, 2, 16, 4]",
    ),
    "append rows": (
        lambda o, e: e.kv_append(kv(o), f32(o, 3, 2, 8), f32(o, 3, 2, 8), batch(o, 2)),
        "kv_append: batch.positions is i32[2], expected i32[3]",
    ),
    "attention heads": (
        lambda o, e: e.attention(f32(o, 3, 3, 8), f32(o, 3, 3, 8), kv(o), batch(o), A()),
        "attention: 3 heads do not share 2 kv heads",
    ),
    "attention window": (
        lambda o, e: e.attention(f32(o, 3, 2, 8), f32(o, 3, 2, 8), kv(o), batch(o), A(window=-1)),
        "attention: window or softcap below 0",
    ),
    "gather": (
        lambda o, e: e.gather_rows(f32(o, 1, 8), f32(o, 3, 8), i32(o, 2)),
        "gather_rows: y is f32[1, 8], expected f32[2, 8]",
    ),
    "softcap": (lambda o, e: e.softcap(f32(o, 3), 0.0), "softcap: cap 0, expected > 0"),
    "attention runs": (
        lambda o, e: e.attention(f32(o, 3, 4, 8), f32(o, 3, 4, 8), kv(o), batch(o, runs=(1, 1)), A()),
        "attention: batch.runs has 2 rows, the batch 3",
    ),
    "sample params": (
        lambda o, e: e.sample(f32(o, 2, 9), params(o), i32(o, 2)),
        "sample: params is u8[1, 48], expected u8[2, 48]",
    ),
    "sample rows": (
        lambda o, e: e.sample(f32(o, 2, 9), params(o, 3), i32(o, 2), rows=i32(o, 3)),
        "sample: rows is i32[3], expected i32[2]",
    ),
    "sample mask": (
        lambda o, e: e.sample(f32(o, 1, 33), params(o), i32(o, 1), mask=o.u32(np.zeros((1, 1)))),
        "sample: mask is u32[1, 1], expected u32[1, 2]",
    ),
    "sample counts": (
        lambda o, e: e.sample(f32(o, 1, 9), params(o), i32(o, 1), counts=o.u32(np.zeros((1, 8)))),
        "sample: counts is u32[1, 8], expected u32[1, 9]",
    ),
    "sample logprobs": (
        lambda o, e: e.sample(
            f32(o, 1, 9), params(o), i32(o, 1), logprobs=f32(o, 1, 3), logprob_ids=i32(o, 1, 2)
        ),
        "sample: logprob_ids is i32[1, 2], expected i32[1, 3]",
    ),
    "advance": (lambda o, e: e.advance(batch(o), i32(o, 2)), "advance: batch.ids is i32[3], expected i32[2]"),
}


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", BAD)
def test_refused(name: str, fused: bool) -> None:
    ops = ops_of("auto", fused=fused)
    call, text = BAD[name]
    enc = ops.begin()
    with pytest.raises(core.CoreError, match=re.escape(text)):
        call(ops, enc)
    assert enc.records() == []  # nothing of it was recorded
