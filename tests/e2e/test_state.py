"""What a sequence keeps, of models with recurrent layers and windows: wherever it is cut, rewound, forked or
decoded together with others, it gives what a fresh run gives; bit for bit in the exact mode.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import saragossa
from saragossa import _core
from saragossa.engine.loading import Loaded
from saragossa.engine.options import MAX_DRAFT_TOKENS
from saragossa.engine.session import Session, chunks
from saragossa.errors import SnapshotNeededError
from saragossa.weights.bind import bind
from saragossa.weights.safetensors import SafetensorsIndex

GOLDEN = Path(__file__).parents[1] / "golden"
# A delta net with dense MLPs, one with experts, fused projections, and windows (with shared keys).
HYBRIDS = ("qwen3_5-q4g32", "qwen3_5_moe-q4g64", "qwen3_next-q4g32")
MODELS = (*HYBRIDS, "gemma4-e2b-q4g32")
TOKENS = 96
PROMPT = [2] + [4 + (7 * i * i + 13 * i + 5) % 250 for i in range(TOKENS - 1)]


@pytest.fixture(scope="module")
def models() -> dict[str, Loaded]:
    return {
        name: saragossa.LLM(GOLDEN / "families" / name, device="cpu", exact=True).loaded for name in MODELS
    }


def core(loaded: Loaded, rows: int = 1) -> _core.Session:
    session = _core.Session(loaded.model, rows, loaded.context)
    for row in range(rows):
        session.configure(row)
    return session


def run(session: _core.Session, cuts: list[int], row: int = 0) -> np.ndarray:
    """From where the row stands to the cuts, marked at each, then the logits of the rest."""
    ends = [session.length(row), *[cut for cut in cuts if cut > session.length(row)]]
    for begin, end in pairwise(ends):
        session.prefill(row, PROMPT[begin:end], False)
        session.mark(row)
    return session.logits(row, PROMPT[ends[-1] :])[-1]


def splits() -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(1, TOKENS - 1), max_size=6, unique=True).map(sorted)


QUICK = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("name", MODELS)
@QUICK
@given(first=splits(), second=splits(), back=st.integers(0, TOKENS - 1))
def test_wherever_it_is_cut_and_rewound(
    name: str, first: list[int], second: list[int], back: int, models: dict[str, Loaded]
) -> None:
    fresh = run(core(models[name]), [])
    session = core(models[name])
    assert np.array_equal(run(session, first), fresh)
    kept = session.rewindable(0, back)
    assert kept <= back
    session.rewind(0, kept)
    assert np.array_equal(run(session, second), fresh)


@pytest.mark.parametrize("name", HYBRIDS)
def test_a_place_that_was_not_kept_needs_a_snapshot(name: str, models: dict[str, Loaded]) -> None:
    session = core(models[name])
    session.prefill(0, PROMPT[:40], False)
    session.mark(0)
    session.prefill(0, PROMPT[40:80], False)
    assert [session.rewindable(0, to) for to in (80, 79, 41, 40, 39, 1, 0)] == [80, 40, 40, 40, 0, 0, 0]
    with pytest.raises(SnapshotNeededError, match=r"rewind to 60 of 80 tokens needs a snapshot.* 40"):
        session.rewind(0, 60)
    assert session.length(0) == 80
    assert np.array_equal(session.logits(0, PROMPT[80:])[-1], run(core(models[name]), []))


@pytest.mark.parametrize("name", MODELS)
@QUICK
@given(cuts=splits(), at=st.integers(1, TOKENS - 1))
def test_a_fork_goes_its_own_way(name: str, cuts: list[int], at: int, models: dict[str, Loaded]) -> None:
    fresh = run(core(models[name]), [])
    session = core(models[name], 2)
    for begin, end in pairwise([0, *[cut for cut in cuts if cut < at], at]):
        session.prefill(0, PROMPT[begin:end], False)
    snapshot = session.snapshot(0)
    session.prefill(0, [9, 9, 9], True)  # the first row leaves the path
    session.step([0])
    session.restore(1, snapshot)
    assert session.length(1) == at
    assert np.array_equal(run(session, [], row=1), fresh)
    session.restore(0, snapshot)
    assert np.array_equal(run(session, [], row=0), fresh)


@pytest.mark.parametrize("name", MODELS)
def test_rows_that_come_and_go_do_not_touch_each_other(name: str, models: dict[str, Loaded]) -> None:
    def alone(length: int, steps: int) -> list[int]:
        session = core(models[name])
        session.prefill(0, PROMPT[:length], True)
        ids = [session.drawn(0)[0]]
        for _ in range(steps):
            session.step([0])
            ids.append(session.drawn(0)[0])
        return ids

    lengths, steps = [5, 40, 17, 64, 29, 11], [14, 3, 9, 12, 6, 10]
    session = core(models[name], len(lengths))
    got: list[list[int]] = []
    for row, length in enumerate(lengths):  # each joins while those before decode
        session.prefill(row, PROMPT[:length], True)
        got.append([session.drawn(row)[0]])
        live = [r for r in range(row + 1) if len(got[r]) <= steps[r]]
        session.step(live)
        for r in live:
            got[r].append(session.drawn(r)[0])
    while live := [r for r in range(len(lengths)) if len(got[r]) <= steps[r]]:
        session.step(live)
        for r in live:
            got[r].append(session.drawn(r)[0])
    assert got == [alone(n, s) for n, s in zip(lengths, steps, strict=True)]


def test_states_are_given_back(models: dict[str, Loaded]) -> None:
    model = models[HYBRIDS[0]].model
    free = model.free_slots
    session = core(models[HYBRIDS[0]])
    snapshots = []
    for end in range(4, 90, 4):
        session.prefill(0, PROMPT[end - 4 : end], True)
        session.mark(0)
        snapshots.append(session.snapshot(0))
        session.step([0])
        session.rewind(0, end)
    assert model.free_slots <= free - len(snapshots)
    del snapshots
    assert free - model.free_slots <= 10  # its own state and eight marks
    del session
    assert model.free_slots == free


@pytest.mark.parametrize("shared", range(8, 96, 8))
def test_a_prompt_that_shares_a_part(shared: int, models: dict[str, Loaded]) -> None:
    """Reuse never mixes a kept state with keys of another length."""
    for name in MODELS:
        session = core(models[name])
        for begin, end in chunks(0, TOKENS, 32):
            session.prefill(0, PROMPT[begin:end], False)
            session.mark(0)
        kept = session.rewindable(0, shared)
        session.rewind(0, kept)
        other = [*PROMPT[:shared], 77, 78, 79]
        again = session.logits(0, other[kept:])[-1]
        assert np.array_equal(again, core(models[name]).logits(0, other)[-1])


def test_chunks_end_where_the_size_divides() -> None:
    assert list(chunks(5, 20, 8)) == [(0, 3), (3, 11), (11, 19), (19, 20)]
    assert list(chunks(8, 8, 8)) == [(0, 8)]
    assert list(chunks(3, 0, 8)) == []


def test_a_failed_prompt_leaves_the_state(models: dict[str, Loaded]) -> None:
    loaded = models[HYBRIDS[1]]
    session = Session(loaded.model, loaded.context, 16)
    session.configure(saragossa.GenerationOptions())
    session.prefill(PROMPT[:40])
    first = session.step()

    def stop(done: int, total: int) -> None:
        if done >= 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session.prefill(PROMPT[40:], progress=stop)
    assert session.length == 40
    session.prefill(PROMPT[40:50])
    again = session.step()
    other = Session(loaded.model, loaded.context, 16)
    other.configure(saragossa.GenerationOptions())
    other.prefill(PROMPT[:40])
    assert other.step() == first
    other.prefill(PROMPT[40:50])
    assert other.step() == again


@pytest.mark.parametrize("name", HYBRIDS)
def test_chunks_of_the_delta_rule_may_be_cut_apart(name: str) -> None:
    """The default path takes 64 rows at once: where those end, a cut changes no bit."""
    loaded = saragossa.LLM(GOLDEN / "families" / name, device="cpu").loaded
    prompt = [2] + [4 + (7 * i * i + 13 * i + 5) % 250 for i in range(229)]

    def last(cuts: list[int]) -> np.ndarray:
        session = core(loaded)
        for begin, end in pairwise([0, *cuts]):
            session.prefill(0, prompt[begin:end], False)
        return session.logits(0, prompt[session.length(0) :])[-1]

    fresh = last([])
    for cuts in ([64], [128], [64, 128]):
        assert np.array_equal(last(cuts), fresh), cuts
    for cuts in ([64, 192], [50], [7, 100, 131]):
        assert np.abs(last(cuts) - fresh).max() < 5e-2, cuts


@pytest.mark.parametrize("name", ["qwen3_5-q4g32", "gemma4-e2b-q4g32"])
def test_a_short_cache_gives_marks_back(name: str) -> None:
    """Twenty turns in a context of one block: the oldest places go, the turns do not fail."""
    with saragossa.LLM(GOLDEN / "families" / name, device="cpu", exact=True, context=256) as llm:
        session, tokens = llm.session(), PROMPT[:1]
        session.prefill(tokens)
        for turn in range(20):
            more = PROMPT[1 + turn % 60 : 10 + turn % 60]
            session.prefill(more)
            tokens = [*tokens, *more, session.step()]
            session.step()
        fresh = llm.session()
        fresh.prefill([*tokens, 7])
        session.prefill([7])
        assert session.length == fresh.length == 1 + 20 * 10 + 1
        assert session.step() == fresh.step()
        assert session.rewindable(session.length - 1) > 0  # the latest places are there


@pytest.mark.parametrize("name", ["qwen3_5-q4g32", "gemma4-e2b-q4g32"])
def test_a_long_prompt_that_is_interrupted_goes_back_to_its_beginning(name: str) -> None:
    """Its chunks leave more marks than are kept: the place where it began is not among those that go."""
    place = GOLDEN / "families" / name
    with saragossa.LLM(place, device="cpu", exact=True) as llm:
        session = Session(llm.loaded.model, llm.context, 16)
        session.prefill(PROMPT[:37])

        def interrupt(done: int, total: int) -> None:
            if done > 400:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            session.prefill((PROMPT * 6)[:450], progress=interrupt)
        assert session.length == 37
        fresh = llm.session()
        for one in (session, fresh):
            one.prefill(PROMPT[37:60] if one is session else PROMPT[:60])
        assert [session.step() for _ in range(5)] == [fresh.step() for _ in range(5)]


@pytest.mark.parametrize(("name", "slots"), [("qwen3_5-q4g32", 10), ("gemma4-e2b-q4g32", 128)])
def test_drafts_find_room_among_marks(name: str, slots: int) -> None:
    """Twenty turns of a prompt and right drafts in one block; a verification takes eight of ten states."""
    folder = GOLDEN / "families" / name
    loaded = saragossa.LLM(folder, device="cpu", exact=True, context=256).loaded
    model = _core.Model(
        loaded.device,
        loaded.spec.decoder,
        bind(loaded.spec, SafetensorsIndex.open(folder)),
        blocks=8,
        kv_dtype="f32",
        slots=slots,
    )
    other = saragossa.LLM(folder, device="cpu", exact=True, context=256).loaded
    session = _core.Session(model, 1, 256)
    session.configure(0)
    tokens: list[int] = []
    for turn in range(20):
        more = PROMPT[4 * turn : 4 * turn + 4]
        session.prefill(0, more, True)
        session.mark(0)
        fresh = core(other)
        fresh.prefill(0, [*tokens, *more], True)
        want = [fresh.drawn(0)[0]]
        for _ in range(MAX_DRAFT_TOKENS + 1):
            fresh.step([0])
            want.append(fresh.drawn(0)[0])
        assert session.drawn(0)[0] == want[0], turn
        assert [token for token, _ in session.verify(0, want[1:-1])] == want[1:], turn
        session.keep(0, MAX_DRAFT_TOKENS + 1)
        tokens += [*more, *want[:-1]]
    assert session.length(0) == 240
