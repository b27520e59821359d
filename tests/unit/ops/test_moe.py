"""Mixtures of experts beyond the shared cases: a row's neighbours, rounding, bad ids, weights of many GB."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saragossa import _core_test as core
from unit.ops import reference_moe
from unit.ops.cases_moe import TOLERANCE, Arrays, Moe, mx, q
from unit.ops.harness import ISAS, Array, Ops, error
from unit.ops.test_linear import ops_for

FORMS = {
    "4": q(4, 64),
    "6": q(6, 64),
    "8": q(8, 128),
    "3": q(3, 64),
    "mxfp4": mx(4),
    "mxfp8": mx(8),
    "dense": (0, 0, "bf16"),
}

# Of int15, as harness.error measures; int8 is 128 times as far off.
ROUNDED = 3e-3


def block(ops: Ops, m: Moe, a: Arrays, rows: slice = slice(None)) -> tuple[Array, Array]:
    """h and y of some rows, through both ops."""
    n = len(a["x"][rows])
    h, y = ops.empty(n, m.width()), ops.f32(a["y"][rows])
    ids = ops.i32(a["ids"][rows])
    routes = core.Routes(ids, ops.f32(a["weights"][rows]))
    x, experts = ops.f32(a["x"][rows]), m.experts(ops)
    shared = ops.f32(a["shared"][rows]) if m.shared else core.Tensor()

    def encode(e: Any) -> None:
        e.moe_gated(h, x, ids, experts)
        e.moe_down(y, h, routes, shared, experts, True)

    ops.run(encode)
    return np.asarray(h.numpy()), np.asarray(y.numpy())


@pytest.mark.parametrize("ids", ["spread", "one"])
@pytest.mark.parametrize("mode", ["f32", "int15", "int8"])
@pytest.mark.parametrize("form", FORMS)
def test_a_row_does_not_depend_on_its_neighbours(form: str, mode: str, ids: str) -> None:
    """Bit for bit up to 8 rows: a draft that is verified gives what decoding gives."""
    m = Moe(8, 7, 3, hidden=128, inner=128, shared=128, form=FORMS[form], fused=True, ids=ids)
    a = m.inputs(np.random.default_rng(5))
    for isa in ISAS:
        ops = ops_for(isa, mode)
        alone = [block(ops, m, a, slice(t, t + 1)) for t in range(8)]
        for rows in range(2, 9):
            h, y = block(ops, m, a, slice(rows))
            assert h.tobytes() == b"".join(one[0].tobytes() for one in alone[:rows]), (isa, rows)
            assert y.tobytes() == b"".join(one[1].tobytes() for one in alone[:rows]), (isa, rows)


def test_routes_do_not_depend_on_neighbours() -> None:
    logits = np.random.default_rng(1).standard_normal((100, 256)).astype(np.float32)

    def routes(ops: Ops, x: Array) -> bytes:
        ids, weights = ops.i32(np.zeros((len(x), 8))), ops.empty(len(x), 8)
        tensor = ops.f32(x)
        ops.run(lambda e: e.route(core.Routes(ids, weights), tensor, True))
        return b"".join(i.tobytes() + w.tobytes() for i, w in zip(ids.numpy(), weights.numpy(), strict=True))

    for isa in ISAS:
        ops = ops_for(isa, "f32")
        assert routes(ops, logits) == b"".join(routes(ops, logits[t : t + 1]) for t in range(100))


@pytest.mark.parametrize("rows", [1, 8, 60])
@pytest.mark.parametrize("mode", ["f32", "int15"])
@pytest.mark.parametrize("form", FORMS)
def test_threads_do_not_change_a_bit(form: str, mode: str, rows: int) -> None:
    m = Moe(rows, 7, 2, hidden=256, inner=128, shared=256, form=FORMS[form])
    a = m.inputs(np.random.default_rng(6))
    one, three = (block(ops_for("auto", mode, threads), m, a) for threads in (1, 3))
    assert [x.tobytes() for x in one] == [x.tobytes() for x in three]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("rows", [1, 4, 9, 100])
@pytest.mark.parametrize("form", FORMS)
def test_rounded_activations(form: str, rows: int, isa: str) -> None:
    m = Moe(rows, 5, 2, hidden=256, inner=128, shared=128, form=FORMS[form])
    a = m.inputs(np.random.default_rng(7))
    h, y = block(ops_for(isa, "int15"), m, a)
    assert error(h, m.h(a)) < ROUNDED
    assert error(y, m.y({**a, "h": m.h(a)}, gate=True) + a["y"]) < ROUNDED


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("rows", [1, 4, 9, 100])
@pytest.mark.parametrize("swapped", [False, True])
def test_rounded_activations_beside_floats(rows: int, swapped: bool, isa: str) -> None:
    """mxfp8 multiplies in float32; what its neighbour of as many bits takes is packed all the same."""
    gate, up = (q(8, 32), mx(8)) if swapped else (mx(8), q(8, 32))
    m = Moe(rows, 5, 2, hidden=256, inner=128, form=gate, up=up, shared=128, shared_form=mx(4))
    a = m.inputs(np.random.default_rng(7))
    h, y = block(ops_for(isa, "int15"), m, a)
    assert error(h, m.h(a)) < ROUNDED
    assert error(y, m.y({**a, "h": m.h(a)}, gate=True) + a["y"]) < ROUNDED


@pytest.mark.parametrize("isa", ISAS)
def test_more_rows_than_the_workspace_takes_at_once(isa: str) -> None:
    m = Moe(1500, 4, 3, hidden=32, inner=32, form=q(4, 32))
    a = m.inputs(np.random.default_rng(8))
    ops = ops_for(isa, "f32")
    h, y = block(ops, m, a)
    assert error(h, m.h(a)) < TOLERANCE
    assert error(y, m.y({**a, "h": m.h(a)}, gate=False) + a["y"]) < TOLERANCE


def test_an_expert_that_a_row_names_twice() -> None:
    """route never does; ids of others may, and then an expert has more rows than a step."""
    m = Moe(8, 3, 3, form=q(4, 32))
    a = m.inputs(np.random.default_rng(9))
    a["ids"][:] = 1
    h, y = block(ops_for("auto", "int15"), m, a)
    assert error(h, m.h(a)) < ROUNDED
    assert error(y, m.y({**a, "h": m.h(a)}, gate=False) + a["y"]) < ROUNDED


@pytest.mark.parametrize("bad", [-1, 5, 2**31 - 1])
def test_an_id_of_no_expert(bad: int) -> None:
    m = Moe(2, 5, 2)
    a = m.inputs(np.random.default_rng(3))
    a["ids"][1, 1] = bad
    with pytest.raises(Exception, match=f"expert {bad} of 5"):
        block(ops_for("auto", "int15"), m, a)


def sparse(ops: Ops, path: Path, dtype: str, shape: list[int], rows: dict[int, Array]) -> Any:
    """A mapped file of zeros, but for some rows."""
    size = np.dtype("u4" if dtype == "u32" else "u2").itemsize
    with path.open("wb") as file:
        file.truncate(shape[0] * shape[1] * size)
        for row, values in rows.items():
            file.seek(row * shape[1] * size)
            file.write(values.tobytes())
    return ops.device.map(str(path), 0, dtype, shape)


def test_weights_beyond_32_bits(tmp_path: Path) -> None:
    """512 experts of 5120 rows of 4096: more than 2^32 bytes, 2^33 values. The last ones are found."""
    count, stride, hidden, inner, group = 512, 5120, 4096, 32, 64
    small = Moe(1, 1, 1, hidden=hidden, inner=2 * inner, form=q(4, group))
    weight = small.gate_up()[0]
    ops, offset = ops_for("auto", "int15"), stride - 2 * inner
    at = (count - 1) * stride + offset
    rows = range(2 * inner)
    parts = [
        sparse(ops, tmp_path / name, dtype, [count * stride, width], {at + r: array[r] for r in rows})
        for name, dtype, width, array in (
            ("data", "u32", hidden // 8, weight.data),
            ("scales", "bf16", hidden // group, weight.scales),
            ("biases", "bf16", hidden // group, weight.biases),
        )
    ]
    big = core.Weight(count * stride, hidden, parts[0], bits=4, group=group, scales=parts[1], biases=parts[2])
    zeros = core.Weight(count * hidden, inner, ops.device.zeros("bf16", [count * hidden, inner]))
    experts = core.Experts(
        count=count,
        top_k=2,
        intermediate=inner,
        gate=core.ExpertWeight(big, stride, offset),
        up=core.ExpertWeight(big, stride, offset + inner),
        down=core.ExpertWeight(zeros, hidden),
    )
    x = np.random.default_rng(2).standard_normal((1, hidden)).astype(np.float32)
    h, tensor, ids = ops.empty(1, 2 * inner), ops.f32(x), ops.i32([[0, count - 1]])
    ops.run(lambda e: e.moe_gated(h, tensor, ids, experts))
    got = np.asarray(h.numpy())[0]
    assert not got[:inner].any()
    want = reference_moe.gated(x[0], weight.w[:inner], weight.w[inner:], "silu")
    assert error(got[inner:], want) < ROUNDED


def test_what_the_checks_refuse() -> None:
    ops = ops_for("auto", "int15")
    m = Moe(2, 5, 2, shared=32)
    a = m.inputs(np.random.default_rng(4))
    logits = ops.f32(np.zeros((2, 5)))
    for shape, words in (((2, 6), "6 of 5 experts"), ((3, 2), "ids")):
        routes = core.Routes(ops.i32(np.zeros(shape)), ops.empty(*shape))
        with pytest.raises(Exception, match=words):
            ops.begin().route(routes, logits, True)
    x, ids = ops.f32(a["x"]), ops.i32(a["ids"])
    with pytest.raises(Exception, match="h is"):
        ops.begin().moe_gated(ops.empty(2, m.width() + 1), x, ids, m.experts(ops))
    with pytest.raises(Exception, match="expected 5 experts of"):
        ops.begin().moe_gated(ops.empty(2, m.width()), ops.f32(a["x"][:, 1:]), ids, m.experts(ops))
    bare = replace(m, shared=0)
    routes = core.Routes(ids, ops.f32(a["weights"]))
    y, h, shared = ops.f32(a["y"]), ops.empty(2, bare.width()), ops.f32(a["shared"])
    with pytest.raises(Exception, match="shared expert that is not there"):
        ops.begin().moe_down(y, h, routes, shared, bare.experts(ops), True)


@pytest.mark.parametrize("fetch", [True, False])
def test_a_step_of_blocks_between_linears(fetch: bool) -> None:
    """What is fetched ahead changes no bit, whatever runs next."""
    m = Moe(1, 7, 3, hidden=256, inner=128, shared=128, form=q(4, 64))
    a = m.inputs(np.random.default_rng(11))
    ops = Ops("auto", activations="int15", cpu_fetch_ahead=fetch)
    router = np.random.default_rng(12).standard_normal((7, 256)).astype(np.float32)
    x, h, y = ops.f32(a["x"]), ops.empty(1, m.width()), ops.f32(a["y"])
    ids, weights, logits = ops.i32(np.zeros((1, 3))), ops.empty(1, 3), ops.empty(1, 7)
    routes, w, experts = core.Routes(ids, weights), ops.dense(router), m.experts(ops)
    shared = ops.f32(a["shared"])

    def encode(e: Any) -> None:
        for _ in range(3):
            e.linear(logits, x, w)
            e.route(routes, logits, True)
            e.moe_gated(h, x, ids, experts)
            e.moe_down(y, h, routes, shared, experts, True)

    ops.run(encode)
    ops.run(encode)
    found, part = reference_moe.route(a["x"].astype(np.float64) @ router.T, 3, renormalize=True)
    b = {**a, "ids": found, "weights": part}
    want = a["y"] + 6 * m.y({**b, "h": m.h(b)}, gate=True)
    assert error(y.numpy(), want) < ROUNDED
