"""The random side of sampling: the generator, its streams, the distribution, equality of instruction sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from unit.ops import reference
from unit.ops.harness import ISAS, Array, ops_of
from unit.ops.sampling import Row, draw


def test_philox_known_answers() -> None:
    """The vectors of the Random123 distribution, so that the reference below is the published generator."""
    ones = 0xFFFFFFFF
    for counter, key, words in (
        ([0, 0, 0, 0], (0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([ones] * 4, (ones, ones), [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    ):
        assert reference.philox(np.array([counter], np.uint64), key)[0].tolist() == words


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("vocab", [1, 7, 64, 333, 20000])
def test_draws_are_those_of_the_formula(vocab: int, isa: str) -> None:
    x = np.random.default_rng(vocab).standard_normal(vocab).astype(np.float32)
    rows = [Row(temperature=0.8, seed=s * 0x123456789ABCDEF % (1 << 64), step=s * 7) for s in range(20)]
    scores = [x / np.float64(np.float32(0.8)) + reference.gumbel(vocab, r.seed, r.step) for r in rows]
    assert draw(ops_of(isa), x, rows).ids.tolist() == [int(s.argmax()) for s in scores]


SHAPES: dict[str, Array] = {
    "flat": np.zeros(3000),
    "normal": np.random.default_rng(0).standard_normal(50257) * 2,
    "peaked": np.where(np.arange(9000) == 4321, 12.0, np.random.default_rng(1).standard_normal(9000)),
    "far apart": np.random.default_rng(2).standard_normal(5000) * 1e4,
    "huge": np.random.default_rng(3).standard_normal(5000) + 3e7,
    "holes": np.where(np.arange(777) % 3 == 0, -np.inf, np.random.default_rng(4).standard_normal(777)),
    "last": np.where(np.arange(8193) == 8192, 5.0, -1.0),
}
FILTERS: list[dict[str, Any]] = [
    {},
    {"top_k": 40},
    {"top_p": 0.9},
    {"min_p": 0.05},
    {"top_k": 200, "top_p": 0.7, "min_p": 0.01},
]


@pytest.mark.parametrize("isa", ISAS[1:])
@pytest.mark.parametrize("shape", SHAPES)
def test_instruction_sets_draw_the_same(shape: str, isa: str) -> None:
    """Bit for bit: the fast forms skip what cannot win, the scalar one looks at every token."""
    x = SHAPES[shape]
    r = np.random.default_rng(9)
    rows = [Row(temperature=t, seed=s, **f) for f in FILTERS for t in (0.3, 1.0, 40.0) for s in range(5)]
    rows += [
        Row(
            temperature=1.0,
            seed=s,
            repetition=1.2,
            presence=0.5,
            frequency=0.3,
            output=r.integers(0, 3, len(x)),
        )
        for s in range(5)
    ]
    for i in range(0, len(rows), 16):
        part = rows[i : i + 16]
        assert np.array_equal(draw(ops_of("scalar"), x, part).ids, draw(ops_of(isa), x, part).ids)


def test_threads_and_other_rows_change_nothing() -> None:
    x = np.random.default_rng(5).standard_normal(40000).astype(np.float32)
    rows = [Row(temperature=1.0, top_p=0.95, seed=s, top_logprobs=2) for s in range(8)]
    together = draw(ops_of("auto", threads=2), x, rows, top=2)
    for i, row in enumerate(rows):
        alone = draw(ops_of("auto", threads=1), x, [row], top=2)
        assert alone.ids[0] == together.ids[i]
        assert np.array_equal(alone.logprobs[0], together.logprobs[i])


# --- streams --------------------------------------------------------------------------------------------


def stream(seed: int, n: int = 24) -> list[int]:
    """Steps of one request: the op advances the step itself."""
    ops = ops_of("auto")
    x = ops.f32(np.zeros((1, 1000)))
    params, out, ids = ops.u8(Row(temperature=1.0, seed=seed).params()[None]), ops.i32([0]), []
    for _ in range(n):
        ops.run(lambda e: e.sample(x, params, out))
        ids.append(int(out.numpy()[0]))
    return ids


def test_streams_repeat_and_differ_by_seed() -> None:
    seeds = (1, 2, 3, 1 << 32, (1 << 64) - 1)  # the upper half counts, too
    streams = [stream(s) for s in seeds]
    assert streams == [stream(s) for s in seeds]
    assert len({tuple(s) for s in streams}) == len(seeds)
    assert all(len(set(s)) > 20 for s in streams)  # of 1000 tokens at equal odds, 24 draws


# --- distribution ---------------------------------------------------------------------------------------


def chi_square(drawn: Array, p: Array) -> float:
    """As a normal deviate (Wilson and Hilferty); beyond 4 it would be chance once in 30 000."""
    seen, expected = np.bincount(drawn, minlength=len(p)), p * len(drawn)
    dof = len(p) - 1
    statistic = float((((seen - expected) ** 2) / expected).sum())
    return float(((statistic / dof) ** (1 / 3) - (1 - 2 / (9 * dof))) / np.sqrt(2 / (9 * dof)))


@pytest.mark.parametrize("by", ["seed", "step"])
@pytest.mark.parametrize("temperature", [0.6, 1.0, 2.0])
def test_draws_follow_the_softmax(temperature: float, by: str) -> None:
    x = np.array([1.2, 0.3, -1.0, 0.0, 2.0, -0.5, 0.8, 1.9, -2.0, 0.1, 0.4, 1.0, -0.7])
    p = np.exp(x / temperature)
    rows = [Row(temperature=temperature, **{by: i}) for i in range(20000)]  # type: ignore[arg-type]
    assert abs(chi_square(draw(ops_of("auto"), x, rows).ids, p / p.sum())) < 4


def test_filtered_draws_follow_what_is_left() -> None:
    x = np.random.default_rng(8).standard_normal(500)
    kept = sorted(reference.kept(x, top_k=30, top_p=0.8))
    p = np.exp(x[kept])
    rows = [Row(temperature=1.0, top_k=30, top_p=0.8, seed=s) for s in range(20000)]
    drawn = np.searchsorted(kept, draw(ops_of("auto"), x, rows).ids)
    assert abs(chi_square(drawn, p / p.sum())) < 4


def test_neighbours_are_independent() -> None:
    """Pairs of draws: of following steps, of following seeds."""
    x = np.array([0.5, 0.0, -0.5, 1.0])
    p = np.exp(x) / np.exp(x).sum()
    pair = np.outer(p, p).reshape(-1)
    for rows in (
        [Row(temperature=1.0, seed=5, step=s) for s in range(20000)],
        [Row(temperature=1.0, seed=s) for s in range(20000)],
    ):
        ids = draw(ops_of("auto"), x, rows).ids
        assert abs(chi_square(ids[:-1:2] * 4 + ids[1::2], pair)) < 4


def test_a_rare_token_is_as_rare_as_it_should_be() -> None:
    """Odds of 2e-4 a token, over a vocabulary: the noise reaches far enough."""
    x = np.full(4096, -8.5)
    x[0] = 0.0
    rare = 4095 * np.exp(-8.5)
    n = 4000
    drawn = draw(ops_of("auto"), x, [Row(temperature=1.0, seed=s) for s in range(n)]).ids
    expected = n * rare / (1 + rare)
    assert abs((drawn != 0).sum() - expected) < 4 * np.sqrt(expected)
