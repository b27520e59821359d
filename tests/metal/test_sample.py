"""Sampling on the Metal device: the ids, steps and counts of scalar CPU, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from metal.emulator import Emulator
from unit.ops.harness import Array, Ops
from unit.ops.sampling import Drawn, Row, draw

ORDERS = ["in_order", "reversed", "random"]
METAL, SCALAR = Ops(device="metal"), Ops("scalar")


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    emulator = Emulator()
    emulator.set("check", True)
    yield emulator
    emulator.set("check", False)
    emulator.set("order", "in_order")


def same(got: Drawn, want: Drawn) -> None:
    assert got.ids.tolist() == want.ids.tolist()
    assert got.steps.tolist() == want.steps.tolist()
    if want.counts is not None:
        assert got.counts is not None
        assert np.array_equal(got.counts, want.counts)
    assert np.array_equal(got.logprob_ids, want.logprob_ids)
    assert np.allclose(got.logprobs, want.logprobs, atol=2e-6, rtol=2e-6, equal_nan=True)


def compare(
    emulator: Emulator, logits: Array, rows: list[Row], orders: list[str] = ORDERS, **given: Any
) -> Drawn:
    """In checked mode, without a report; what CPU gave."""
    want = draw(SCALAR, logits, rows, **given)
    for order in orders:
        emulator.set("order", order)
        same(draw(METAL, logits, rows, **given), want)
        assert emulator.reports() == []
    return want


def logits_of(vocab: int, seed: int = 0, scale: float = 3.0) -> Array:
    return (np.random.default_rng(seed).standard_normal(vocab) * scale).astype(np.float32)


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("vocab", [1, 3, 64, 127, 130, 2049, 5003])
def test_greedy_and_drawn_rows(emulator: Emulator, vocab: int, filtered: bool) -> None:
    x = np.stack([logits_of(vocab, seed) for seed in range(4)])
    x[1, vocab // 3 :] = 100.0  # ties go to the lowest id
    x[2] = np.where(np.arange(vocab) % 2 == 0, 0.0, -0.0)
    rows = [Row(), Row(), Row(), Row(temperature=0.8, seed=1 << 40 | 7, step=12)]
    got = compare(emulator, x, rows, filtered=filtered, top=None)
    assert got.ids[:3].tolist() == [x[0].argmax(), vocab // 3, 0]


@pytest.mark.parametrize("filtered", [False, True])
def test_what_cannot_be_sampled(emulator: Emulator, filtered: bool) -> None:
    vocab = 2500
    x = np.stack([logits_of(vocab)] * 7)
    x[0, 0] = x[1, 1300] = x[2, vocab - 1] = np.nan
    x[3] = -np.inf
    x[4] = np.inf
    x[5] = -np.inf
    x[5, 777] = -3.0
    for temperature in (0.0, 1.0):
        row = Row(temperature=temperature, top_logprobs=1, top_p=0.9 if filtered else 1.0)
        got = compare(emulator, x, [row] * 7, ["random"], top=1, filtered=filtered)
        assert got.ids[:6].tolist() == [-1] * 5 + [777]
        assert got.ids[6] >= 0
    masked = Row(mask=np.zeros(vocab, bool), output=np.ones(vocab), top_k=5)
    got = compare(emulator, x[6], [masked, Row(mask=np.arange(vocab) == 9)], filtered=filtered)
    assert got.ids.tolist() == [-1, 9]
    nan = x[6].copy()
    nan[40] = np.nan
    assert compare(emulator, nan, [Row(mask=np.arange(vocab) != 40)], filtered=filtered).ids[0] == -1


def processed_rows(vocab: int, **sampling: Any) -> list[Row]:
    """Rows with a bias, a mask, penalties, and one with all of them."""
    r = np.random.default_rng(vocab)
    bias = {int(t): float(r.standard_normal() * 4) for t in r.permutation(vocab)[:70]}
    bias |= {0: 2.0, vocab - 1: 3.0}
    mask, prompt, output = r.random(vocab) < 0.3, (r.random(vocab) < 0.4) * 3, r.integers(0, 4, vocab)
    penalties = {"repetition": 1.3, "presence": 0.7, "frequency": -0.4, "prompt": prompt, "output": output}
    return [
        Row(bias=bias, **sampling),
        Row(bias={5: 99.0, 6: 98.0}, **sampling),
        Row(mask=mask, **sampling),
        Row(**penalties, **sampling),
        Row(bias=bias, mask=mask, **penalties, **sampling),
        Row(**sampling),
    ]


@pytest.mark.parametrize("vocab", [66, 2301])
@pytest.mark.parametrize(
    "sampling", [{}, {"temperature": 1.5}, {"temperature": 1.5, "top_k": 9, "top_p": 0.9}], ids=str
)
def test_bias_mask_and_penalties(emulator: Emulator, vocab: int, sampling: dict[str, Any]) -> None:
    x = np.stack([logits_of(vocab, seed, scale=1.0) for seed in range(6)])
    rows = processed_rows(vocab, **sampling)
    for filtered in (True,) if "top_k" in sampling else (True, False):
        compare(emulator, x, rows, filtered=filtered, top=None)
    for row, one in zip(rows, x, strict=True):  # each with the tensors that it needs alone
        compare(emulator, one, [row], ["random"])


def test_bias_entries_add_up_in_their_order(emulator: Emulator) -> None:
    """The list may name a token twice; entries outside the vocabulary do nothing."""
    ids = np.array([[3, 3, 3, -1, 1000, 7] * 12])
    bias = np.tile(np.array([1e8, 0.3, -1e8, 5, 5, 0.01], np.float32), 12)[None]
    drawn = []
    for ops in (SCALAR, METAL):
        x = ops.f32(np.where(np.arange(200) == 7, 3.0, 0.0)[None])
        params, out = ops.u8(Row(bias=dict.fromkeys(range(72), 0.0)).params()[None]), ops.i32([-7])
        given = {"bias_ids": ops.i32(ids), "bias": ops.f32(bias)}
        top = {"logprobs": ops.empty(1, 2), "logprob_ids": ops.i32([[0, 0]])}
        ops.run(lambda e: e.sample(x, params, out, **given, **top))  # noqa: B023
        drawn.append(int(out.numpy()[0]))
    assert drawn[0] == drawn[1] == 7
    assert emulator.reports() == []


FILTERS: dict[str, dict[str, Any]] = {
    "k1": {"top_k": 1},
    "k5": {"top_k": 5},
    "k600": {"top_k": 600},
    "k-all": {"top_k": 100000},
    "p-tiny": {"top_p": 1e-6},
    "p.5": {"top_p": 0.5},
    "p.95": {"top_p": 0.95},
    "min-p.1": {"min_p": 0.1},
    "min-p1": {"min_p": 1.0},
    "k8-p.7": {"top_k": 8, "top_p": 0.7},
    "k30-min-p.05": {"top_k": 30, "min_p": 0.05},
    "all": {"top_k": 20, "top_p": 0.9, "min_p": 0.02},
}
SHAPES: dict[str, Array] = {
    "flat": np.zeros(3000),
    "normal": logits_of(3001, 5, 2.0),
    "small": logits_of(40, 5, 1.2),
    "steps": np.floor(logits_of(2700, 1, 2.0)),
    "peaked": np.where(np.arange(2600) == 1321, 12.0, logits_of(2600, 1, 1.0)),
    "holes": np.where(np.arange(777) % 3 == 0, -np.inf, logits_of(777, 4)),
    "huge": logits_of(2050, 3, 1.0) + 3e7,
    "last": np.where(np.arange(2049) == 2048, 5.0, -1.0),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_filters(emulator: Emulator, shape: str) -> None:
    """Every filter is one row; at other temperatures and seeds in another order of execution."""
    for order, temperature, seed in (("in_order", 0.7, 1), ("reversed", 1.0, 2), ("random", 40.0, 3)):
        rows = [Row(temperature=temperature, seed=seed, **f) for f in FILTERS.values()]
        compare(emulator, SHAPES[shape], rows, [order], top=None)


@pytest.mark.parametrize("shape", SHAPES)
def test_kept_sets_over_many_seeds(emulator: Emulator, shape: str) -> None:
    """Unchecked: which tokens a filter leaves shows in draws over many seeds."""
    emulator.set("check", False)
    for f in FILTERS.values():
        rows = [Row(temperature=1.3, seed=s, **f) for s in range(8)]
        same(draw(METAL, SHAPES[shape], rows, top=None), draw(SCALAR, SHAPES[shape], rows, top=None))


def test_rows_of_all_kinds_together(emulator: Emulator) -> None:
    x = np.stack([logits_of(2200, s) for s in range(4)])
    x[3, 5] = np.nan
    rows = [
        Row(),
        Row(temperature=1.0, seed=3),
        Row(temperature=1.0, top_p=0.8),
        Row(temperature=1.0, top_k=3),
    ]
    compare(emulator, x, rows)


@pytest.mark.parametrize("filtered", [False, True])
def test_rows_of_logits_draw_with_the_requests_they_name(emulator: Emulator, filtered: bool) -> None:
    """Parameters, counts, bias and mask by the list of rows; requests that no row names stay as they are."""
    x = np.stack([logits_of(2200, s) for s in range(4)])
    filters: list[dict[str, Any]] = [{"top_k": 1}, {"top_p": 0.3}, {}, {}, {"min_p": 0.5}, {"top_k": 300}]
    rng = np.random.default_rng(2)
    rows = [
        Row(
            temperature=3.0 + i,
            seed=i,
            step=i,
            bias={7 * i + 1: 2.0 * i, 2100: 3.0},
            mask=rng.random(2200) < 0.5,
            output=rng.integers(0, 3, 2200),
            presence=0.5 * i,
            top_logprobs=i,
            **(filters[i] if filtered else {}),
        )
        for i in range(6)
    ]
    compare(emulator, x, rows, top=5, filtered=filtered, pick=[4, 1, 5, 0])


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("vocab", [3, 64, 1000, 4097])
def test_logprobs(emulator: Emulator, vocab: int, filtered: bool) -> None:
    x = np.stack([logits_of(vocab, 3), np.floor(logits_of(vocab, 4, 1.0)), np.zeros(vocab), logits_of(vocab)])
    x[3, ::2] = -np.inf
    rows = [Row(top_logprobs=n, bias={1: 30.0}) for n in (20, 9, 0, 20)]
    compare(emulator, x, rows, top=20, filtered=filtered)
    compare(emulator, x, [Row(), *rows[1:]], ["random"], top=10, filtered=filtered)


def test_steps_advance_and_the_sequence_repeats(emulator: Emulator) -> None:
    """Ten draws of one request in one submission: step and counts are the device's own."""
    drawn = []
    for ops in (SCALAR, METAL):
        x, counts = ops.f32(np.zeros((1, 300))), ops.u32(np.zeros((1, 300)))
        params = ops.u8(Row(temperature=1.0, seed=11, presence=2.0, top_p=0.9).params()[None])
        outs = [ops.i32([0]) for _ in range(10)]
        enc = ops.begin()
        for out in outs:
            enc.sample(x, params, out, counts=counts)
        enc.submit().wait()
        drawn.append([int(out.numpy()[0]) for out in outs])
        assert counts.numpy().sum() == 10
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 10
    assert emulator.reports() == []


@pytest.mark.parametrize("shape", ["flat", "normal", "peaked"])
def test_a_real_vocabulary(emulator: Emulator, shape: str) -> None:
    vocab = 151936
    emulator.set("check", False)
    r = np.random.default_rng(1)
    x = {
        "flat": np.zeros(vocab),
        "normal": r.standard_normal(vocab) * 2,
        "peaked": r.standard_normal(vocab) - 12 * (np.arange(vocab) % 5000 != 7),
    }[shape]
    rows = [Row(top_logprobs=5)]
    rows += [
        Row(temperature=1.0, seed=s, top_logprobs=5, **f)
        for s, f in enumerate(
            [{}, {"top_k": 50}, {"top_p": 0.9}, {"top_k": 3000, "top_p": 0.5}, {"min_p": 0.05}]
        )
    ]
    same(draw(METAL, x, rows, top=5), draw(SCALAR, x, rows, top=5))


def test_dispatches(emulator: Emulator) -> None:
    """Two without filters, four with them, for any number of rows."""
    for filtered, dispatches in ((False, 2), (True, 4)):
        emulator.counters(reset=True)
        draw(METAL, logits_of(5000), [Row()] * 7, top=None, filtered=filtered, pick=[6, 2, 4, 0])
        assert emulator.counters()["dispatches"] == dispatches


def test_a_vocabulary_that_is_too_large() -> None:
    with pytest.raises(Exception, match="524288"):
        draw(METAL, np.zeros(524289), [Row()])
