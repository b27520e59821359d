"""The session on the Metal device: what runs ahead, faults, threads, and what is left when it is gone."""

from __future__ import annotations

import gc
import math
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable

import numpy as np
import pytest

import saragossa.errors
from metal.emulator import Emulator
from metal.models import GOLDEN, GREEDY, NAME, PROMPT, SAMPLED, drawn, fault, idle, loaded, session, steps
from saragossa import _core
from saragossa.engine.loading import Loaded, load

pytestmark = pytest.mark.usefixtures("unchecked")


# --- what runs ahead --------------------------------------------------------------------------------------


def test_what_ran_ahead_is_taken_back() -> None:
    """Asked for other things between steps, penalties and draws go on as if nothing ran ahead."""
    core = session(NAME, rows=2)
    want = drawn(core, 0, PROMPT, 20, SAMPLED)
    other = drawn(core, 1, PROMPT[:9], 8, GREEDY)
    core.rewind(0, 0)
    core.configure(0, **SAMPLED)
    core.prefill(0, PROMPT, True)
    ids, others = [core.drawn(0)[0]], []
    core.rewind(1, 0)
    core.configure(1)
    core.prefill(1, PROMPT[:9], True)
    others.append(core.drawn(1)[0])
    while len(ids) < 20:
        rows = [0, 1] if len(others) < 8 and len(ids) % 3 else [0]
        core.step(rows)
        ids.append(core.drawn(0)[0])
        if len(rows) == 2:
            others.append(core.drawn(1)[0])
    assert ids == want
    assert others == other


def test_a_session_that_goes_takes_the_step_ahead_with_it(emulator: Emulator) -> None:
    model = loaded(NAME)
    free = model.model.free_blocks
    want = drawn(_core.Session(model.model, 1, model.context), 0, PROMPT, 6, SAMPLED)
    emulator.set("check", True)  # a buffer that is gone while the GPU uses it would be found
    emulator.set("lazy_ms", 100)  # the step ahead has not begun when the session goes
    try:
        core = _core.Session(model.model, 1, model.context)
        drawn(core, 0, PROMPT, 3, SAMPLED)
        del core
    finally:
        emulator.set("lazy_ms", 0)
    emulator.set("check", False)
    assert model.model.free_blocks == free
    assert drawn(_core.Session(model.model, 1, model.context), 0, PROMPT, 6, SAMPLED) == want


# --- the cache --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kv", ["f32", "u8"])
def test_the_cache_grows(kv: str) -> None:
    """More tokens than the first allocation holds, over several rows; the early ones keep what they had."""

    def model_of() -> Loaded:
        return load(GOLDEN / NAME, device="metal", kv=kv)

    model = model_of()
    core = _core.Session(model.model, 4, model.context)
    prompt = PROMPT * 20  # 800 tokens: 4 blocks a row, 8 are there at first
    alone = _core.Session(model_of().model, 1, model.context).logits(0, prompt)[-1]
    sizes = [model.model.allocated_blocks]
    for row in range(4):
        core.prefill(row, prompt[:-1], False)
        sizes.append(model.model.allocated_blocks)
    assert sizes == [8, 8, 8, 16, 16]
    for row in range(4):
        difference = np.abs(core.logits(row, prompt[-1:])[-1] - alone).max()
        assert difference < (1e-4 if kv == "f32" else 0.05)  # another chunk may round a code the other way


def test_the_cache_grows_while_a_step_runs_ahead(emulator: Emulator) -> None:
    """Four rows of two blocks fill it; then each needs a third one in the middle of its steps."""
    model = loaded(NAME)
    prompts = [(PROMPT * 13)[i : i + 506] for i in range(4)]
    want = []
    for prompt in prompts:
        core = session(NAME)
        want.append(drawn(core, 0, prompt, 14, SAMPLED))
    core = _core.Session(model.model, 4, model.context)
    got: list[list[int]] = []
    for row, prompt in enumerate(prompts):
        got.append(drawn(core, row, prompt, 1, SAMPLED))
    assert model.model.allocated_blocks == 8
    emulator.counters(reset=True)
    for _ in range(13):
        core.step(range(4))
        for row in range(4):
            got[row].append(core.drawn(row)[0])
    assert model.model.allocated_blocks == 16
    # A step ahead at the end; growing waits with a command buffer of its own.
    assert emulator.counters()["command_buffers"] == 13 + 1 + 1
    assert got == want


# --- faults -----------------------------------------------------------------------------------------------


def test_a_failed_step_leaves_the_row_where_it_stood(emulator: Emulator) -> None:
    core = session(NAME)
    want = drawn(session(NAME), 0, PROMPT, 12, SAMPLED)
    ids = drawn(core, 0, PROMPT, 5, SAMPLED)
    with fault(emulator, 0):
        failed = ""
        for _ in range(3):  # one that runs ahead already may still succeed
            try:
                core.step([0])
            except saragossa.errors.DeviceError as error:
                failed = str(error)
                break
            ids.append(core.drawn(0)[0])
    assert "GPU" in failed
    assert ids + steps(core, 0, 12 - len(ids)) == want


def refused(core: _core.Session, call: Callable[[], object], error: type[Exception]) -> None:
    """The call fails and leaves the row's tokens and its drawn one."""
    before = core.length(0), core.drawn(0)
    with pytest.raises(error):
        call()
    assert (core.length(0), core.drawn(0)) == before


@pytest.mark.parametrize("call", ["prefill", "prefill and draw", "logits", "hidden"])
@pytest.mark.parametrize("ahead", [False, True])
def test_what_fails_leaves_the_row_as_it_was(emulator: Emulator, call: str, ahead: bool) -> None:
    """Wrong arguments and a failing GPU: the next step draws what it would have drawn, penalties and all."""
    model = loaded(NAME)
    want = drawn(_core.Session(model.model, 1, model.context), 0, PROMPT, 9, SAMPLED)
    core = _core.Session(model.model, 1, 64)
    ids = drawn(core, 0, PROMPT, 3 if ahead else 1, SAMPLED)
    free = model.model.free_blocks

    def run(tokens: list[int]) -> object:
        if call.startswith("prefill"):
            return core.prefill(0, tokens, "draw" in call)
        return core.logits(0, tokens) if call == "logits" else core.hidden(0, tokens)

    refused(core, lambda: run([]), saragossa.errors.UsageError)
    refused(core, lambda: run([5, 100000]), saragossa.errors.UsageError)
    refused(core, lambda: run(PROMPT), saragossa.errors.ContextLengthError)
    more = steps(core, 0, 2)
    idle(model)
    with fault(emulator, 0):
        # What would be drawn next: counted as a part of the prompt it would be penalised.
        refused(core, lambda: run(want[-5:]), saragossa.errors.DeviceError)
    assert model.model.free_blocks == free
    ids += more + steps(core, 0, 9 - len(ids) - 2)
    assert ids == want


def test_a_prompt_after_a_drawn_token_forgets_that_token() -> None:
    """A token that was drawn and not run is not counted any more."""
    favourite: dict[str, object] = {"presence_penalty": 60.0, "bias": [(50, 100.0), (51, 70.0)]}
    core = session(NAME)
    core.configure(0, **favourite)
    core.prefill(0, PROMPT[:20], True)
    assert core.drawn(0)[0] == 50
    core.prefill(0, PROMPT[20:], True)
    assert core.drawn(0)[0] == 50
    core.step([0])
    assert core.drawn(0)[0] == 51


def talk(core: _core.Session) -> list[int]:
    """Steps of two rows or of one, more of a prompt without `configure`, and steps: all that is drawn."""
    # Twelve favourites: which is next depends on what was drawn, and how often.
    penalties: dict[str, object] = {"presence_penalty": 8.0, "frequency_penalty": 5.0}
    penalties["bias"] = [(50 + i, 100.0 - 4 * i) for i in range(12)]
    ids = drawn(core, 0, PROMPT, 1, {"temperature": 0.9, "seed": 2, **penalties})
    ids += drawn(core, 1, PROMPT[:7], 1, penalties)
    for turn in range(3):
        for rows in ([0, 1], [1, 0], [0], [0], [0, 1]):
            core.step(rows)
            ids += [core.drawn(row)[0] for row in rows]
        core.prefill(turn % 2, ids[-4:], True)  # now they are output and prompt
        ids.append(core.drawn(turn % 2)[0])
        if turn == 1:
            core.restore(1, core.snapshot(0))
            core.prefill(1, [9], True)
            core.configure(0, temperature=0.9, seed=3, **penalties)  # with a drawn token
    return ids


@pytest.mark.parametrize("name", [NAME, "gemma3"])
def test_what_penalties_count_does_not_depend_on_running_ahead(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = talk(session(name, rows=2))
    assert talk(session(name, rows=2, device="cpu")) == ahead
    monkeypatch.setenv("SARAGOSSA_RUN_AHEAD", "off")
    assert talk(session(name, rows=2)) == ahead


@pytest.mark.parametrize("bad", ["nan", "masked"])
def test_a_row_without_a_draw_leaves_the_others(bad: str) -> None:
    """A NaN among its logits, or all tokens masked: it has no token to go on from, its neighbours do."""
    model = loaded(NAME)
    alone = [
        drawn(_core.Session(model.model, 1, model.context), 0, PROMPT[: 9 + r], 8, SAMPLED) for r in range(3)
    ]
    core = _core.Session(model.model, 3, model.context)
    got = [drawn(core, r, PROMPT[: 9 + r], 1, SAMPLED) for r in range(3)]
    if bad == "nan":
        core.configure(1, bias=[(9, math.nan)])
    else:
        core.set_mask(1, [0] * -(-model.spec.decoder.vocab // 32))
    with pytest.raises(saragossa.errors.DeviceError, match="nothing can be drawn"):
        core.step([0, 1, 2])
    with pytest.raises(saragossa.errors.UsageError, match="row 1 has no drawn token"):
        core.step([1])
    for step in range(7):
        if step:
            core.step([2, 0])
        got[0].append(core.drawn(0)[0])
        got[2].append(core.drawn(2)[0])
    assert (got[0], got[2]) == (alone[0], alone[2])


# --- rows of a batch --------------------------------------------------------------------------------------

KINDS: list[dict[str, object]] = [
    GREEDY,
    SAMPLED,
    {"temperature": 1.0, "seed": 3, "top_logprobs": 4},
    {"bias": [(60, 4.0), (61, 5.0)], "frequency_penalty": 1.5},
    {"temperature": 0.7, "seed": 9, "min_p": 0.1, "bias": [(7, 3.0), (8, 2.0), (9, 1.0)]},
]


def test_rows_that_sample_differently_draw_in_one_op(emulator: Emulator) -> None:
    """Each draws what it draws alone, in so many dispatches as the most demanding of them takes alone."""
    model = loaded(NAME)

    def new(rows: int) -> _core.Session:
        return _core.Session(model.model, rows, model.context)

    alone = [drawn(new(1), 0, PROMPT[: 10 + i], 8, kind) for i, kind in enumerate(KINDS)]
    core = new(len(KINDS))
    got = [drawn(core, i, PROMPT[: 10 + i], 1, kind) for i, kind in enumerate(KINDS)]
    order = [3, 1, 4, 0, 2]
    for count in range(7):
        rows = order if count % 2 else order[1:] + order[:1]
        core.step(rows)
        for row in range(len(KINDS)):
            got[row].append(core.drawn(row)[0])
        assert len(core.drawn(2)[1]) == 5
        assert core.drawn(1)[1] == []
    assert got == alone
    dispatches = []
    for rows in ([1], order):
        core.configure(1, **SAMPLED)  # waits
        emulator.counters(reset=True)
        core.step(rows)
        core.configure(1, **SAMPLED)
        dispatches.append(emulator.counters()["dispatches"])
    assert dispatches[0] == dispatches[1]


def test_a_row_that_was_counted_for_its_neighbours_starts_clean() -> None:
    """A batch counts all its rows where one has penalties; who asks for them later has no old counts."""
    model = loaded(NAME)
    core = _core.Session(model.model, 2, model.context)
    favourites: dict[str, object] = {"bias": [(50, 100.0), (51, 70.0)]}
    drawn(core, 0, PROMPT, 1, favourites)
    drawn(core, 1, PROMPT, 1, SAMPLED)
    core.step([0, 1])
    assert core.drawn(0)[0] == 50
    core.rewind(0, 0)
    assert drawn(core, 0, PROMPT, 2, {**favourites, "presence_penalty": 60.0}) == [50, 51]


# --- threads, and what is left ----------------------------------------------------------------------------


def test_threads_share_a_model_with_a_session_each() -> None:
    """At once; their prompts together are more than the cache holds at first."""
    prompt = PROMPT * 14  # three blocks of eight
    options = [{**SAMPLED, "seed": seed} for seed in range(3)]
    alone = session(NAME)
    want = []
    for option in options:
        want.append(drawn(alone, 0, prompt, 6, option))
        alone.rewind(0, 0)
    model = loaded(NAME)
    cores = [_core.Session(model.model, 1, model.context) for _ in options]
    got: list[list[int]] = [[] for _ in options]
    start = threading.Barrier(len(options))

    def work(i: int) -> None:
        start.wait()
        got[i] = drawn(cores[i], 0, prompt, 6, options[i])

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(len(options))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "deadlock"
    assert got == want
    assert model.model.allocated_blocks == 16


def settled(emulator: Emulator) -> dict[str, int]:
    """Live objects when the threads of queues that are gone have ended."""
    gc.collect()
    for _ in range(100):
        live = emulator.live_objects()
        if not live.get("MTLCommandBuffer"):
            break
        time.sleep(0.02)
    return emulator.live_objects()


def test_nothing_of_metal_outlives_model_and_session(emulator: Emulator) -> None:
    def use() -> dict[str, int]:
        model = loaded(NAME)
        core = _core.Session(model.model, 2, model.context)
        drawn(core, 0, PROMPT, 4, SAMPLED)
        kept = core.snapshot(0)
        core.set_mask(0, [0xFFFFFFFF] * -(-model.spec.decoder.vocab // 32))
        steps(core, 0, 3)
        core.restore(1, kept)
        return emulator.live_objects()

    use()  # what the process keeps is there now
    before = settled(emulator)
    during = use()
    assert during["MTLBuffer"] > before.get("MTLBuffer", 0) + 10
    assert settled(emulator) == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_told_and_ends() -> None:
    """The GPU's completion handlers run in the parent alone: the child must not wait for them."""
    core = session(NAME)
    drawn(core, 0, PROMPT, 3, GREEDY)  # a step runs ahead
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        told = False
        try:
            core.step([0])
        except saragossa.errors.UsageError as error:
            told = "forked" in str(error)
        del core  # with its step in flight
        os._exit(7 if told else 1)
    for _ in range(300):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        time.sleep(0.1)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the child hangs")
    assert os.waitstatus_to_exitcode(status) == 7
    core.step([0])
