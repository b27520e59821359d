"""Long prefills are several command buffers, none with more work than the bound, and give what one gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import saragossa.errors
from metal.emulator import Emulator
from metal.models import NAME, PROMPT, SAMPLED, drawn, fault, idle, loaded, steps
from saragossa import _core
from saragossa import _core_test as core
from unit.ops.cases import Paged, attention_case
from unit.ops.harness import Array, Ops, error, read
from unit.ops.test_linear import inputs, make

pytestmark = pytest.mark.usefixtures("unchecked")

Encode = Callable[[Ops, Any], Any]  # returns y


def run(emulator: Emulator, encode: Encode, bound: int, **switches: bool) -> tuple[Array, int, int]:
    """y, command buffers and dispatches of one op on a device with this bound."""
    ops = Ops(device="metal", metal_command_macs=bound, **switches)
    enc = ops.begin()
    emulator.counters(reset=True)
    y = encode(ops, enc)
    enc.submit().wait()
    counters = emulator.counters()
    return np.asarray(y.numpy()), counters["command_buffers"], counters["dispatches"]


def linear(rows: int, op: str = "linear") -> tuple[Encode, int]:
    """The op, and its multiply-adds a row."""
    case = make(70, 192, 4, 64, "bf16")

    def encode(ops: Ops, enc: Any) -> Any:
        x, w, y = ops.f32(inputs(rows, case.n_in)), case.weight(ops), ops.f32(np.ones((rows, case.out)))
        if op == "linear":
            enc.linear(y, x, w)
        elif op == "linear_add":
            enc.linear_add(y, x, w)
        elif op == "linear_gated":
            enc.linear_gated(y, x, w, w, "silu")
        else:
            enc.linear_group(x, [core.LinearOut(y, w), core.LinearOut(ops.empty(rows, case.out), w)])
        return y

    return encode, (1 if op in ("linear", "linear_add") else 2) * case.out * case.n_in


@pytest.mark.parametrize("op", ["linear", "linear_add", "linear_gated", "linear_group"])
@pytest.mark.parametrize("switches", [{}, {"metal_matmul": False}], ids=["matmul", "matvec"])
@pytest.mark.parametrize(
    ("rows", "fit", "tiles", "buffers"), [(200, 64, 4, 4), (200, 130, 2, 2), (100, 50, 4, 3), (40, 1, 3, 3)]
)
def test_a_linear_is_cut_by_rows(
    emulator: Emulator, op: str, switches: dict[str, bool], rows: int, fit: int, tiles: int, buffers: int
) -> None:
    """Tiles of the most rows that fit the bound: multiples of 64, else a power of two, 16 at least.

    The rest of the rows goes with the tile in front of it where both fit.
    """
    encode, work = linear(rows, op)
    whole, one, dispatches = run(emulator, encode, 0, **switches)
    assert (one, dispatches) == (1, 1)
    cut, several, dispatches = run(emulator, encode, fit * work, **switches)
    assert (several, dispatches) == (buffers, tiles)
    assert cut.tobytes() == whole.tobytes()


def test_tensor_operations_are_cut_by_rows(emulator: Emulator) -> None:
    emulator.set("gpu_family", 10)
    try:
        encode, work = linear(200)
        whole, one, _ = run(emulator, encode, 0)
        cut, several, _ = run(emulator, encode, 64 * work)
    finally:
        emulator.set("gpu_family", 9)
    assert (one, several) == (1, 4)
    assert cut.tobytes() == whole.tobytes()


@pytest.mark.parametrize("switches", [{}, {"metal_simdgroup_attention": False}], ids=["prefill", "decode"])
@pytest.mark.parametrize("window", [0, 33])
def test_attention_is_cut_by_rows(emulator: Emulator, switches: dict[str, bool], window: int) -> None:
    """By the keys that a row can see at most: 330, or a window's 33."""
    case = attention_case("cut", Paged(((130, 200),), 6, 2, 64), window=window)
    results = []

    def encode(ops: Ops, enc: Any) -> Any:
        return case.encode(ops, enc, case.inputs())["y"]

    work = 2 * 6 * 64 * (window or 330)
    for fit, buffers in ((1 << 30, 1), (64, 4), (100, 3), (130, 2), (20, 13)):
        y, several, _ = run(emulator, encode, fit * work, **switches)
        assert several == buffers, fit
        results.append(y.tobytes())
    assert len(set(results)) == 1


def test_a_decoded_token_is_never_cut(emulator: Emulator) -> None:
    encode, _ = linear(8)
    assert run(emulator, encode, 1)[1:] == (1, 1)
    case = attention_case("eight", Paged(((130, 8),), 6, 2, 64))
    assert run(emulator, lambda ops, enc: case.encode(ops, enc, case.inputs())["y"], 1)[1] == 1


def test_a_batch_that_was_cut_leaves_no_finding(emulator: Emulator) -> None:
    emulator.set("check", True)
    emulator.set("order", "random")
    emulator.set("reorder", True)
    try:
        ops = Ops(device="metal", metal_command_macs=1)
        case = attention_case("cut", Paged(((70, 40), (9, 1)), 6, 2, 64))
        enc = ops.begin()
        emulator.counters(reset=True)
        y = case.encode(ops, enc, case.inputs())
        enc.submit().wait()
        assert emulator.counters()["command_buffers"] == 4  # tiles of 16 rows of the 40, and the one row
        got = read(y)["y"]
    finally:
        emulator.set("reorder", False)
    scalar = Ops("scalar")
    enc = scalar.begin()
    want = case.encode(scalar, enc, case.inputs())
    enc.submit().wait()
    assert error(got, read(want)["y"]) <= case.tolerance


# --- whole prefills ---------------------------------------------------------------------------------------

LONG = PROMPT * 5


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound that the prefill of LONG passes many times."""
    monkeypatch.setenv("SARAGOSSA_METAL_COMMAND_MACS", "2000000")


def test_a_long_prefill_is_several_command_buffers(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they draw, their logits and what a later token sees are those of one command buffer."""
    results = []
    for bound, least, most in (("", 1, 1), ("2000000", 10, 100)):
        monkeypatch.setenv("SARAGOSSA_METAL_COMMAND_MACS", bound)
        model = loaded(NAME)
        session = _core.Session(model.model, 1, model.context)
        session.configure(0, **SAMPLED)
        emulator.counters(reset=True)
        session.prefill(0, LONG, True)
        assert least <= emulator.counters()["command_buffers"] <= most
        assert emulator.counters()["host_waits"] == 0
        ids = [session.drawn(0)[0], *steps(session, 0, 6)]
        session.configure(0)
        emulator.counters(reset=True)
        session.step([0])
        assert emulator.counters()["command_buffers"] == 2  # this one, and the one that runs ahead
        session.rewind(0, 0)
        emulator.counters(reset=True)
        logits = session.logits(0, LONG)
        assert least <= emulator.counters()["command_buffers"] <= most
        results.append((ids, logits.tobytes()))
    assert results[0] == results[1]


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("after", [1, 5])
def test_a_failure_after_a_cut_leaves_the_session_as_it_was(emulator: Emulator, after: int) -> None:
    """The GPU fails in the second command buffer of a prefill, or later, and goes on with the next ones."""
    model = loaded(NAME)
    session = _core.Session(model.model, 1, model.context)
    want = drawn(session, 0, LONG, 4, SAMPLED)
    session.rewind(0, 0)
    session.configure(0, **SAMPLED)
    session.prefill(0, LONG[:9], True)
    kept, free = session.drawn(0), model.model.free_blocks
    with fault(emulator, after), pytest.raises(saragossa.errors.DeviceError, match="GPU did not finish"):
        session.prefill(0, LONG[9:], True)
    assert (session.length(0), session.drawn(0), model.model.free_blocks) == (9, kept, free)
    with fault(emulator, after), pytest.raises(saragossa.errors.DeviceError, match="GPU did not finish"):
        session.logits(0, LONG[9:])
    assert (session.length(0), session.drawn(0)) == (9, kept)
    session.rewind(0, 9)
    session.rewind(0, 0)
    assert drawn(session, 0, LONG, 4, SAMPLED) == want


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("after", [0, 1, 2, 5])
def test_a_step_of_many_rows_that_fails_after_a_cut(emulator: Emulator, after: int) -> None:
    """Nine rows are cut, ahead as well; whichever part fails, the rows go on from where they stood."""
    model = loaded(NAME)
    rows = range(9)

    def start(core: _core.Session) -> list[list[int]]:
        return [drawn(core, row, PROMPT[: 5 + row], 1, {**SAMPLED, "seed": row}) for row in rows]

    def step(core: _core.Session, ids: list[list[int]]) -> None:
        core.step(rows)
        for row in rows:
            ids[row].append(core.drawn(row)[0])

    core = _core.Session(model.model, 9, model.context)
    want = start(core)
    for _ in range(5):
        step(core, want)
    core = _core.Session(model.model, 9, model.context)
    got = start(core)
    emulator.counters(reset=True)
    step(core, got)
    assert emulator.counters()["command_buffers"] >= 4  # of two steps
    idle(model)
    failures: list[str] = []
    with fault(emulator, after):
        while len(got[0]) < len(want[0]):
            try:
                step(core, got)
            except saragossa.errors.DeviceError as error:
                failures.append(str(error))
    assert ["GPU did not finish" in text for text in failures] == [True]
    assert got == want


@pytest.mark.usefixtures("bounded")
def test_the_end_of_a_part_may_be_seen_late(emulator: Emulator) -> None:
    """Only who waits for a command buffer knows what became of it."""
    model = loaded(NAME)
    core = _core.Session(model.model, 1, model.context)
    want = drawn(core, 0, LONG[:60], 4, SAMPLED)
    core.rewind(0, 0)
    emulator.set("late_status", True)
    try:
        assert drawn(core, 0, LONG[:60], 4, SAMPLED) == want
        core.rewind(0, 0)
        with fault(emulator, 1), pytest.raises(saragossa.errors.DeviceError, match="GPU did not finish"):
            core.prefill(0, LONG[:60], True)
        assert core.length(0) == 0
    finally:
        emulator.set("late_status", False)


@pytest.mark.usefixtures("bounded")
def test_an_error_of_encoding_after_a_cut_waits_for_what_runs(emulator: Emulator) -> None:
    """A kernel does not compile when parts of the prefill run already."""
    emulator.set("check", True)
    model = loaded(NAME)
    session = _core.Session(model.model, 1, model.context)
    session.configure(0, **SAMPLED)
    emulator.set("fail_compile_of", "sample_scan")
    try:
        emulator.counters(reset=True)
        with pytest.raises(saragossa.errors.DeviceError, match="sample"):
            session.prefill(0, LONG[:60], True)
        assert emulator.counters()["command_buffers"] > 2
    finally:
        emulator.set("fail_compile_of", "")
    assert session.length(0) == 0
    assert len(drawn(session, 0, LONG[:60], 3, SAMPLED)) == 3
