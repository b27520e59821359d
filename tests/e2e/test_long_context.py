"""32768 tokens: windows give blocks back, states and positions stay right, memory stays bounded.

The models are cut to layers of which only the last sees all keys: a prompt whose logits nobody wants stops
before the attention of the last layer, which would take the time of all the rest.
"""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from e2e.long_context import CONTEXT, GOLDEN, TOKENS, model, prefill, tokens
from saragossa import _core
from saragossa.errors import SnapshotNeededError
from saragossa.weights.checkpoint import load_spec

DELTA, WINDOWS = "families/qwen3_5", "families/gemma4_unified"
FIRST = (0, 1, 2)  # two delta nets, or two windows of 16 tokens, then a layer that sees all keys
PROMPT = tokens()


def test_blocks_behind_windows_are_given_back() -> None:
    of = model(WINDOWS, FIRST)
    (all_keys, _, of_all), (window, _, of_window) = sorted(of.cache_groups)
    assert (all_keys, window) == (0, 16)
    core = _core.Session(of, 1, CONTEXT)

    def used() -> list[int]:
        return [
            before - free
            for before, (_, _, free) in zip((of_all, of_window), sorted(of.cache_groups), strict=True)
        ]

    for begin in range(0, TOKENS, 2048):
        core.prefill(0, PROMPT[begin : begin + 2048], False)
        # The last block of the chunk and the one before.
        assert used() == [(begin + 2048) // 256, 2]
    core.prefill(0, [9], True)
    for step in range(600):  # over two edges of blocks
        core.step([0])
        full, behind = used()
        assert full == -(-(TOKENS + 2 + step) // 256)
        assert behind <= 3
    # With marks, what they need is kept: two blocks for each of eight at most.
    core.rewind(0, 0)
    assert used() == [0, 0]
    prefill(core, PROMPT, chunk=512)
    assert used()[0] == TOKENS // 256
    assert used()[1] <= 2 + 8 * 2
    del core
    assert used() == [0, 0]


def test_a_rewind_to_marks_at_block_edges() -> None:
    of = model(WINDOWS, FIRST)
    core = _core.Session(of, 1, CONTEXT)
    edge = TOKENS - 256
    places = [edge - 1, edge, edge + 1, edge + 15, edge + 16]
    prefill(core, PROMPT[: places[0]], marks=False)  # there is room for eight marks
    for begin, end in pairwise([*places, TOKENS - 8]):
        core.mark(0)
        core.prefill(0, PROMPT[begin:end], False)
    fresh = core.logits(0, PROMPT[-8:])
    for place in reversed(places):
        core.rewind(0, place)
        core.prefill(0, [77, 78], True)  # off the path, and back
        core.step([0])
        core.rewind(0, place)
        core.prefill(0, PROMPT[place : TOKENS - 8], False)
        assert np.array_equal(core.logits(0, PROMPT[-8:]), fresh), place
    early = 2048 * 3 + 100
    assert core.rewindable(0, early) < early
    with pytest.raises(SnapshotNeededError):
        core.rewind(0, early)


def test_a_window_far_from_the_start_sees_what_it_sees_near_it() -> None:
    """Two layers of windows see 31 tokens in all: a prompt of the last ones gives the same logits, but for
    the rounding of an angle of 32768 radians in float32, 1e-3.
    """
    of = model(WINDOWS, FIRST[:2])
    core = _core.Session(of, 1, CONTEXT)
    prefill(core, PROMPT[:-8])
    far = core.logits(0, PROMPT[-8:])
    near = _core.Session(of, 1, CONTEXT).logits(0, PROMPT[-80:])[-8:]
    assert np.abs(far - near).max() < 2e-3

    def last(count: int) -> float:
        logits = _core.Session(of, 1, CONTEXT).logits(0, PROMPT[-count:])[-1]
        return float(np.abs(logits - near[-1]).max())

    assert last(31) < 1e-5
    assert last(30) > 1e-2


@pytest.mark.parametrize("name", [DELTA, WINDOWS])
def test_wherever_it_is_cut(name: str) -> None:
    of = model(name, FIRST)
    rng = np.random.default_rng(5)
    want = None
    for attempt in range(3):
        core = _core.Session(of, 1, CONTEXT)
        cuts = [0, *sorted(rng.choice(TOKENS - 100, 20, replace=False) + 1), TOKENS - 16]
        if attempt == 0:
            cuts = [0, TOKENS - 16]
        for begin, end in pairwise(cuts):
            prefill(core, PROMPT[begin:end])
        got = core.logits(0, PROMPT[-16:])
        want = got if want is None else want
        assert np.array_equal(got, want), cuts


@pytest.mark.parametrize("name", [DELTA, WINDOWS])
def test_decode_from_a_snapshot(name: str) -> None:
    """Of two rows at once, one far and one near the start: each draws what it draws alone."""
    of = model(name, FIRST)
    core = _core.Session(of, 2, CONTEXT)
    prefill(core, PROMPT[:-1])
    kept = core.snapshot(0)

    def alone(far: bool) -> list[int]:
        one = _core.Session(of, 1, CONTEXT)
        if far:
            one.restore(0, kept)
        one.prefill(0, PROMPT[-1:], True)
        ids = [one.drawn(0)[0]]
        for _ in range(11):
            one.step([0])
            ids.append(one.drawn(0)[0])
        return ids

    want = [alone(True), alone(False)]
    core.prefill(0, [5, 6, 7], False)  # the first row leaves the path
    core.restore(0, kept)
    got = []
    for row in (0, 1):
        core.prefill(row, PROMPT[-1:], True)
        got.append([core.drawn(row)[0]])
    for _ in range(11):
        core.step([0, 1])
        for row in (0, 1):
            got[row].append(core.drawn(row)[0])
    assert got == want


# In a process of its own. Linux hands a parent's ru_maxrss on to its children, so VmHWM where there is one.
MEASURE = """
import resource, sys
from pathlib import Path
from e2e.long_context import CONTEXT, TOKENS, model, prefill, tokens
from saragossa import _core

def peak():
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 1024 * int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])

core = _core.Session(model(sys.argv[1], (0, 1, 2), sequences=1), 1, CONTEXT)
for count in (4096, TOKENS):
    core.rewind(0, 0)
    prefill(core, tokens(count))
    print(peak())
"""


@pytest.mark.parametrize("name", [DELTA, WINDOWS])
def test_memory_of_a_long_prompt_is_that_of_a_short_one_and_its_keys(name: str) -> None:
    """Chunks of 2048 take the same scratch wherever they stand, and windows keep no keys behind them."""
    attention = load_spec(GOLDEN / name).decoder.layers[FIRST[-1]].attention
    assert attention is not None
    keys = (TOKENS - 4096) * attention.kv_heads * attention.head_dim * 2 * 4
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, name],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    short, long = map(int, run.stdout.split())
    assert short < long < short + keys + (3 << 20)


@pytest.mark.long
@pytest.mark.parametrize("name", ["families/gemma4_unified", "checkpoints/llama-yarn"])
def test_the_last_logits_are_those_of_the_reference(name: str) -> None:
    """All layers; tests/golden/make_long_goldens.py made them with transformers in float32."""
    core = _core.Session(model(name), 1, CONTEXT)
    with np.load(GOLDEN / "long.npz") as golden:
        want = golden[name.split("/")[1]]
    prefill(core, PROMPT[: -len(want)])
    got = core.logits(0, PROMPT[-len(want) :])
    assert np.abs(got - want).max() < 2e-3
    assert (got.argmax(-1) == want.argmax(-1)).all()
