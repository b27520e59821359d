"""Barriers, deferred execution, lifetimes, scratch, mapping, errors on the device."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saragossa import _core_test as core
from unit.ops.cases import Paged, normal
from unit.ops.harness import Ops, ops_of


@pytest.fixture
def ops() -> Ops:
    return ops_of("auto")


def barriers(enc: Any) -> list[bool]:
    return [r.barrier for r in enc.records()]


def ones(ops: Ops, n: int = 4) -> Any:
    return ops.f32(np.ones((2, n)))


# --- barriers -------------------------------------------------------------------------------------------


def test_independent_ops_need_no_barrier(ops: Ops) -> None:
    a, b, c, d = (ones(ops) for _ in range(4))
    enc = ops.begin()
    enc.add(c, a, b)
    enc.add(d, a, b)  # both read a and b
    enc.softcap(a.slice(0, 0), 1.0)  # no element, no conflict
    assert barriers(enc) == [False, False, False]


@pytest.mark.parametrize("kind", ["read after write", "write after read", "write after write"])
def test_conflicts_need_a_barrier(ops: Ops, kind: str) -> None:
    a, b, c, d = (ones(ops) for _ in range(4))
    enc = ops.begin()
    enc.add(c, a, b)
    if kind == "read after write":
        enc.add(d, c, c)
    elif kind == "write after read":
        enc.add(b, d, d)
    else:
        enc.add(c, d, d)
    assert barriers(enc) == [False, True]


def test_slices_of_one_buffer(ops: Ops) -> None:
    x, a = ops.f32(np.zeros((4, 8))), ones(ops, 8)
    enc = ops.begin()
    enc.add(x.slice(0, 2), a, a)
    enc.add(x.slice(2, 2), a, a)  # other rows
    enc.add(x.slice(1, 2), a, a)  # overlaps both
    assert barriers(enc) == [False, False, True]


def test_a_barrier_covers_everything_before_it(ops: Ops) -> None:
    a, b, c, d, e = (ones(ops) for _ in range(5))
    enc = ops.begin()
    enc.add(b, a, a)
    enc.add(c, a, a)
    enc.add(d, b, b)  # barrier
    enc.add(e, c, c)  # c is behind that barrier
    enc.add(a, e, e)  # e is not
    assert barriers(enc) == [False, False, True, False, True]


def test_parts_of_a_decomposition_have_barriers() -> None:
    ops = ops_of("auto", fused=False)
    enc = ops.begin()
    enc.norm_add(ones(ops), ones(ops), ops.f32(np.ones(4)), 1e-6)
    assert [(r.name, r.barrier) for r in enc.records()] == [("rms_norm", False), ("add", True)]


# --- deferred execution ---------------------------------------------------------------------------------


def test_nothing_runs_before_submit(ops: Ops) -> None:
    x, y = ones(ops), ones(ops)
    enc = ops.begin()
    enc.add(y, x, x)
    enc.add(y, y, y)
    assert np.all(y.numpy() == 1)
    enc.submit().wait()
    assert np.all(y.numpy() == 4)
    assert np.all(x.numpy() == 1)


def test_reading_before_wait_is_refused(ops: Ops) -> None:
    x, y = ones(ops), ones(ops)
    enc = ops.begin()
    enc.add(y, x, x)
    done = enc.submit()
    assert np.all(x.numpy() == 1)  # only read by the submission
    with pytest.raises(core.CoreError, match="before the submission that writes it was waited for"):
        y.numpy()
    done.wait()
    assert np.all(y.numpy() == 2)
    done.wait()  # again is allowed


def test_two_submissions_write_one_buffer(ops: Ops) -> None:
    y = ones(ops)
    first, second = ops.begin(), ops.begin()
    first.add(y, y, y)
    second.add(y, y, y)
    one, two = first.submit(), second.submit()
    one.wait()
    with pytest.raises(core.CoreError, match="before the submission"):
        y.numpy()
    two.wait()
    assert np.all(y.numpy() == 4)


def test_a_dropped_submission_counts_as_waited_for(ops: Ops) -> None:
    y = ones(ops)
    enc = ops.begin()
    enc.add(y, y, y)
    done = enc.submit()
    del done
    gc.collect()
    assert np.all(y.numpy() == 2)


def test_a_dropped_encoder_runs_nothing(ops: Ops) -> None:
    y = ones(ops)
    enc = ops.begin()
    enc.add(y, y, y)
    del enc
    gc.collect()
    ops.run(lambda e: e.softcap(ones(ops), 1.0))
    assert np.all(y.numpy() == 1)


def test_an_encoder_is_spent_after_submit(ops: Ops) -> None:
    y = ones(ops)
    enc = ops.begin()
    enc.submit().wait()
    for use in (lambda: enc.add(y, y, y), enc.submit, lambda: enc.scratch([1, 4])):
        with pytest.raises(core.CoreError, match="submitted already"):
            use()


def test_a_tensor_may_be_dropped_between_encoding_and_submit(ops: Ops) -> None:
    n = 1 << 16
    enc = ops.begin()
    y = ops.empty(1, n)
    x = ops.f32(np.full((1, n), 3.0))
    w = ops.dense(np.full((n, 1), 2.0))
    token = ops.i32([5])
    row = ops.empty(1, 1)
    enc.add(y, x, x)
    enc.embed(row, w, token, 1.0)
    del x, w, token
    gc.collect()
    others = [ops.f32(np.full((1, n), np.nan)) for _ in range(8)]  # would land in freed memory
    enc.submit().wait()
    assert np.all(y.numpy() == 6)
    assert row.numpy() == 2
    assert len(others) == 8


# --- scratch --------------------------------------------------------------------------------------------


def test_scratch_is_poisoned_and_aligned(ops: Ops) -> None:
    enc = ops.begin()
    a, b = enc.scratch([3, 5]), enc.scratch([1, 1])
    assert np.all(np.isnan(a.numpy()))
    assert a.address % 64 == b.address % 64 == 0
    assert b.address >= a.address + 3 * 5 * 4


def test_scratch_is_taken_over_once_it_is_free(ops: Ops) -> None:
    def step(hold: list[Any]) -> int:
        enc = ops.begin()
        s = enc.scratch([2, 4])
        enc.add(s, ones(ops), ones(ops))
        hold.append(enc.submit())
        return int(s.address)

    held: list[Any] = []
    first, second = step(held), step(held)
    assert first != second  # two submissions in flight
    for done in held:
        done.wait()
    assert {step(held), step(held)} == {first, second}


def test_scratch_larger_than_a_chunk(ops: Ops) -> None:
    enc = ops.begin()
    parts = [enc.scratch([5, 1 << 20]) for _ in range(6)]  # 20 MB each
    for i, part in enumerate(parts):
        x = ops.f32(np.full((5, 1 << 20), float(i)))
        enc.add(part, x, x)
    y = ops.empty(5, 1 << 20)
    enc.add(y, parts[0], parts[5])
    enc.submit().wait()
    assert np.all(y.numpy() == 10)


# --- memory ---------------------------------------------------------------------------------------------


def test_buffers_are_zero_and_aligned(ops: Ops) -> None:
    for n in (1, 100, 1 << 20):
        t = ops.device.zeros("f32", [n])
        assert t.address % 64 == 0
        assert not t.numpy().any()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/statm")
def test_a_large_buffer_costs_nothing_until_it_is_touched(ops: Ops) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    before = resident()
    t = ops.device.zeros("bf16", [1 << 29])  # 1 GiB
    assert t.shape == [1 << 29]
    assert resident() - before < 32 << 20


def test_mapped_files_are_read_in_place_at_any_offset(ops: Ops, tmp_path: Path) -> None:
    values = normal(np.random.default_rng(1), 6, 64)
    path = tmp_path / "weights"
    path.write_bytes(b"xyz" + values.tobytes())
    w = ops.device.map(str(path), 3, "f32", [6, 64])
    assert w.address % 4 == 3  # the file's own page, not a copy
    assert np.array_equal(w.numpy(), values)
    y, x = ops.empty(1, 6), normal(np.random.default_rng(2), 1, 64)
    ops.run(lambda e: e.linear(y, ops.f32(x), core.Weight(6, 64, w)))
    assert np.allclose(y.numpy(), x @ values.T, atol=1e-5)
    with pytest.raises(core.CoreError, match="which has 1539"):
        ops.device.map(str(path), 4, "f32", [6, 64])
    with pytest.raises(core.CoreError, match="absent"):
        ops.device.map(str(tmp_path / "absent"), 0, "f32", [1])


# --- errors ---------------------------------------------------------------------------------------------


def failing(ops: Ops, what: str) -> Any:
    enc = ops.begin()
    p = Paged(((0, 1),), 2, 2, 8, block=16)
    kv = p.layer(ops, np.zeros((1, 2, 16, 8)), np.zeros((1, 2, 16, 8)))
    values = {"position": 0, "sequence": 0, "block": 0} | {what: 16 if what == "position" else 1}
    batch = core.Batch(
        ids=ops.i32([0]),
        positions=ops.i32([values["position"]]),
        sequence=ops.i32([values["sequence"]]),
        block_table=ops.i32([[values["block"]]]),
    )
    x = ops.f32(np.ones((1, 2, 8)))
    enc.kv_append(kv, x, x, batch)
    return enc, x, kv, batch


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("position", "position 16 is outside of a table of 1 blocks of 16"),
        ("sequence", "row 0 is of sequence 1, there are 1"),
        ("block", "block 1 of sequence 0 is outside of a cache of 1"),
    ],
)
def test_a_row_without_a_place_fails_at_wait(ops: Ops, what: str, text: str) -> None:
    enc, x, kv, batch = failing(ops, what)
    done = enc.submit()
    for _ in range(2):
        with pytest.raises(core.CoreError, match=f"kv_append: {text}"):
            done.wait()
    enc = ops.begin()
    enc.attention(x, x, kv, batch, core.AttentionParams())
    with pytest.raises(core.CoreError, match=f"attention: {text}"):
        enc.submit().wait()
    ops.run(lambda e: e.add(x, x, x))  # the device is fine


def test_gather_of_a_missing_row(ops: Ops) -> None:
    enc = ops.begin()
    enc.gather_rows(ops.empty(1, 4), ones(ops), ops.i32([2]))
    with pytest.raises(core.CoreError, match="gather_rows: row 2 of 2"):
        enc.submit().wait()


def test_advance_feeds_the_next_step(ops: Ops) -> None:
    """A row without a token (id -1) goes on as NaN and never crashes."""
    table = ops.dense(normal(np.random.default_rng(1), 4, 8))
    batch = core.Batch(
        ids=ops.i32([2, 1]),
        positions=ops.i32([0, 7]),
        sequence=ops.i32([0, 1]),
        block_table=ops.i32([[0], [1]]),
    )
    x, logits, ids = ops.empty(2, 8), ops.empty(2, 4), ops.i32([3, -1])
    params = ops.u8(np.tile(core.sample_params(), (2, 1)))
    enc = ops.begin()
    enc.advance(batch, ids)
    enc.embed(x, table, batch.ids, 1.0)
    enc.linear(logits, x, table)
    enc.sample(logits, params, ids)
    enc.advance(batch, ids)
    enc.submit().wait()
    got = ids.numpy()
    assert got[0] >= 0
    assert got[1] == -1
    assert batch.ids.numpy().tolist() == got.tolist()
    assert batch.positions.numpy().tolist() == [2, 9]


def test_description_and_unknown_sets() -> None:
    assert core.Device(isa="scalar", threads=1).description == "scalar, 1 thread"
    assert core.Device(isa="scalar", threads=2).description == "scalar, 2 threads"
    with pytest.raises(
        core.CoreError, match="instruction set 'mmx' is not available; this machine has: auto, scalar"
    ):
        core.Device(isa="mmx")
