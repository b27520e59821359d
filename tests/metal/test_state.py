"""Recurrent states and windows of sessions on the Metal device: steps that run ahead and are dropped, cuts,
rewinds, forks, rows that come and go, faults. tests/e2e/test_state.py has the CPU's forms; here sums have
another order, so that logits are near and drawn ids the same.
"""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import numpy as np
import pytest

import saragossa.errors
from metal.emulator import Emulator
from metal.models import GREEDY, SAMPLED, drawn, fault, idle, loaded, session, steps
from metal.test_guided import guided, mask_after
from saragossa import _core
from saragossa.errors import SnapshotNeededError

pytestmark = pytest.mark.usefixtures("unchecked")

HYBRIDS = ("qwen3_5-q4g32", "qwen3_5_moe-q4g64", "qwen3_next-q4g32")
NAMES = (*HYBRIDS, "gemma4-e2b-q4g32")
PROMPT = [2] + [4 + (7 * i * i + 13 * i + 5) % 250 for i in range(95)]
TOLERANCE = 1e-4


def run(core: _core.Session, cuts: list[int], row: int = 0) -> np.ndarray:
    """From where the row stands to the cuts, marked at each, then the logits behind the rest."""
    ends = [core.length(row), *[cut for cut in cuts if cut > core.length(row)]]
    for begin, end in pairwise(ends):
        core.prefill(row, PROMPT[begin:end], False)
        core.mark(row)
    return cast(np.ndarray, core.logits(row, PROMPT[ends[-1] :])[-1])


@pytest.mark.parametrize("name", NAMES)
def test_wherever_it_is_cut_and_rewound(name: str) -> None:
    model = loaded(name)
    fresh = run(_core.Session(model.model, 1, model.context), [])
    core = _core.Session(model.model, 1, model.context)
    for cuts, back in (([1, 2, 31, 33], 96), ([17, 64, 80, 95], 80), ([70, 71], 40), ([3, 95], 0)):
        core.rewind(0, core.rewindable(0, min(back, core.length(0))))
        assert np.abs(run(core, cuts) - fresh).max() < TOLERANCE, cuts


@pytest.mark.parametrize("name", NAMES)
def test_a_step_that_is_dropped_leaves_the_state(name: str) -> None:
    """A step runs ahead behind every drawn token; what is asked for next has to find the state without it."""
    model = loaded(name)

    def new() -> _core.Session:
        return _core.Session(model.model, 2, model.context)

    def after(tokens: list[int]) -> np.ndarray:
        return cast(np.ndarray, new().logits(0, tokens)[-1])

    core = new()
    drawn_ids = drawn(core, 0, PROMPT[:20], 5, GREEDY)
    text = PROMPT[:20] + drawn_ids[:-1]  # the last one was not run
    near = {"atol": TOLERANCE, "rtol": 0.0}
    # settled by a prompt in the middle
    assert np.allclose(core.logits(0, [9, 8, 7])[-1], after([*text, 9, 8, 7]), **near)
    # by a mark and a rewind to it
    core.prefill(0, [6], True)
    text += [9, 8, 7, 6]
    core.mark(0)
    steps(core, 0, 3)
    core.rewind(0, len(text))
    assert np.allclose(core.logits(0, [5])[-1], after([*text, 5]), **near)
    # by a snapshot, that both rows restore
    core.rewind(0, len(text))
    core.prefill(0, [11], True)
    more = [core.drawn(0)[0], *steps(core, 0, 2)]
    kept = core.snapshot(0)
    text += [11, *more[:-1]]
    assert kept.length == len(text)
    steps(core, 0, 2)
    core.restore(1, kept)
    core.restore(0, kept)
    for row in (0, 1):
        assert np.allclose(core.logits(row, [12])[-1], after([*text, 12]), **near)


@pytest.mark.parametrize("name", HYBRIDS[:1])
def test_a_place_behind_a_step_ahead_needs_a_snapshot(name: str) -> None:
    core = session(name)
    drawn(core, 0, PROMPT[:20], 4, GREEDY)
    with pytest.raises(SnapshotNeededError):
        core.rewind(0, 21)
    assert core.length(0) == 23
    assert core.rewindable(0, 23) == 23


def talk(core: _core.Session) -> list[int]:
    """Steps of two rows or of one, prompts, marks, rewinds, snapshots between them: all that is drawn."""
    ids = drawn(core, 0, PROMPT[:24], 1, SAMPLED)
    core.mark(0)
    ids += drawn(core, 1, PROMPT[:7], 1, {"temperature": 0.9, "seed": 2, "presence_penalty": 2.0})
    for turn in range(3):
        for rows in ([0, 1], [1, 0], [0], [0], [0, 1]):
            core.step(rows)
            ids += [core.drawn(row)[0] for row in rows]
        if turn == 0:
            core.rewind(0, 24)
        if turn == 1:
            core.restore(1, core.snapshot(0))
            core.configure(0, temperature=0.9, seed=3)
            core.prefill(1, [9], True)
        core.mark(turn % 2)
        core.prefill(turn % 2, ids[-3:], True)
        ids.append(core.drawn(turn % 2)[0])
        if not turn:
            core.step([1, 0])
    return ids


@pytest.mark.parametrize("name", NAMES)
def test_what_is_drawn_does_not_depend_on_running_ahead(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = talk(session(name, rows=2))
    assert talk(session(name, rows=2, device="cpu")) == ahead
    monkeypatch.setenv("SARAGOSSA_RUN_AHEAD", "off")
    assert talk(session(name, rows=2)) == ahead


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_come_and_go_do_not_touch_each_other(name: str) -> None:
    model = loaded(name)
    lengths, counts = [5, 40, 17, 29], [9, 3, 6, 8]
    alone = [
        drawn(_core.Session(model.model, 1, model.context), 0, PROMPT[:n], 1 + c, GREEDY)
        for n, c in zip(lengths, counts, strict=True)
    ]
    core = _core.Session(model.model, len(lengths), model.context)
    got: list[list[int]] = []

    def step(rows: list[int]) -> None:
        core.step(rows)
        for row in rows:
            got[row].append(core.drawn(row)[0])

    for row, length in enumerate(lengths):  # each joins while those before decode
        got.append(drawn(core, row, PROMPT[:length], 1, GREEDY))
        step([r for r in range(row + 1) if len(got[r]) <= counts[r]])
    while live := [r for r in range(len(lengths)) if len(got[r]) <= counts[r]]:
        step(live[::-1])
    assert got == alone


@pytest.mark.parametrize("name", HYBRIDS)
@pytest.mark.parametrize("after", [0, 2])
def test_a_failed_step_leaves_the_state(emulator: Emulator, name: str, after: int) -> None:
    """Of two rows, while the next one runs ahead; and a prompt that fails."""
    model = loaded(name)
    core = _core.Session(model.model, 2, model.context)
    want = [drawn(core, row, PROMPT[: 20 + row], 1, SAMPLED) for row in (0, 1)]
    core.mark(0)
    for _ in range(9):
        core.step([0, 1])
        for row in (0, 1):
            want[row].append(core.drawn(row)[0])
    core = _core.Session(model.model, 2, model.context)
    ids = [drawn(core, row, PROMPT[: 20 + row], 1, SAMPLED) for row in (0, 1)]
    failures = 0
    with fault(emulator, after):
        while len(ids[0]) < 6:
            try:
                core.step([0, 1])
            except saragossa.errors.DeviceError:
                failures += 1
                continue
            for row in (0, 1):
                ids[row].append(core.drawn(row)[0])
    assert failures == 1
    core.snapshot(0)
    idle(model)
    slots, blocks = model.model.free_slots, model.model.free_blocks
    with fault(emulator, 0), pytest.raises(saragossa.errors.DeviceError):
        core.prefill(0, PROMPT[:30], True)
    assert (model.model.free_slots, model.model.free_blocks) == (slots, blocks)
    while len(ids[0]) < 10:
        core.step([0, 1])
        for row in (0, 1):
            ids[row].append(core.drawn(row)[0])
    assert ids == want


@pytest.mark.parametrize("name", [HYBRIDS[0], NAMES[-1]])
def test_guided_ids_are_those_without_running_ahead(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    vocab = loaded(name).spec.decoder.vocab
    got = guided(session(name), vocab, 12, SAMPLED)
    assert guided(session(name, device="cpu"), vocab, 12, SAMPLED) == got
    monkeypatch.setenv("SARAGOSSA_RUN_AHEAD", "off")
    assert guided(session(name), vocab, 12, SAMPLED) == got


@pytest.mark.parametrize("after", range(4))
def test_a_guided_step_that_fails_leaves_the_state(emulator: Emulator, after: int) -> None:
    """The forward fails, or the draw."""
    model = loaded(HYBRIDS[0])
    vocab = model.spec.decoder.vocab
    core = _core.Session(model.model, 1, model.context)
    want = guided(core, vocab, 9, SAMPLED)
    core.rewind(0, 0)
    ids = guided(core, vocab, 4, SAMPLED)
    failures = 0
    with fault(emulator, after):
        while len(ids) < 9:
            core.set_mask(0, mask_after(ids[-1], vocab))
            try:
                core.step([0])
            except saragossa.errors.DeviceError:
                failures += 1
                continue
            ids.append(core.drawn(0)[0])
    assert failures == 1
    assert ids == want


def test_states_grow_while_a_step_runs_ahead() -> None:
    """Slots double where none is free; the states in use keep what they had."""
    model = loaded(HYBRIDS[0])
    alone = _core.Session(model.model, 1, model.context)
    want = drawn(alone, 0, PROMPT[:20], 24, GREEDY)
    core = _core.Session(model.model, 1, model.context)
    ids, kept = drawn(core, 0, PROMPT[:20], 1, GREEDY), []
    for _ in range(23):
        ids += steps(core, 0, 1)
        kept.append(core.snapshot(0))  # holds a slot
    assert ids == want
    for at in (22, 3, 0):
        core.restore(0, kept[at])
        core.prefill(0, [want[at + 1]], True)
        assert core.drawn(0)[0] == want[at + 2] if at + 2 < len(want) else True


def test_states_are_given_back(emulator: Emulator) -> None:
    model = loaded(HYBRIDS[0])
    slots, blocks = model.model.free_slots, model.model.free_blocks
    emulator.set("lazy_ms", 20)  # the step ahead has not begun when the session goes
    try:
        core = _core.Session(model.model, 2, model.context)
        for row in (0, 1):
            drawn(core, row, PROMPT[:9], 3, GREEDY)
        core.step([0, 1])
        kept = core.snapshot(0)
        core.step([0, 1])
        del core
    finally:
        emulator.set("lazy_ms", 0)
    assert slots - model.model.free_slots == 1
    del kept
    assert (model.model.free_slots, model.model.free_blocks) == (slots, blocks)
