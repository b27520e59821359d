"""Snapshots and forks of the library's sessions: each goes on as a fresh run of the same tokens does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import saragossa
from saragossa.engine.session import Session
from saragossa.errors import ContextLengthError, SaragossaError, UsageError

GOLDEN = Path(__file__).parents[1] / "golden"
# Full attention; a delta net; windows with shared keys.
MODELS = ("checkpoints/llama", "families/qwen3_5-q4g32", "families/gemma4-e2b-q4g32")
PROMPT = [2] + [4 + (7 * i * i + 13 * i + 5) % 250 for i in range(39)]
LEFT, RIGHT = [77, 78, 79], [5, 140, 9, 33]
STEPS = 12
SAMPLED = saragossa.GenerationOptions(temperature=1.2, seed=5, repetition_penalty=1.2)


@pytest.fixture(scope="module", params=MODELS)
def llm(request: pytest.FixtureRequest) -> Iterator[saragossa.LLM]:
    with saragossa.LLM(GOLDEN / request.param, device="cpu", threads=1, exact=True) as found:
        yield found


def go_on(session: Session, tokens: list[int], options: saragossa.GenerationOptions) -> list[int]:
    session.configure(options)
    session.prefill(tokens)
    return [session.step() for _ in range(STEPS)]


def fresh(llm: saragossa.LLM, tokens: list[int], options: saragossa.GenerationOptions) -> list[int]:
    return go_on(llm.session(), tokens, options)


@pytest.mark.parametrize("options", [saragossa.GenerationOptions(), SAMPLED], ids=["greedy", "sampled"])
def test_both_ways_of_a_fork_equal_fresh_runs(
    llm: saragossa.LLM, options: saragossa.GenerationOptions
) -> None:
    session = llm.session()
    session.prefill(PROMPT)
    drawn = [session.step() for _ in range(5)]
    held = [*PROMPT, *drawn[:-1]]  # the last drawn token is not in the cache
    fork = session.fork()
    assert fork.length == session.length == len(held)
    # One after the other, then the first again: neither sees what the other did.
    assert go_on(fork, LEFT, options) == fresh(llm, [*held, *LEFT], options)
    assert go_on(session, RIGHT, options) == fresh(llm, [*held, *RIGHT], options)
    more = fork.fork()
    text = [*held, *LEFT, *fresh(llm, [*held, *LEFT], options)[:-1]]
    assert go_on(more, RIGHT, saragossa.GenerationOptions()) == fresh(
        llm, [*text, *RIGHT], saragossa.GenerationOptions()
    )


def test_a_fork_keeps_the_drawn_tokens_of_its_source(llm: saragossa.LLM) -> None:
    want = fresh(llm, PROMPT, SAMPLED)
    session = llm.session()
    session.configure(SAMPLED)
    session.prefill(PROMPT)
    got = []
    for _ in range(STEPS):
        session.fork().prefill(LEFT)
        got.append(session.step())
    assert got == want


def test_a_snapshot_outlives_what_follows(llm: saragossa.LLM) -> None:
    session = llm.session()
    session.prefill(PROMPT)
    kept = session.snapshot()
    assert (kept.length, kept.tokens) == (len(PROMPT), PROMPT)
    want = fresh(llm, [*PROMPT, *LEFT], SAMPLED)
    go_on(session, RIGHT, SAMPLED)
    for _ in range(2):
        session.restore(kept)
        assert session.length == len(PROMPT)
        assert go_on(session, LEFT, SAMPLED) == want
    del session
    assert go_on(llm.session(kept), LEFT, SAMPLED) == want


def test_what_was_restored_has_nothing_drawn(llm: saragossa.LLM) -> None:
    session = llm.session()
    session.prefill(PROMPT)
    session.restore(session.snapshot())
    with pytest.raises(UsageError, match="no drawn token"):
        session.step()
    assert session.logprobs() is None


def test_drafts_ahead_are_not_in_a_snapshot() -> None:
    model = GOLDEN / MODELS[0]
    with saragossa.LLM(model, device="cpu", threads=1, draft_model=model, draft_tokens=3) as llm:
        session = llm.session()
        session.configure(saragossa.GenerationOptions())
        session.prefill(PROMPT)
        drawn = []
        for _ in range(STEPS):
            drawn.append(session.step())
            assert session.snapshot().tokens == [*PROMPT, *drawn[:-1]]
        assert session.stats.accepted > 0
        assert drawn == fresh(llm, PROMPT, saragossa.GenerationOptions())


def refused(session: Session, wrong: object, error: type[SaragossaError], message: str) -> None:
    session.configure(SAMPLED)
    session.prefill(PROMPT)
    with pytest.raises(error, match=message):
        session.restore(wrong)  # type: ignore[arg-type]


def test_a_snapshot_of_another_model_is_refused(llm: saragossa.LLM) -> None:
    """Of the same files, too; the session goes on as if nothing had been asked."""
    with saragossa.LLM(llm.model_dir, device="cpu", threads=1, exact=True) as other:
        foreign = other.session()
        foreign.prefill(PROMPT[:7])
        session = llm.session()
        refused(session, foreign.snapshot(), UsageError, "a snapshot of another model cannot be restored")
        assert [session.step() for _ in range(STEPS)] == fresh(llm, PROMPT, SAMPLED)
        with pytest.raises(UsageError, match="another model"):
            llm.session(foreign.snapshot())


def test_what_is_no_snapshot_is_refused(llm: saragossa.LLM) -> None:
    for wrong in (None, PROMPT, llm.session()):
        session = llm.session()
        refused(session, wrong, UsageError, "a snapshot is what snapshot")
        assert session.length == len(PROMPT)


def test_the_context_of_what_was_restored(llm: saragossa.LLM) -> None:
    session = llm.session()
    session.prefill(PROMPT)
    fork = session.fork()
    with pytest.raises(ContextLengthError):
        fork.prefill([5] * (llm.context - len(PROMPT) + 1))
    short = Session(llm.loaded.model, 16, 16)
    with pytest.raises(UsageError, match="does not fit the context of 16"):
        short.restore(session.snapshot())
