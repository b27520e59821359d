"""Sampling: greedy, bias, masks, penalties, filters, logprobs, bad logits, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest

from unit.ops import reference
from unit.ops.harness import ISAS, Array, Ops, ops_of
from unit.ops.sampling import PROMPT, Row, draw

SIZES = (1, 3, 31, 64, 65, 100, 1000, 8192, 8193, 50257)


@pytest.fixture(params=ISAS)
def ops(request: pytest.FixtureRequest) -> Ops:
    return ops_of(request.param)


def logits_of(vocab: int, seed: int = 0, scale: float = 3.0) -> Array:
    return (np.random.default_rng(seed).standard_normal(vocab) * scale).astype(np.float32)


# --- greedy ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vocab", SIZES)
def test_greedy_takes_the_largest(ops: Ops, vocab: int) -> None:
    rows = np.stack([logits_of(vocab, seed) for seed in range(4)])
    assert np.array_equal(draw(ops, rows, [Row()] * 4).ids, rows.argmax(1))


@pytest.mark.parametrize("vocab", [2, 64, 65, 1000, 20000])
def test_greedy_ties_go_to_the_lowest_id(ops: Ops, vocab: int) -> None:
    x = logits_of(vocab)
    first = vocab // 3
    x[[first, vocab // 2, vocab - 1]] = 100.0
    assert draw(ops, x, [Row()]).ids[0] == first
    assert draw(ops, np.zeros(vocab), [Row()]).ids[0] == 0


def test_zero_and_minus_zero_tie(ops: Ops) -> None:
    assert draw(ops, np.array([-1.0, -0.0, 0.0]), [Row()]).ids[0] == 1


# --- logits that cannot be sampled ----------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("vocab", [1, 64, 100, 20001])
def test_a_nan_anywhere_is_told(ops: Ops, vocab: int, temperature: float) -> None:
    row = Row(temperature=temperature, top_logprobs=1)
    for at in sorted({0, vocab // 2, vocab - 1}):
        x = logits_of(vocab)
        x[at] = np.nan
        got = draw(ops, np.stack([x, logits_of(vocab)]), [row, row], top=1)
        assert got.ids[0] == -1
        assert got.ids[1] >= 0  # the other row is well
        assert np.all(np.isneginf(got.logprobs[0]))
        assert np.all(got.logprob_ids[0] == -1)
        assert got.steps.tolist() == [1, 1]


def test_a_nan_is_told_even_where_it_is_masked(ops: Ops) -> None:
    x = logits_of(100)
    x[40] = np.nan
    assert draw(ops, x, [Row(mask=np.arange(100) != 40)]).ids[0] == -1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nothing_allowed_is_told(ops: Ops, temperature: float) -> None:
    row = Row(temperature=temperature, mask=np.zeros(100, bool), output=np.ones(100))
    got = draw(ops, logits_of(100), [row])
    assert got.ids[0] == -1
    assert got.counts is not None
    assert got.counts.max() == 1  # nothing was counted
    assert draw(ops, np.full(100, -np.inf), [Row(temperature=temperature)]).ids[0] == -1
    assert draw(ops, np.full(100, np.inf), [Row(temperature=temperature)]).ids[0] == -1  # an overflow


def test_a_single_finite_logit_wins(ops: Ops) -> None:
    x = np.full(1000, -np.inf)
    x[777] = -3.0
    rows = [Row(temperature=t, top_p=p, seed=s) for t in (0.0, 1.0) for p in (1.0, 0.5) for s in range(5)]
    assert np.all(draw(ops, x, rows).ids == 777)


# --- bias, mask, penalties ------------------------------------------------------------------------------


def test_mask(ops: Ops) -> None:
    for vocab in (33, 64, 1000):
        allowed = np.random.default_rng(vocab).random(vocab) < 0.3
        allowed[vocab - 1] = True
        x = logits_of(vocab)
        want = np.where(allowed, x, -np.inf)
        assert draw(ops, x, [Row(mask=allowed)]).ids[0] == want.argmax()
        drawn = draw(ops, x, [Row(mask=allowed, temperature=5.0, seed=s) for s in range(100)]).ids
        assert np.all(allowed[drawn])


def test_bias_comes_before_the_mask(ops: Ops) -> None:
    x = logits_of(50)
    assert draw(ops, x, [Row(bias={17: 100.0})]).ids[0] == 17
    assert draw(ops, x, [Row(bias={int(x.argmax()): -100.0})]).ids[0] == np.argsort(x)[-2]
    assert draw(ops, x, [Row(bias={17: 100.0}, mask=np.arange(50) != 17)]).ids[0] != 17
    # Rows with shorter lists than the widest: what lies behind n_bias is not read.
    assert draw(ops, x, [Row(bias={3: 99.0, 4: 98.0}), Row()]).ids.tolist() == [3, x.argmax()]


@pytest.mark.parametrize("vocab", [5, 64, 333])
def test_penalties_by_their_formulas(ops: Ops, vocab: int) -> None:
    r = np.random.default_rng(vocab)
    for trial in range(30):
        x = logits_of(vocab, trial, scale=1.0)
        row = Row(
            repetition=float(np.float32(r.choice([1.0, 1.3, 0.8]))),
            presence=float(np.float32(r.choice([0.0, 0.7, -1.0]))),
            frequency=float(np.float32(r.choice([0.0, 0.4, -0.5]))),
            prompt=(r.random(vocab) < 0.4) * 3,
            output=r.integers(0, 4, vocab),
            bias={int(r.integers(vocab)): 0.5},
        )
        want = reference.processed(
            x,
            bias=row.bias,
            prompt=row.prompt,
            output=row.output,
            repetition=row.repetition,
            presence=row.presence,
            frequency=row.frequency,
        )
        got = draw(ops, x, [row])
        assert want.max() - want[got.ids[0]] < 1e-5
        assert row.output is not None
        assert got.counts is not None
        output = row.output.copy()
        output[got.ids[0]] += 1  # the drawn id is counted, prompt bits stay
        assert np.array_equal(got.counts[0] & ~PROMPT, output)
        assert np.array_equal(got.counts[0] >= PROMPT, np.asarray(row.prompt) > 0)


def test_frequency_penalty_alternates(ops: Ops) -> None:
    """A is a little ahead of B; each draw costs 2: A B A B."""
    x = np.full(40, -50.0)
    x[7], x[30] = 1.0, 0.5
    for frequency, want in ((0.0, [7] * 10), (2.0, [7, 30] * 5)):
        output, ids = np.zeros(40), []
        for _ in range(10):
            got = draw(ops, x, [Row(frequency=frequency, output=output)])
            assert got.counts is not None
            output = got.counts[0]
            ids.append(int(got.ids[0]))
        assert ids == want


def test_presence_and_frequency_ignore_the_prompt(ops: Ops) -> None:
    x = logits_of(60)
    best = int(x.argmax())
    prompt = np.zeros(60)
    prompt[best] = 5
    row = Row(presence=2.0, frequency=2.0, prompt=prompt, top_logprobs=3)
    with_penalty, without = draw(ops, x, [row], top=3), draw(ops, x, [Row(top_logprobs=3)], top=3)
    assert with_penalty.ids[0] == without.ids[0] == best
    assert np.array_equal(with_penalty.logprobs, without.logprobs)
    # The repetition penalty does count it.
    assert draw(ops, x, [Row(repetition=100.0, prompt=prompt)]).ids[0] != best


# --- filters --------------------------------------------------------------------------------------------

FILTERS = {
    "k1": {"top_k": 1},
    "k5": {"top_k": 5},
    "k-all": {"top_k": 40},
    "k-more": {"top_k": 1000},
    "p-tiny": {"top_p": 1e-6},
    "p.5": {"top_p": 0.5},
    "p.95": {"top_p": 0.95},
    "min-p.1": {"min_p": 0.1},
    "min-p1": {"min_p": 1.0},
    "k8-p.7": {"top_k": 8, "top_p": 0.7},
    "k30-min-p.05": {"top_k": 30, "min_p": 0.05},
    "all": {"top_k": 20, "top_p": 0.9, "min_p": 0.02},
}


@pytest.mark.parametrize("temperature", [0.7, 1.5])
@pytest.mark.parametrize("name", FILTERS)
def test_filters_leave_the_set_of_the_reference(ops: Ops, name: str, temperature: float) -> None:
    """Every kept token is drawn sooner or later, no other ever."""
    x = logits_of(40, 5, scale=1.2)
    z = x.astype(np.float64) / np.float32(temperature)
    want = reference.kept(z, **FILTERS[name])  # type: ignore[arg-type]
    rows = [Row(temperature=temperature, seed=s, **FILTERS[name]) for s in range(3000)]  # type: ignore[arg-type]
    drawn = set(draw(ops, x, rows).ids.tolist())
    assert drawn <= want
    p = np.exp(z - z.max())
    p /= p[list(want)].sum()
    assert {t for t in want if p[t] > 0.005} <= drawn  # missing one of them has odds of 3e-7


def test_filters_break_ties_by_the_lower_id(ops: Ops) -> None:
    x = np.zeros(200)
    rows = [Row(temperature=1.0, top_k=3, seed=s) for s in range(200)]
    assert set(draw(ops, x, rows).ids.tolist()) == {0, 1, 2}
    rows = [Row(temperature=1.0, top_p=0.0199, seed=s) for s in range(300)]
    assert set(draw(ops, x, rows).ids.tolist()) == {0, 1, 2, 3}  # 4 of 200 are 0.02
    x[100:] = 1.0
    rows = [Row(temperature=1.0, top_k=102, top_p=0.999999, seed=s) for s in range(3000)]
    drawn = set(draw(ops, x, rows).ids.tolist())
    assert drawn == {0, 1} | set(range(100, 200))


@pytest.mark.parametrize("vocab", [64, 100])
def test_ties_at_the_end_of_the_vocabulary(ops: Ops, vocab: int) -> None:
    """The last tokens go another way than whole vectors."""
    rows = [Row(temperature=1.0, top_k=vocab - 2, seed=s) for s in range(3000)]
    assert set(draw(ops, np.zeros(vocab), rows).ids.tolist()) == set(range(vocab - 2))


@pytest.mark.parametrize("shape", ["flat", "peaked", "steps", "long tail"])
def test_filters_over_a_real_vocabulary(shape: str) -> None:
    """The kept set, seen through draws that a bias of the noise cannot hide: every set draws the same ids."""
    vocab = 151936
    r = np.random.default_rng(1)
    x = {
        "flat": np.zeros(vocab),
        "peaked": r.standard_normal(vocab) - 12 * (np.arange(vocab) % 5000 != 7),
        "steps": np.floor(r.standard_normal(vocab) * 2),
        "long tail": r.standard_normal(vocab) * 2 + 8 * (np.arange(vocab) == 99),
    }[shape].astype(np.float32)
    for filters in ({"top_k": 50}, {"top_p": 0.9}, {"top_k": 3000, "top_p": 0.5}, {"min_p": 0.05}):
        allowed = np.zeros(vocab, bool)
        allowed[list(reference.kept(x.astype(np.float64), **filters))] = True  # type: ignore[arg-type]
        got = draw(ops_of("auto"), x, [Row(temperature=1.0, seed=s, **filters) for s in range(12)]).ids  # type: ignore[arg-type]
        noise = np.stack([reference.gumbel(vocab, s, 0) for s in range(12)])
        want = np.where(allowed, x + noise, -np.inf).argmax(1)
        assert np.array_equal(got, want), filters


# --- logprobs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vocab", [3, 64, 1000, 20001])
def test_logprobs_are_of_the_raw_logits(ops: Ops, vocab: int) -> None:
    x = logits_of(vocab, 3)
    want = x.astype(np.float64) - np.logaddexp.reduce(x.astype(np.float64))
    n = min(5, vocab)
    rows = [Row(top_logprobs=n), Row(temperature=0.5, bias={1: 30.0}, top_k=1, top_logprobs=n)]
    got = draw(ops, x, rows, top=n)
    best = np.lexsort((np.arange(vocab), -x))[:n]
    assert got.ids.tolist() == [x.argmax(), 1]
    assert np.allclose(got.logprobs[:, 0], want[got.ids], atol=1e-5)
    assert np.array_equal(got.logprob_ids[:, 0], got.ids)
    for row in range(2):
        assert np.array_equal(got.logprob_ids[row, 1:], best)
        assert np.allclose(got.logprobs[row, 1:], want[best], atol=1e-5)


def test_rows_of_logits_draw_with_the_requests_they_name(ops: Ops) -> None:
    """Of five requests three draw, in another order: as each does alone; the others are not touched."""
    x = np.random.default_rng(8).standard_normal((3, 130)).astype(np.float32)
    allowed = np.arange(130) % 3 == 0
    requests = [
        Row(temperature=1.0, seed=4, step=9, top_p=0.7),
        Row(bias={7: 50.0}),
        Row(mask=allowed),
        Row(bias={11: 20.0, 3: 21.0}, top_logprobs=2),
        Row(temperature=1.0, seed=5, presence=1.0, output=np.arange(130) % 2),
    ]
    pick = [4, 0, 2]
    got = draw(ops, x, requests, top=2, pick=pick)
    for i, request in enumerate(pick):
        alone = draw(ops, x[i], [requests[request]], top=2)
        assert got.ids[i] == alone.ids[0]
    assert got.steps.tolist() == [10, 0, 1, 0, 1]
    assert got.counts is not None
    before = np.stack([np.zeros(130)] * 4 + [np.arange(130) % 2])
    changed = np.argwhere(got.counts != before)
    assert changed.tolist() == sorted([r, i] for r, i in zip(pick, got.ids.tolist(), strict=True))


def test_logprob_ties_and_rows_that_ask_for_less(ops: Ops) -> None:
    x = np.zeros(300)
    x[[5, 200]] = 1.0
    got = draw(ops, x, [Row(top_logprobs=4), Row(top_logprobs=1), Row(top_logprobs=0), Row()], top=4)
    assert got.logprob_ids.tolist() == [
        [5, 5, 200, 0, 1],
        [5, 5, -1, -1, -1],
        [5, -1, -1, -1, -1],
        [-1, -1, -1, -1, -1],
    ]
    assert np.all(np.isneginf(got.logprobs[got.logprob_ids == -1]))
    assert np.isclose(got.logprobs[2, 0], 1 - np.log(298 + 2 * np.e), atol=1e-6)
