"""The gated delta net: what a row's bits may depend on, and the chunked form against the sequential one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from saragossa import _core_test as core
from unit.ops.cases import Array, Arrays
from unit.ops.cases_delta import (
    DECAYS,
    EPS,
    ODD,
    TWO,
    WIDE,
    Heads,
    Run,
    Steps,
    conv_case,
    delta_case,
    delta_expected,
    delta_inputs,
    encode_delta,
)
from unit.ops.harness import ISAS, Ops, error, read

SETS = [isa for isa in ISAS if isa != "scalar"]  # the scalar set has no chunked form
REAL = Heads(1, 2, 128, 128)
ROW_INPUTS = ("qkv", "a", "b", "z", "x")  # those with a row a token


def run(ops: Ops, steps: Steps, heads: Heads, a: Arrays, *, norm: bool = False) -> dict[str, Array]:
    enc = ops.begin()
    out = encode_delta(ops, enc, a, steps, heads, norm)
    enc.submit().wait()
    return read(out)


def layer(ops: Ops, steps: Steps, heads: Heads, a: Arrays, conv: Array, width: int) -> dict[str, Array]:
    """Convolution and delta rule, one behind the other: what a layer does between its linears."""
    enc = ops.begin()
    qkv, w = ops.empty(steps.rows, heads.channels), ops.f32(a["conv_w"])
    y, window, state = ops.empty(steps.rows, heads.values), ops.f32(conv), ops.f32(a["state"])
    recurrent, batch = core.RecurrentLayer(window, state), steps.batch(ops)
    gates = core.DeltaGates(*(ops.f32(a[name]) for name in ("a", "b", "a_log", "dt_bias")))
    enc.conv_qk_norm(qkv, ops.f32(a["x"]), w, heads.core(), recurrent, batch)
    enc.delta_rule_norm(y, qkv, gates, heads.core(), ops.f32(a["z"]), ops.f32(a["w"]), EPS, recurrent, batch)
    enc.submit().wait()
    return {"y": y.numpy(), "conv": window.numpy(), "delta": state.numpy()}


def layer_inputs(rows: int, heads: Heads, width: int) -> Arrays:
    rng = np.random.default_rng(5)
    a = delta_inputs(rng, Steps((Run(rows, 0, "place"),)), heads, "usual")
    a["x"] = rng.standard_normal((rows, heads.channels)).astype(np.float32)
    a["conv_w"] = rng.standard_normal((heads.channels, width)).astype(np.float32)
    a["state"][1:] = 0
    return a


def in_parts(ops: Ops, heads: Heads, a: Arrays, conv: Array, parts: list[int]) -> dict[str, Array]:
    """The same rows as several batches, each from the state that the one before left in the slot."""
    ys, first, now = [], 0, dict(a)
    for rows in parts:
        part = {n: x[first : first + rows] if n in ROW_INPUTS else x for n, x in now.items()}
        out = layer(ops, Steps((Run(rows, 0, "place"),)), heads, part, conv, a["conv_w"].shape[1])
        ys.append(out["y"])
        conv, now["state"] = out["conv"], out["delta"]
        first += rows
    return {"y": np.concatenate(ys), "conv": conv, "delta": now["state"]}


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("heads", [ODD, REAL], ids=str)
def test_continued_equals_fresh_bit_for_bit_in_the_exact_mode(isa: str, heads: Heads) -> None:
    ops, rows = Ops(isa, activations="f32"), 150
    a = layer_inputs(rows, heads, 4)
    conv = np.random.default_rng(1).standard_normal((2, 3, heads.channels)).astype(np.float32)
    whole = in_parts(ops, heads, a, conv, [rows])
    for parts in ([1] * rows, [64, 64, 22], [7, 100, 1, 2, 40], [149, 1]):
        got = in_parts(ops, heads, a, conv, parts)
        for name in whole:
            assert got[name].tobytes() == whole[name].tobytes(), (name, parts)


@pytest.mark.parametrize("isa", ISAS)
def test_a_cut_between_chunks_changes_no_bit(isa: str) -> None:
    ops = Ops(isa, activations="int15")
    a = layer_inputs(150, ODD, 4)
    conv = np.random.default_rng(1).standard_normal((2, 3, ODD.channels)).astype(np.float32)
    whole = in_parts(ops, ODD, a, conv, [150])
    for parts in ([64, 86], [128, 22], [128, 8, 14], [64, 64, 1, 21]):
        got = in_parts(ops, ODD, a, conv, parts)
        for name in whole:
            assert got[name].tobytes() == whole[name].tobytes(), (name, parts)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("rows", range(1, 9))
def test_a_row_is_the_same_among_one_to_eight(isa: str, rows: int) -> None:
    """And so is the state after each, which verification of a draft rolls back to."""
    ops = Ops(isa)
    a = delta_inputs(np.random.default_rng(2), Steps((Run(8, 0, "each"),)), ODD, "usual")
    eight = run(ops, Steps((Run(8, 0, "each"),)), ODD, a, norm=True)
    steps = Steps((Run(rows, 0, "each"),))
    some = {n: x[:rows] if n in ROW_INPUTS else x for n, x in a.items()}
    some["state"] = a["state"][: steps.outs()[1]]
    got = run(ops, steps, ODD, some, norm=True)
    assert got["y"].tobytes() == eight["y"][:rows].tobytes()
    assert got["state"].tobytes() == eight["state"][: len(got["state"])].tobytes()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("activations", ["f32", "int15"])
def test_other_runs_do_not_change_a_bit(isa: str, activations: str) -> None:
    ops = Ops(isa, activations=activations)
    steps = Steps((Run(5, 0, "each"), Run(70, 1, "last"), Run(1, 2, "place"), Run(130, 1, "last")))
    a = delta_inputs(np.random.default_rng(4), steps, WIDE, "usual")
    together = run(ops, steps, WIDE, a, norm=True)
    starts, outs = steps.starts(), steps.outs()[0]
    for i, one in enumerate(steps.runs):
        rows = slice(starts[i], starts[i + 1])
        part = {n: x[rows] if n in ROW_INPUTS else x for n, x in a.items()}
        alone = Steps((Run(one.rows, 0, one.keep),))
        front = a["state"][one.start]
        part["state"] = np.full((alone.outs()[1], *front.shape), np.nan, np.float32)
        part["state"][0] = front
        got = run(ops, alone, WIDE, part, norm=True)
        assert got["y"].tobytes() == together["y"][rows].tobytes(), i
        for slot, other in zip(alone.outs()[0], outs[rows], strict=True):
            if slot >= 0:
                assert got["state"][slot].tobytes() == together["state"][other].tobytes(), i


@pytest.mark.parametrize("activations", ["f32", "int15"])
@pytest.mark.parametrize("heads", [Heads(1, 1, 20, 100), ODD, Heads(4, 8, 16, 64)], ids=str)
def test_threads_do_not_change_a_bit(heads: Heads, activations: str) -> None:
    """One head is cut into slices of its value rows where there are more threads than heads."""
    steps = Steps((Run(150, 0, "place"), Run(3, 1, "each")))
    a = delta_inputs(np.random.default_rng(6), steps, heads, "usual")
    one, *more = (
        run(Ops("auto", threads=n, activations=activations), steps, heads, a, norm=True) for n in (1, 2, 3)
    )
    for other in more:
        for name in one:
            assert one[name].tobytes() == other[name].tobytes(), name


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("decays", DECAYS)
@pytest.mark.parametrize("rows", [63, 64, 65, 130, 300])
@pytest.mark.parametrize("heads", [ODD, REAL, Heads(2, 4, 72, 40)], ids=str)
def test_chunked_equals_sequential(heads: Heads, rows: int, decays: str, isa: str) -> None:
    # Into a slot of its own, where rows behind the last chunk find the state; and into none.
    steps = Steps((Run(rows, 0, "last"), Run(rows, -1, "none")))
    a = delta_inputs(np.random.default_rng(rows), steps, heads, decays)
    chunked = run(Ops(isa, activations="int15"), steps, heads, a)
    want = delta_expected(a, steps, heads, norm=False)
    plain = run(Ops(isa, activations="int15", chunked_delta=False), steps, heads, a)
    exact = run(Ops(isa, activations="f32"), steps, heads, a)
    for name in chunked:
        assert plain[name].tobytes() == exact[name].tobytes(), name  # the switch, and --exact
        if rows < 64:
            assert chunked[name].tobytes() == plain[name].tobytes(), name
        assert error(chunked[name], plain[name]) < 1e-5, name
        assert error(chunked[name], want[name]) < 1e-5, name
    if rows >= 64 and decays in ("usual", "slow"):  # without memory there is nothing to add in another order
        assert chunked["y"].tobytes() != plain["y"].tobytes()


@pytest.mark.parametrize("isa", SETS)
def test_chunks_keep_a_strong_state(isa: str) -> None:
    """Keys that are all alike, beta near one, no decay: each row of a chunk depends on all before it."""
    heads, steps = TWO, Steps((Run(128, 0, "place"),))
    a = delta_inputs(np.random.default_rng(9), steps, heads, "slow")
    a["qkv"][:, heads.keys : 2 * heads.keys] = a["qkv"][:1, heads.keys : 2 * heads.keys]
    a["b"][:] = 8.0
    want = delta_expected(a, steps, heads, norm=False)
    for got in (run(Ops(isa, activations=x), steps, heads, a) for x in ("int15", "f32")):
        for name in want:
            assert error(got[name], want[name]) < 1e-5, name


@pytest.mark.parametrize("isa", ISAS)
def test_fused_equals_parts_bit_for_bit(isa: str) -> None:
    steps = Steps((Run(3, 0, "place-each"), Run(70, 1, "last")))
    for case in (
        conv_case("fused", steps, 4, ODD, fused=True),
        delta_case("fused", steps, ODD, norm=True),
        delta_case("fused", steps, Heads(1, 1, 20, 70), norm=True),
    ):
        results: list[dict[str, Array]] = []
        names: list[list[str]] = []
        for fused in (True, False):
            ops = Ops(isa, fused=fused)
            enc = ops.begin()
            out = case.encode(ops, enc, case.inputs())
            names.append([r.name for r in enc.records()])
            enc.submit().wait()
            results.append(read(out))
        assert names[0] == [case.op]
        assert len(names[1]) == 2
        for name in results[0]:
            assert results[0][name].tobytes() == results[1][name].tobytes(), (str(case), name)


def batch_of(ops: Ops, **changes: Any) -> Any:
    fields: dict[str, Any] = {
        "ids": ops.i32([0] * 9),
        "positions": ops.i32(range(9)),
        "sequence": ops.i32([0] * 9),
        "block_table": ops.i32([[0]]),
        "runs": [9],
        "run_starts": ops.i32([0, 9]),
        "state_in": ops.i32([0]),
        "state_out": ops.i32([-1] * 8 + [0]),
    }
    return core.Batch(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"runs": []}, "batch.runs must be told"),
        ({"run_starts": [0, 8]}, "runs end at row 8 of 9"),
        ({"state_in": [2]}, "state 2 of 2"),
        ({"state_in": [-2]}, "state -2 of 2"),
        ({"state_out": [-1] * 8 + [2]}, "state 2 of 2 for row 8"),
        ({"state_out": [0] + [-1] * 8}, "state 0 of 2 for row 0 of a run of 9"),
        ({"sequence": [1] * 9}, "sequence 1 of 1"),
    ],
)
@pytest.mark.parametrize("op", ["causal_conv", "delta_rule"])
def test_a_batch_that_lies_outside_is_refused(op: str, changes: dict[str, Any], message: str) -> None:
    ops, heads = Ops(), TWO
    told = {n: x if n == "runs" else ops.i32(x) for n, x in changes.items()}
    batch = batch_of(ops, **told)
    x, n = ops.f32(np.zeros((9, heads.channels))), heads.channels

    def encode(enc: Any) -> None:
        if op == "causal_conv":
            state = core.RecurrentLayer(conv=ops.f32(np.zeros((2, 3, n))))
            enc.causal_conv(ops.empty(9, n), x, ops.f32(np.zeros((n, 4))), state, batch)
        else:
            state = core.RecurrentLayer(delta=ops.f32(np.zeros((2, 2, 12, 16))))
            gates = core.DeltaGates(*(ops.f32(np.zeros(s)) for s in ((9, 2), (9, 2), (2,), (2,))))
            enc.delta_rule(ops.empty(9, heads.values), x, gates, heads.core(), state, batch)

    with pytest.raises(Exception, match=message):
        ops.run(encode)


def test_a_convolution_that_is_too_wide_is_refused() -> None:
    ops, n = Ops(), 4
    state = core.RecurrentLayer(conv=ops.f32(np.zeros((2, 16, n))))
    x, y = ops.f32(np.zeros((9, n))), ops.empty(9, n)
    with pytest.raises(Exception, match="1 to 16 inputs of each"):
        ops.begin().causal_conv(y, x, ops.f32(np.zeros((n, 17))), state, batch_of(ops))
