"""Mixtures of experts on Metal: rows alone and among others, switches, dispatches and bytes, limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from metal.emulator import Emulator
from saragossa import _core_test as core
from unit.ops.cases_moe import TOLERANCE, Arrays, Moe, q
from unit.ops.harness import Array, Ops, error
from unit.ops.test_linear import inputs, linear, make

pytestmark = pytest.mark.usefixtures("checked")

FORMS = {"4": q(4, 64), "6": q(6, 32), "8": q(8, 64), "dense": (0, 0, "bf16")}
NORM_EPS = 1e-6


@pytest.fixture(scope="module")
def metal() -> Ops:
    return Ops(device="metal")


class Block:
    """The ops of a block of experts on some rows of `a`, encoded together."""

    def __init__(self, ops: Ops, m: Moe, a: Arrays, rows: slice = slice(None)) -> None:
        n = len(a["x"][rows])
        self.ids, self.weights = ops.i32(a["ids"][rows]), ops.f32(a["weights"][rows])
        self.x, self.h, self.y = ops.f32(a["x"][rows]), ops.empty(n, m.width()), ops.f32(a["y"][rows])
        self.z, self.norm, self.experts = ops.empty(n, m.hidden), ops.f32(a["norm"]), m.experts(ops)
        self.shared = ops.f32(a["shared"][rows]) if m.shared else core.Tensor()

    def encode(self, e: Any) -> None:
        routes = core.Routes(self.ids, self.weights)
        e.moe_gated(self.h, self.x, self.ids, self.experts)
        e.moe_down_norm(self.y, self.z, self.h, routes, self.shared, self.experts, self.norm, NORM_EPS)

    def run(self, ops: Ops) -> list[Array]:
        ops.run(self.encode)
        return [np.asarray(t.numpy()) for t in (self.h, self.y, self.z)]


@pytest.mark.parametrize("ids", ["spread", "one"])
@pytest.mark.parametrize("form", FORMS)
def test_a_row_does_not_depend_on_its_neighbours(metal: Ops, form: str, ids: str) -> None:
    """Bit for bit up to 8 rows: a draft that is verified gives what decoding gives."""
    m = Moe(8, 5, 2, hidden=64, inner=64, shared=64, form=FORMS[form], fused=True, ids=ids)
    a = m.inputs(np.random.default_rng(5))
    alone = [Block(metal, m, a, slice(t, t + 1)).run(metal) for t in range(8)]
    for rows in (2, 3, 4, 7, 8):
        for got, *one in zip(Block(metal, m, a, slice(rows)).run(metal), *alone[:rows], strict=True):
            assert got.tobytes() == b"".join(x.tobytes() for x in one), rows


def test_routes_do_not_depend_on_neighbours(metal: Ops) -> None:
    logits = np.random.default_rng(1).standard_normal((9, 256)).astype(np.float32)

    def routes(x: Array) -> bytes:
        ids, weights, tensor = metal.i32(np.zeros((len(x), 8))), metal.empty(len(x), 8), metal.f32(x)
        metal.run(lambda e: e.route(core.Routes(ids, weights), tensor, True))
        return b"".join(i.tobytes() + w.tobytes() for i, w in zip(ids.numpy(), weights.numpy(), strict=True))

    assert routes(logits) == b"".join(routes(logits[t : t + 1]) for t in range(9))


@pytest.mark.parametrize(
    "m",
    [
        Moe(20, 5, 2, form=q(4, 32), shared=32, fused=True),
        Moe(12, 3, 2, hidden=20, inner=7, shared=13),
        Moe(70, 2, 2, inner=64, form=q(8, 32), shared=32, shared_form=q(4, 32)),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "switch", [{"metal_sorted_experts": False}, {"metal_matmul": False}, {"fused": False}]
)
def test_switches(metal: Ops, m: Moe, switch: dict[str, bool]) -> None:
    """Off and on differ by the order of sums."""
    a = m.inputs(np.random.default_rng(2))
    ops = Ops(device="metal", **switch)
    fast, slow = Block(metal, m, a).run(metal), Block(ops, m, a).run(ops)
    want = m.y({**a, "h": m.h(a)}, gate=m.shared > 0) + a["y"]
    for got in (fast, slow):
        assert error(got[0], m.h(a)) < TOLERANCE
        assert error(got[1], want) < TOLERANCE
    if "fused" not in switch:
        assert fast[0].tobytes() != slow[0].tobytes()  # else this test compares nothing


@pytest.mark.parametrize("fused", [True, False])
def test_a_long_prompt_runs_in_parts(fused: bool) -> None:
    """Blocks of 512 rows at most, and command buffers within their bound."""
    m = Moe(530, 3, 1, hidden=32, inner=32, form=q(4, 32), fused=fused)
    a = m.inputs(np.random.default_rng(3))
    ops = Ops(device="metal", metal_command_macs=200_000)
    h, y, _ = Block(ops, m, a).run(ops)
    assert error(h, m.h(a)) < TOLERANCE
    assert error(y, m.y({**a, "h": m.h(a)}, gate=False) + a["y"]) < TOLERANCE


def test_a_step_reads_the_chosen_experts_alone(metal: Ops, emulator: Emulator) -> None:
    """Five dispatches from the router to the norm; each byte of the chosen experts once."""
    m = Moe(1, 64, 4, hidden=256, inner=128, shared=128, form=q(4, 64), fused=True)
    a = m.inputs(np.random.default_rng(6))
    block = Block(metal, m, a)
    router = make(m.count, m.hidden, 8, 64, "bf16").weight(metal)
    factor = make(1, m.hidden, 8, 64, "bf16").weight(metal)
    logits = metal.empty(1, m.count)
    block.shared = metal.empty(1, 1)

    def encode(e: Any) -> None:
        outs = [core.LinearOut(logits, router), core.LinearOut(block.shared, factor)]
        e.linear_group(block.x, outs)
        e.route(core.Routes(block.ids, block.weights), logits, True)
        block.encode(e)

    with emulator.traced() as counters:
        metal.run(encode)
    assert counters["dispatches"] == 5
    gated, down = counters["dispatch_list"][2:4]
    value = 4 / 8 + 2 * 2 / 64  # bytes
    each = m.hidden * m.inner * value
    for dispatch, matrices in ((gated, 2), (down, 1)):
        read = sum(b["unique_read"] for b in dispatch["buffers"])
        active = matrices * each * (m.top_k + 1)  # the shared one is as large
        assert active <= read <= 1.05 * active + 4 * (m.hidden + m.width())


@pytest.mark.parametrize(
    "m",
    [
        Moe(1, 4, 2, form=q(4, 32), shared=32, shared_form=q(8, 32)),
        Moe(1, 4, 2, form=q(4, 32), up=q(6, 32)),
    ],
    ids=str,
)
def test_other_formats_take_more_dispatches(metal: Ops, emulator: Emulator, m: Moe) -> None:
    block = Block(metal, m, m.inputs(np.random.default_rng(7)))
    emulator.counters(reset=True)
    block.run(metal)
    assert emulator.counters()["dispatches"] == 5


@pytest.mark.parametrize("rows", [2, 20])
def test_an_id_of_no_expert_gives_nan(metal: Ops, rows: int) -> None:
    m = Moe(rows, 5, 2, form=q(4, 32))
    a = m.inputs(np.random.default_rng(8))
    a["ids"][1, 1] = 5
    a["ids"][0, 0] = -1
    _, y, _ = Block(metal, m, a).run(metal)
    assert np.isnan(y[:2]).all()
    assert not np.isnan(y[2:]).any()


@pytest.mark.parametrize(("count", "top_k"), [(513, 2), (40, 17)])
def test_what_is_too_large_is_named(metal: Ops, count: int, top_k: int) -> None:
    routes = core.Routes(metal.i32(np.zeros((1, top_k))), metal.empty(1, top_k))
    logits = metal.f32(np.zeros((1, count)))
    with pytest.raises(Exception, match=f"route: {top_k} of {count} experts, at most 16 of 512"):
        metal.begin().route(routes, logits, True)


@pytest.mark.parametrize("rows", [1, 8, 20, 40])
@pytest.mark.parametrize("form", [q(4, 64), (0, 0, "bf16")])
def test_a_group_of_four_shares_its_dispatch(
    metal: Ops, emulator: Emulator, form: tuple[int, int, str], rows: int
) -> None:
    """Outputs of very different sizes, as a router and a shared expert's gate are."""
    cases = [make(out, 512, *form) for out in (70, 1, 256, 3)]
    x = inputs(rows, 512)
    alone = [linear(metal, c, x) for c in cases]
    weights, tensor = [c.weight(metal) for c in cases], metal.f32(x)
    ys = [metal.empty(rows, c.out) for c in cases]
    outs = [core.LinearOut(y, w) for y, w in zip(ys, weights, strict=True)]
    emulator.counters(reset=True)
    metal.run(lambda e: e.linear_group(tensor, outs))
    assert emulator.counters()["dispatches"] == (2 if rows == 20 else 1)  # split inputs are merged
    assert [y.numpy().tobytes() for y in ys] == [w.tobytes() for w in alone]
