"""The gated delta net on the Metal device: what a row's bits may depend on, and what a step costs."""

from __future__ import annotations

import numpy as np
import pytest

from metal.emulator import Emulator
from metal.models import session
from saragossa import _core_test as core
from unit.ops.cases import Array, Arrays, Case, normal
from unit.ops.cases_delta import (
    BENCH_HEADS,
    ODD,
    WIDE,
    Heads,
    Run,
    Steps,
    conv_case,
    delta_case,
    delta_inputs,
    encode_delta,
)
from unit.ops.harness import Ops, error, read

ROW_INPUTS = ("qkv", "a", "b", "z", "x")
FEW = Steps((Run(3, 0, "place-each"), Run(1, 1, "last"), Run(8, -1, "each")))
MANY = Steps((Run(40, 0, "place"), Run(1, 2, "last"), Run(70, -1, "last")))
# Runs by chunks, runs row by row and single rows; states kept in place, in new slots, and nowhere.
MIXED = Steps(
    (Run(65, 0, "place"), Run(3, 1, "each"), Run(130, -1, "last"), Run(63, 2, "last"), Run(64, 3, "none"))
)
SMALL = Heads(1, 2, 16, 8)


@pytest.fixture(scope="module")
def metal() -> Ops:
    return Ops(device="metal")


@pytest.fixture(scope="module")
def chunked() -> Ops:
    """As the default path is; `metal` has float32 activations, the exact mode, and goes row by row."""
    return Ops(device="metal", activations="int15")


def run(ops: Ops, case: Case, a: Arrays) -> dict[str, Array]:
    enc = ops.begin()
    out = case.encode(ops, enc, a)
    enc.submit().wait()
    return read(out)


@pytest.mark.usefixtures("checked")
@pytest.mark.parametrize("steps", [FEW, MANY], ids=["few", "many"])
@pytest.mark.parametrize("heads", [ODD, WIDE], ids=str)
def test_fused_equals_parts_bit_for_bit(metal: Ops, emulator: Emulator, heads: Heads, steps: Steps) -> None:
    parts = Ops(device="metal", fused=False)
    for case in (conv_case("", steps, 4, heads, fused=True), delta_case("", steps, heads, norm=True)):
        a = case.inputs()
        for order in ("random", "reversed"):
            emulator.set("order", order)
            got, want = run(metal, case, a), run(parts, case, a)
            for name in want:
                assert got[name].tobytes() == want[name].tobytes(), (case.op, name)


@pytest.mark.usefixtures("checked")
@pytest.mark.parametrize("rows", [1, 2, 3, 8, 9, 35])
@pytest.mark.parametrize("heads", [ODD, Heads(1, 2, 64, 32)], ids=str)
def test_rows_at_once_equal_rows_one_by_one(metal: Ops, rows: int, heads: Heads) -> None:
    """Up to 8 with the state after each, as a draft is verified; more: the kernel for prompts."""
    steps = Steps((Run(rows, 0, "each" if rows <= 8 else "last"),))
    one = Steps((Run(1, 0, "place"),))
    rng = np.random.default_rng(rows)
    a = delta_inputs(rng, steps, heads, "usual")
    conv = {"x": normal(rng, rows, heads.channels), "w": normal(rng, heads.channels, 4)}
    conv["state"] = steps.state(rng, 3, heads.channels)
    for many, single, inputs in (
        (conv_case("", steps, 4, heads, fused=True), conv_case("", one, 4, heads, fused=True), conv),
        (delta_case("", steps, heads, norm=True), delta_case("", one, heads, norm=True), a),
    ):
        together = run(metal, many, inputs)
        state = inputs["state"][:2]
        for t, slot in enumerate(steps.outs()[0]):
            part = {n: x[t : t + 1] if n in ROW_INPUTS else x for n, x in inputs.items()}
            got = run(metal, single, part | {"state": state})
            state = got["state"]
            assert got["y"][0].tobytes() == together["y"][t].tobytes(), (many.op, t)
            if slot >= 0:
                assert state[0].tobytes() == together["state"][slot].tobytes(), (many.op, t)


@pytest.mark.usefixtures("checked")
def test_other_runs_do_not_change_a_bit(metal: Ops) -> None:
    case = delta_case("", MANY, WIDE, norm=True)
    a, starts = case.inputs(), MANY.starts()
    together = run(metal, case, a)
    for i, one in enumerate(MANY.runs):
        rows = slice(starts[i], starts[i + 1])
        alone = Steps((Run(one.rows, 0 if one.start >= 0 else -1, one.keep),))
        part = {n: x[rows] if n in ROW_INPUTS else x for n, x in a.items()}
        part["state"] = np.full((alone.outs()[1], *a["state"].shape[1:]), np.nan, np.float32)
        if one.start >= 0:
            part["state"][0] = a["state"][one.start]
        got = run(metal, delta_case("", alone, WIDE, norm=True), part)
        assert got["y"].tobytes() == together["y"][rows].tobytes(), i


@pytest.mark.usefixtures("checked")
@pytest.mark.parametrize("decays", ["slow", "fast", "mixed"])
def test_prompts_at_the_extremes_of_decay(metal: Ops, decays: str) -> None:
    case = delta_case("", Steps((Run(130, 0, "place"),)), Heads(1, 2, 16, 8), decays)
    a = case.inputs()
    got, want = run(metal, case, a), case.reference(a)
    for name in want:
        assert error(got[name], want[name]) < 1e-5, name


@pytest.mark.usefixtures("checked")
@pytest.mark.parametrize("bad", [-2, 2, 1 << 30])
def test_a_slot_that_does_not_exist(metal: Ops, emulator: Emulator, bad: int) -> None:
    """The host has refused it where it could; a kernel neither reads nor writes outside."""
    steps, heads = Steps((Run(1, 0, "place"),)), ODD
    a = delta_inputs(np.random.default_rng(0), steps, heads, "usual")
    for where in ("state_in", "state_out"):
        batch = core.Batch(
            ids=metal.i32([0]),
            positions=metal.i32([0]),
            sequence=metal.i32([0]),
            block_table=metal.i32([[0]]),
            runs=[1],
            run_starts=metal.i32([0, 1]),
            state_in=metal.i32([bad if where == "state_in" else 0]),
            state_out=metal.i32([bad if where == "state_out" else 0]),
        )
        y, state = metal.empty(1, heads.values), metal.f32(a["state"])
        conv, out = metal.f32(np.ones((2, 3, heads.channels))), metal.empty(1, heads.channels)
        layer = core.RecurrentLayer(conv, state)
        gates = core.DeltaGates(*(metal.f32(a[name]) for name in ("a", "b", "a_log", "dt_bias")))
        enc = metal.begin()
        qkv, w = metal.f32(a["qkv"]), metal.f32(np.ones((heads.channels, 4)))
        enc.causal_conv(out, qkv, w, layer, batch)
        enc.delta_rule(y, qkv, gates, heads.core(), layer, batch)
        enc.submit().wait()
        assert emulator.reports() == []
        assert np.isnan(y.numpy()).all() == (where == "state_in")
        assert np.isnan(out.numpy()).all() == (where == "state_in")
        if where == "state_out":
            assert state.numpy().tobytes() == a["state"].tobytes()
            assert (conv.numpy() == 1).all()


@pytest.mark.parametrize("rows", [1, 4])
def test_a_step_reads_a_state_once_and_writes_it_once_a_row(
    metal: Ops, emulator: Emulator, rows: int
) -> None:
    """At the shape of Qwen3.6-35B-A3B: two dispatches, and no byte twice that matters."""
    heads, width = BENCH_HEADS, 4
    steps = Steps((Run(rows, 0, "place" if rows == 1 else "each"),))
    a = delta_inputs(np.random.default_rng(0), steps, heads, "usual")
    with emulator.traced() as counted:
        metal.run(lambda e: encode_delta(metal, e, a, steps, heads, norm=True))
    (delta,) = counted["dispatch_list"]
    assert delta["kernel"] == "delta_rule_step"
    state, row = heads.values * heads.key_dim * 4, 4 * rows
    small = 4 * (rows + 2 + 1 + 1)  # run_starts, sequence, state_in, state_out
    inputs = row * (heads.channels + heads.values + 2 * heads.value_heads) + 4 * (
        2 * heads.value_heads + heads.value_dim
    )
    assert delta["unique_written"] == rows * state + row * heads.values
    assert state + inputs <= delta["unique_read"] <= state + inputs + row * heads.values + small + 64
    (states,) = [b for b in delta["buffers"] if b["unique_written"] == rows * state]
    assert states["requested_read"] == states["unique_read"] == state
    assert states["requested_written"] == rows * state

    case = conv_case("", steps, width, heads, fused=True)
    inputs_of = case.inputs()
    with emulator.traced() as counted:
        run(metal, case, inputs_of)
    (conv,) = counted["dispatch_list"]
    assert conv["kernel"] == "causal_conv"
    channels = 4 * heads.channels
    assert conv["unique_written"] == channels * rows * (1 + width - 1)
    assert conv["unique_read"] - channels * (rows + width + width - 1) <= small + 64
    large = [b for b in conv["buffers"] if b["unique_read"] >= channels]
    assert len(large) == 3  # x, w, the states
    assert all(b["requested_read"] == b["unique_read"] for b in large)


def test_prompts_take_the_kernel_for_many_rows(metal: Ops, emulator: Emulator) -> None:
    for rows, kernels in ((8, ["delta_rule_step"]), (9, ["delta_rule_rows", "gated_norm"])):
        case = delta_case("", Steps((Run(rows, 0, "last"),)), ODD, norm=True)
        a = case.inputs()
        with emulator.traced() as counted:
            run(metal, case, a)
        assert [d["kernel"] for d in counted["dispatch_list"]] == kernels


def held_to_scalar(ops: Ops, case: Case) -> Arrays:
    a = case.inputs()
    got, want = run(ops, case, a), run(Ops(), case, a)
    for name in want:
        assert error(got[name], want[name]) < 1e-5, (case.label, name)
    return got


@pytest.mark.usefixtures("checked")
@pytest.mark.parametrize("decays", ["usual", "slow", "fast", "mixed"])
@pytest.mark.parametrize("rows", [64, 65, 130, 300])
def test_chunks_equal_the_scalar_op(chunked: Ops, rows: int, decays: str) -> None:
    held_to_scalar(chunked, delta_case(f"rows{rows}", Steps((Run(rows, 0, "place"),)), SMALL, decays))


@pytest.mark.usefixtures("checked")
@pytest.mark.parametrize(
    "heads",
    [
        Heads(2, 4, 40, 12),
        Heads(1, 1, 64, 33),
        Heads(1, 2, 72, 40),
        Heads(1, 1, 136, 8),
        Heads(1, 1, 256, 40),
    ],
    ids=str,
)
def test_chunks_of_heads_of_all_sizes(chunked: Ops, heads: Heads) -> None:
    held_to_scalar(chunked, delta_case("rows70", Steps((Run(70, -1, "last"),)), heads))


@pytest.mark.usefixtures("checked")
@pytest.mark.parametrize("order", ["random", "reversed"])
def test_chunks_beside_other_runs(chunked: Ops, emulator: Emulator, order: str) -> None:
    emulator.set("order", order)
    case = delta_case("mixed", MIXED, Heads(1, 2, 24, 12))
    a, starts = case.inputs(), MIXED.starts()
    together = held_to_scalar(chunked, case)
    for i, one in enumerate(MIXED.runs):  # nor do the others show in the bits
        if one.rows < 64:
            continue
        rows = slice(starts[i], starts[i + 1])
        alone = Steps((Run(one.rows, 0 if one.start >= 0 else -1, one.keep),))
        part = {n: x[rows] if n in ROW_INPUTS else x for n, x in a.items()}
        part["state"] = np.full((alone.outs()[1], *a["state"].shape[1:]), np.nan, np.float32)
        if one.start >= 0:
            part["state"][0] = a["state"][one.start]
        got = run(chunked, delta_case("", alone, Heads(1, 2, 24, 12)), part)
        assert got["y"].tobytes() == together["y"][rows].tobytes(), i


@pytest.mark.usefixtures("checked")
def test_chunks_may_be_cut_apart(chunked: Ops) -> None:
    """At a multiple of 32 rows, where each part is long enough for chunks."""
    case = delta_case("", Steps((Run(170, 0, "place"),)), SMALL)
    a = case.inputs()
    whole, state, y = run(chunked, case, a), a["state"], []
    for rows in (slice(0, 96), slice(96, 170)):
        part = {n: x[rows] if n in ROW_INPUTS else x for n, x in a.items()} | {"state": state}
        got = run(chunked, delta_case("", Steps((Run(rows.stop - rows.start, 0, "place"),)), SMALL), part)
        state = got["state"]
        y.append(got["y"])
    assert np.concatenate(y).tobytes() == whole["y"].tobytes()
    assert state[0].tobytes() == whole["state"][0].tobytes()


@pytest.mark.usefixtures("checked")
@pytest.mark.parametrize("bad", [-2, 2])
def test_chunks_and_a_slot_that_does_not_exist(chunked: Ops, bad: int) -> None:
    steps = Steps((Run(64, 0, "place"),))
    a = delta_inputs(np.random.default_rng(0), steps, SMALL, "usual")
    for where in ("state_in", "state_out"):
        batch = core.Batch(
            ids=chunked.i32(np.zeros(64)),
            positions=chunked.i32(np.arange(64)),
            sequence=chunked.i32(np.zeros(64)),
            block_table=chunked.i32([[0]]),
            runs=[64],
            run_starts=chunked.i32([0, 64]),
            state_in=chunked.i32([bad if where == "state_in" else 0]),
            state_out=chunked.i32([-1] * 63 + [bad if where == "state_out" else 0]),
        )
        y, state = chunked.empty(64, SMALL.values), chunked.f32(a["state"])
        gates = core.DeltaGates(*(chunked.f32(a[name]) for name in ("a", "b", "a_log", "dt_bias")))
        enc = chunked.begin()
        enc.delta_rule(y, chunked.f32(a["qkv"]), gates, SMALL.core(), core.RecurrentLayer(delta=state), batch)
        enc.submit().wait()
        assert np.isnan(y.numpy()).all() == (where == "state_in")
        if where == "state_out":
            assert state.numpy().tobytes() == a["state"].tobytes()


def test_which_runs_go_by_chunks(metal: Ops, chunked: Ops, emulator: Emulator) -> None:
    off = Ops(device="metal", activations="int15", chunked_delta=False)
    rows, chunks = "delta_rule_rows", "delta_rule_chunks"
    for ops, steps, heads, kernels in (
        (chunked, Steps((Run(512, 0, "place"),)), SMALL, [chunks]),
        (chunked, Steps((Run(64), Run(200))), SMALL, [chunks]),
        (chunked, Steps((Run(63),)), SMALL, [rows]),
        (chunked, MIXED, SMALL, [chunks, rows]),
        (chunked, Steps((Run(512, 0, "place"),)), ODD, [rows]),  # keys of 20
        (off, Steps((Run(512, 0, "place"),)), SMALL, [rows]),
        (metal, Steps((Run(512, 0, "place"),)), SMALL, [rows]),
    ):
        case = delta_case("", steps, heads)
        a = case.inputs()
        with emulator.traced() as counted:
            run(ops, case, a)
        assert [d["kernel"] for d in counted["dispatch_list"]] == kernels, (steps, heads)


def test_gpus_without_simdgroup_matrices_go_row_by_row(emulator: Emulator) -> None:
    case = delta_case("", Steps((Run(64, 0, "place"),)), SMALL)
    with emulator.mac(gpu_family=5), emulator.traced() as counted:
        run(Ops(device="metal", activations="int15"), case, case.inputs())
    assert [d["kernel"] for d in counted["dispatch_list"]] == ["delta_rule_rows"]


def test_a_chunk_reads_the_state_once_a_run(chunked: Ops, emulator: Emulator) -> None:
    steps, heads = Steps((Run(512, 0, "place"),)), Heads(1, 2, 128, 64)
    a = delta_inputs(np.random.default_rng(0), steps, heads, "usual")
    with emulator.traced() as counted:
        chunked.run(lambda e: encode_delta(chunked, e, a, steps, heads, norm=True))
    delta, norm = counted["dispatch_list"]
    assert (delta["kernel"], norm["kernel"]) == ("delta_rule_chunks", "gated_norm")
    state = 4 * heads.values * heads.key_dim
    (states,) = [b for b in delta["buffers"] if b["requested_read"] and b["requested_written"]]
    assert states["requested_read"] == states["requested_written"] == state
    assert delta["unique_written"] == state + 4 * 512 * heads.values


def test_keys_that_are_too_long_are_refused(metal: Ops) -> None:
    case = delta_case("", Steps((Run(1),)), Heads(1, 1, 260, 4))
    with pytest.raises(Exception, match="keys of 260, at most 256"):
        run(metal, case, case.inputs())


@pytest.mark.usefixtures("unchecked")
def test_a_model_takes_chunks_and_its_switch(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt of 150 tokens, on the default path and with the switch off: other sums, the same logits."""
    prompt = [2] + [4 + (7 * i * i + 13 * i + 5) % 250 for i in range(149)]

    def logits() -> tuple[Array, set[str]]:
        with emulator.traced() as counted:
            out = session("../families/qwen3_5-q4g32", exact=False).logits(0, prompt)
        return out, {d["kernel"] for d in counted["dispatch_list"]}

    chunks, kernels = logits()
    assert "delta_rule_chunks" in kernels
    assert "delta_rule_rows" not in kernels
    monkeypatch.setenv("SARAGOSSA_CHUNKED_DELTA", "off")
    rows, kernels = logits()
    assert "delta_rule_rows" in kernels
    assert "delta_rule_chunks" not in kernels
    assert not np.array_equal(chunks, rows)
    assert np.abs(chunks - rows).max() < 1e-3, np.abs(chunks - rows).max()
