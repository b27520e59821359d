"""A rope that rotates a part of a head, from the config to the bits: wherever the factor stands in the
config, the first channels turn with the position and the others stay as they are, bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from saragossa import _core_test as core
from saragossa.models import qwen3
from saragossa.models.rope import rope_spec
from saragossa.models.spec import RopeSpec
from tiny_checkpoints import config
from unit.ops import reference
from unit.ops.cases import Paged
from unit.ops.harness import ISAS, Array, error, ops_of

HEAD, TURNING = 256, 64
PLAIN = {"rope_theta": 1e7, "rope_type": "default"}
PLACES: dict[str, dict[str, Any]] = {
    "nested": {"rope_parameters": {**PLAIN, "partial_rotary_factor": 0.25}},
    "top": {"rope_parameters": PLAIN, "partial_rotary_factor": 0.25},
    "top, older form": {"rope_parameters": ..., "rope_theta": 1e7, "partial_rotary_factor": 0.25},
    "both": {
        "rope_parameters": {**PLAIN, "partial_rotary_factor": 0.25},
        "partial_rotary_factor": 0.25,
    },
}
SPANS = ((0, 1), (1, 9), (511, 2))  # first position and rows: decode, a short prompt, the end of a block


def spec_of(place: str) -> RopeSpec:
    return qwen3.build(config("qwen3", head_dim=HEAD, **PLACES[place]), {}).decoder.ropes[0]


def rotated(isa: str, rope: RopeSpec, fused: bool) -> tuple[Array, Array, Array]:
    """Queries [rows, heads, HEAD] before and after; the rows' positions."""
    ops, p = ops_of(isa, fused=fused), Paged(SPANS, 4, 2, HEAD)
    x = np.random.default_rng(3).standard_normal((p.rows, p.heads, HEAD)).astype(np.float32)
    q = ops.f32(x)
    given = core.Rope(ops.f32(np.array(rope.inv_freq)), rope.attention_factor)
    cache = np.zeros((p.blocks(), p.kv_heads, p.block, HEAD))
    k = np.ones((p.rows, p.kv_heads, HEAD))
    kv = p.layer(ops, cache, cache)
    ops.run(lambda e: e.qk_rope_append(q, ops.f32(k), ops.f32(k), core.QkNorm(), given, kv, p.batch(ops)))
    plain = ops.f32(x)
    ops.run(lambda e: e.rope(plain, given, ops.i32(p.positions())))
    assert np.array_equal(plain.numpy(), q.numpy())
    return x, q.numpy(), p.positions()


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "apart"])
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("place", PLACES)
def test_the_channels_behind_stay_bit_for_bit(place: str, isa: str, fused: bool) -> None:
    rope = spec_of(place)
    x, y, positions = rotated(isa, rope, fused)
    assert y[..., TURNING:].tobytes() == x[..., TURNING:].tobytes()
    want = reference.rope(x, np.array(rope.inv_freq, np.float32), positions, rope.attention_factor)
    assert error(y, want) < 1e-6
    moved = y[positions > 0, :, :TURNING] != x[positions > 0, :, :TURNING]
    assert moved[..., : TURNING // 4].all()  # the last ones turn by less than float32 tells at position 1
    assert moved[positions[positions > 0] > 500].all(axis=(1, 2)).any()


@pytest.mark.parametrize("isa", ISAS)
def test_a_proportional_rope_turns_the_first_of_each_half(isa: str) -> None:
    """Gemma 4: pairs lie half a head apart, and all but the first of them stand still."""
    parameters = {"rope_theta": 1e6, "rope_type": "proportional", "partial_rotary_factor": 0.25}
    x, y, positions = rotated(isa, rope_spec(parameters, head_dim=HEAD, max_position=512), fused=True)
    pairs = TURNING // 2
    still = [*range(pairs, HEAD // 2), *range(HEAD // 2 + pairs, HEAD)]
    assert y[..., still].tobytes() == x[..., still].tobytes()
    moved = y[positions > 0] != x[positions > 0]
    assert moved[..., : pairs // 2].all()
    assert moved[..., HEAD // 2 : HEAD // 2 + pairs // 2].all()
