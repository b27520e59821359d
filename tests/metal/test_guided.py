"""Guided decoding on the Metal device: the forward runs ahead, its draw waits for the mask."""

from __future__ import annotations

import time

import numpy as np
import pytest

import saragossa.errors
from metal.emulator import Emulator
from metal.models import GREEDY, NAME, PROMPT, SAMPLED, drawn, fault, idle, loaded, session
from saragossa import _core

pytestmark = pytest.mark.usefixtures("unchecked")


def mask_after(token: int, vocab: int) -> list[int]:
    """Allowed next to `token`: a third of the vocabulary that depends on it."""
    allowed = np.zeros(-(-vocab // 32) * 32, bool)
    allowed[token % 3 : vocab : 3] = True
    words: list[int] = np.packbits(allowed, bitorder="little").view("<u4").tolist()
    return words


def guided(core: _core.Session, vocab: int, count: int, options: dict[str, object]) -> list[int]:
    core.configure(0, **options)
    core.set_mask(0, mask_after(PROMPT[-1], vocab))
    core.prefill(0, PROMPT, True)
    ids = [core.drawn(0)[0]]
    while len(ids) < count:
        core.set_mask(0, mask_after(ids[-1], vocab))
        core.step([0])
        ids.append(core.drawn(0)[0])
    return ids


@pytest.mark.parametrize("options", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_guided_ids_are_those_without_running_ahead(
    options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = loaded(NAME)
    vocab = model.spec.decoder.vocab
    got = guided(_core.Session(model.model, 1, model.context), vocab, 16, options)
    for before, token in zip([PROMPT[-1], *got], got, strict=False):
        assert token % 3 == before % 3
    assert guided(session(NAME, device="cpu"), vocab, 16, options) == got
    monkeypatch.setenv("SARAGOSSA_RUN_AHEAD", "off")
    assert guided(session(NAME), vocab, 16, options) == got


def test_a_guided_token_is_two_command_buffers(emulator: Emulator) -> None:
    """The forward of the next token is committed before the host knows its mask, and is not thrown away."""
    model = loaded(NAME)
    vocab = model.spec.decoder.vocab

    def counted(count: int, *, mask: bool) -> tuple[list[int], dict[str, int]]:
        """Command buffers after each step, and all counters when the last one ahead is done."""
        core = _core.Session(model.model, 1, model.context)
        guided(core, vocab, 3, GREEDY)
        if not mask:
            core.set_mask(0, [])
        core.step([0])
        idle(model)
        emulator.counters(reset=True)
        buffers = []
        for _ in range(count):
            if mask:
                core.set_mask(0, mask_after(core.drawn(0)[0], vocab))
            core.step([0])
            buffers.append(emulator.counters()["command_buffers"])
        core.configure(0)  # waits
        return buffers, emulator.counters()

    buffers, free = counted(8, mask=False)
    assert buffers == list(range(1, 9))
    assert free["host_waits"] == 0
    buffers, one = counted(8, mask=True)
    assert buffers == list(range(2, 17, 2))
    assert one["host_waits"] == 0
    assert one["encoders"] == 16
    assert one["dispatches"] == free["dispatches"]  # no forward was for nothing


def test_a_forward_that_runs_ahead_does_not_wait_for_its_mask(emulator: Emulator) -> None:
    model = loaded(NAME)
    core = _core.Session(model.model, 1, model.context)
    guided(core, model.spec.decoder.vocab, 3, GREEDY)
    core.set_mask(0, mask_after(core.drawn(0)[0], model.spec.decoder.vocab))
    idle(model)
    emulator.counters(reset=True)
    core.step([0])
    wanted = 3 + 8 * len(model.spec.decoder.layers)  # the draw, and the layers of the next forward
    until = time.monotonic() + 20
    while emulator.counters()["dispatches"] < wanted and time.monotonic() < until:
        time.sleep(0.01)
    assert emulator.counters()["dispatches"] >= wanted


def test_masks_come_and_go_between_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set, removed, for one row of two, with rewinds and other rows between: as without running ahead."""

    def run() -> list[tuple[int, int]]:
        model = loaded(NAME)
        vocab = model.spec.decoder.vocab
        core = _core.Session(model.model, 2, model.context)
        drawn(core, 0, PROMPT, 1, SAMPLED)
        drawn(core, 1, PROMPT[:11], 1, {"temperature": 1.0, "seed": 5})
        out = []
        for i in range(24):
            if i % 8 in (2, 3, 4, 5):
                core.set_mask(0, mask_after(core.drawn(0)[0], vocab))
            if i % 8 == 6:
                core.set_mask(0, [])
            if i == 12:
                core.snapshot(0)
            if i == 13:
                core.rewind(1, 5)
                core.prefill(1, PROMPT[:4], True)
            core.step([0] if i in (3, 19) else [0, 1])
            out.append((core.drawn(0)[0], core.drawn(1)[0]))
        return out

    ahead = run()
    monkeypatch.setenv("SARAGOSSA_RUN_AHEAD", "off")
    assert run() == ahead


@pytest.mark.parametrize("after", range(6))
def test_a_guided_step_that_fails_leaves_the_row_where_it_stood(emulator: Emulator, after: int) -> None:
    """The forward fails, or the draw."""
    model = loaded(NAME)
    vocab = model.spec.decoder.vocab
    core = _core.Session(model.model, 1, model.context)
    want = guided(core, vocab, 12, SAMPLED)
    core.rewind(0, 0)
    ids = guided(core, vocab, 4, SAMPLED)
    failures: list[str] = []
    with fault(emulator, after):
        while len(ids) < 12:
            core.set_mask(0, mask_after(ids[-1], vocab))
            try:
                core.step([0])
            except saragossa.errors.DeviceError as error:
                failures.append(str(error))
                continue
            ids.append(core.drawn(0)[0])
    assert len(failures) == 1
    assert "GPU" in failures[0]
    assert ids == want


def test_a_session_that_goes_takes_a_forward_without_its_draw_with_it(emulator: Emulator) -> None:
    model = loaded(NAME)
    vocab = model.spec.decoder.vocab
    free = model.model.free_blocks
    want = guided(_core.Session(model.model, 1, model.context), vocab, 6, SAMPLED)
    core = _core.Session(model.model, 1, model.context)
    emulator.set("check", True)  # a buffer that is gone while the GPU uses it would be found
    emulator.set("lazy_ms", 100)  # the forward has not begun when the session goes
    try:
        guided(core, vocab, 3, SAMPLED)
        del core
    finally:
        emulator.set("lazy_ms", 0)
    emulator.set("check", False)
    assert model.model.free_blocks == free
    assert guided(_core.Session(model.model, 1, model.context), vocab, 6, SAMPLED) == want


def test_a_checked_guided_session_leaves_no_finding(emulator: Emulator) -> None:
    emulator.set("check", True)
    emulator.set("order", "random")
    model = loaded(NAME)
    core = _core.Session(model.model, 1, model.context)
    assert len(guided(core, model.spec.decoder.vocab, 6, SAMPLED)) == 6
