"""Gates, values that are keys, several norms of one input, a cache of u8 on Metal: dispatches and bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from metal.emulator import Emulator
from unit.ops import kv_codes
from unit.ops.cases import Case, Paged, attention_case, normal
from unit.ops.cases_attention import (
    attention_gated_case,
    norm_group_case,
    per_layer_inputs_case,
    qk_rope_append_case,
    scaled_norms_case,
)
from unit.ops.harness import Ops

pytestmark = pytest.mark.usefixtures("checked")

DECODE = Paged(((90, 1),), 8, 1, 256)
PROMPT = Paged(((0, 20),), 8, 1, 256)


@pytest.fixture(scope="module")
def metal() -> Ops:
    return Ops(device="metal")


def traffic(emulator: Emulator, case: Case, ops: Ops) -> list[dict[str, Any]]:
    with emulator.traced() as counted:
        enc = ops.begin()
        case.encode(ops, enc, case.inputs())
        enc.submit().wait()
    out: list[dict[str, Any]] = counted["dispatch_list"]
    return out


@pytest.mark.parametrize(
    ("case", "kernels"),
    [
        (attention_gated_case("decode", DECODE), ["attention_decode"]),
        (
            attention_gated_case("splits", Paged(((300, 1),), 8, 1, 256)),
            ["attention_decode", "attention_merge"],
        ),
        (attention_gated_case("prefill", PROMPT), ["attention_prefill"]),
        (norm_group_case(2, 640, 3), ["norm_group"]),
        (scaled_norms_case(2, 640, 0.5), ["norm_add_norm"]),
        (per_layer_inputs_case(5, 2, 256), ["per_layer_inputs"]),
        (qk_rope_append_case("all", DECODE, 64, norms="qkv"), ["qk_rope_append"]),
        (qk_rope_append_case("k-is-v", DECODE, 64, norms="qkv", values=False), ["qk_rope_append"]),
        (qk_rope_append_case("q", DECODE, 64, norms="q", keys=False, values=False), ["qk_rope_append"]),
    ],
    ids=str,
)
def test_one_dispatch(metal: Ops, emulator: Emulator, case: Case, kernels: list[str]) -> None:
    assert [d["kernel"] for d in traffic(emulator, case, metal)] == kernels


@pytest.mark.parametrize(("heads", "kv_heads", "d"), [(16, 2, 256), (12, 2, 256), (8, 1, 512), (16, 2, 512)])
def test_keys_of_large_heads_are_read_once_a_kv_head(
    metal: Ops, emulator: Emulator, heads: int, kv_heads: int, d: int
) -> None:
    keys = 512
    case = attention_case("traffic", Paged(((keys - 1, 1),), heads, kv_heads, d))
    decode, merge = traffic(emulator, case, metal)
    assert [decode["kernel"], merge["kernel"]] == ["attention_decode", "attention_merge"]
    cached = keys * kv_heads * d * 2
    of_cache = [b for b in decode["buffers"] if b["unique_read"] == cached]
    assert [b["requested_read"] for b in of_cache] == [cached, cached]


def test_a_prompt_of_heads_of_512_goes_by_tiles(metal: Ops, emulator: Emulator) -> None:
    """Of 16 rows: two tokens with 8 heads a kv head."""
    case = attention_case("prompt", Paged(((0, 16),), 8, 1, 512))
    (prefill,) = traffic(emulator, case, metal)
    assert prefill["kernel"] == "attention_prefill"
    of_cache = [b for b in prefill["buffers"] if b["unique_read"] == 16 * 512 * 2]
    assert [b["requested_read"] for b in of_cache] == [sum(range(2, 17, 2)) * 512 * 2] * 2


@pytest.mark.parametrize("d", [64, 128, 256])
def test_codes_are_half_the_bytes(metal: Ops, emulator: Emulator, d: int) -> None:
    """And a step and a zero for each 64 channels."""
    keys = 256
    case = attention_case("codes", Paged(((keys - 1, 1),), 4, 2, d, dtype="u8"))
    (decode,) = traffic(emulator, case, metal)
    read = sorted(b["unique_read"] for b in decode["buffers"])[-4:]
    scales = keys * 2 * (d // 64) * 4
    assert read == sorted([keys * 2 * d] * 2 + [scales] * 2)


def test_what_is_not_finite_makes_its_group_nan(metal: Ops) -> None:
    p = Paged(((0, 3),), 1, 1, 130, dtype="u8")
    x = normal(np.random.default_rng(1), 3, 1, 130)
    x[0, 0, 70], x[1, 0, 5], x[2, 0, 129] = np.nan, np.inf, -np.inf
    kv = p.layer(metal, np.zeros((1, 1, 256, 130)), np.zeros((1, 1, 256, 130)))
    metal.run(lambda e: e.kv_append(kv, metal.f32(x), metal.f32(x), p.batch(metal)))
    back = kv_codes.decode(kv.v.numpy()[0, 0, :3], kv.v_scales.numpy()[0, 0, :3])
    bad = np.zeros((3, 130), bool)
    bad[0, 64:128], bad[1, :64], bad[2, 128:] = True, True, True
    assert np.array_equal(np.isnan(back), bad)
