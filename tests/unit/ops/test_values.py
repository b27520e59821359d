"""Each op: the scalar reference against NumPy in float64, every instruction set against scalar."""

from __future__ import annotations

import numpy as np
import pytest

from saragossa import _core_test as core
from unit.ops import kv_codes, reference
from unit.ops.all_cases import CASES
from unit.ops.cases import Case, Paged, normal
from unit.ops.harness import ALL_ISAS, ISAS, Array, error, from_bf16, ops_of, read


def run(case: Case, isa: str, threads: int = 2) -> dict[str, Array]:
    ops = ops_of(isa, threads=threads)
    enc = ops.begin()
    out = case.encode(ops, enc, case.inputs())
    enc.submit().wait()
    return read(out)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_scalar_against_numpy(case: Case) -> None:
    got, want = run(case, "scalar"), case.reference(case.inputs())
    assert got.keys() == want.keys()
    for name in want:
        assert error(got[name], want[name]) <= case.tolerance, name


@pytest.mark.parametrize("isa", ALL_ISAS)
def test_instruction_set_is_tested_here(isa: str) -> None:
    if isa not in ISAS:
        pytest.skip(f"this machine has no {isa}: its kernels are tested by tests/cpp (make test-long)")
    assert ops_of(isa).device.description.startswith(isa)


@pytest.mark.parametrize("isa", ISAS[1:])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_isa_against_scalar(case: Case, isa: str) -> None:
    got, want = run(case, isa), run(case, "scalar")
    for name in want:
        assert error(got[name], want[name]) <= case.tolerance, name


@pytest.mark.parametrize("isa", ISAS)
def test_a_nan_stays_one_in_the_cache(isa: str) -> None:
    """A NaN whose payload is in the low half would round to infinity."""
    ops, p = ops_of(isa), Paged(((0, 1),), 1, 1, 20)
    k = np.zeros((1, 1, 20), np.float32)
    k.view(np.uint32)[0, 0, ::3] = 0x7F800001
    k.view(np.uint32)[0, 0, 1::3] = 0xFFFFFFFF
    kv = p.layer(ops, np.zeros((1, 1, 256, 20)), np.zeros((1, 1, 256, 20)))
    ops.run(lambda e: e.kv_append(kv, ops.f32(k), ops.f32(k), p.batch(ops)))
    assert np.array_equal(np.isnan(from_bf16(kv.k.numpy()[0, 0, 0])), np.isnan(k[0, 0]))


@pytest.mark.parametrize("isa", ISAS)
def test_what_is_not_finite_makes_its_group_nan(isa: str) -> None:
    """In a cache of u8; the group beside it is as it was."""
    ops, p = ops_of(isa), Paged(((0, 3),), 1, 1, 130, dtype="u8")
    x = normal(np.random.default_rng(1), 3, 1, 130)
    x[0, 0, 70], x[1, 0, 5], x[2, 0, 129] = np.nan, np.inf, -np.inf
    kv = p.layer(ops, np.zeros((1, 1, 256, 130)), np.zeros((1, 1, 256, 130)))
    ops.run(lambda e: e.kv_append(kv, ops.f32(x), ops.f32(x), p.batch(ops)))
    back = kv_codes.decode(kv.v.numpy()[0, 0, :3], kv.v_scales.numpy()[0, 0, :3])
    bad = np.zeros((3, 130), bool)
    bad[0, 64:128], bad[1, :64], bad[2, 128:] = True, True, True
    assert np.array_equal(np.isnan(back), bad)
    assert np.abs(back - x[:, 0])[~bad].max() < 6 / 255


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 0.0), (-3.0, -3.0), (1e-44, 2e-44), (-1e30, 1e30), (100.0, 100.3)]
)
def test_codes_stay_within_half_a_step(isa: str, low: float, high: float) -> None:
    """Of a step that is at most the range / 255 and what bf16 rounds."""
    ops, p = ops_of(isa), Paged(((0, 1),), 1, 1, 64, dtype="u8")
    x = np.linspace(low, high, 64, dtype=np.float32)[None, None]
    kv = p.layer(ops, np.zeros((1, 1, 256, 64)), np.zeros((1, 1, 256, 64)))
    ops.run(lambda e: e.kv_append(kv, ops.f32(x), ops.f32(x), p.batch(ops)))
    back = kv_codes.decode(kv.k.numpy()[0, 0, :1], kv.k_scales.numpy()[0, 0, :1])
    step = (np.float64(high) - low + abs(low) * 2**-7) / 255 * (1 + 2**-7)
    assert np.abs(back.astype(np.float64) - x[0]).max() <= step / 2 + abs(low) * 1e-7 + 1e-43


@pytest.mark.parametrize("case", [c for c in CASES if c.op.startswith("attention")], ids=str)
def test_threads_do_not_change_a_bit(case: Case) -> None:
    one, two = run(case, "auto", threads=1), run(case, "auto", threads=2)
    assert one["y"].tobytes() == two["y"].tobytes()


@pytest.mark.parametrize("isa", ISAS)
def test_angles_follow_frequencies_factor_and_positions(isa: str) -> None:
    """The device keeps the angles of recent ropes: each change must be seen, in a submission, too."""
    ops, half = ops_of(isa), 8
    x = np.random.default_rng(0).standard_normal((2, 1, 2 * half)).astype(np.float32)
    one, two = (np.float32(base) ** -(np.arange(half, dtype=np.float32) / half) for base in (1e4, 1e6))
    wanted = [(one, 1.0), (two, 1.0), (one, 1.5), (one, 1.0), (np.full(half, 0.5, np.float32), 1.0)]
    batch = core.Batch(
        ids=ops.i32([0, 0]),
        positions=ops.i32([5, 11]),
        sequence=ops.i32([0, 1]),
        block_table=ops.i32([[0], [0]]),
    )
    enc, outs = ops.begin(), []
    for step in range(3):
        for inv_freq, factor in wanted:
            out = ops.f32(x)
            enc.rope(out, core.Rope(ops.f32(inv_freq), factor), batch.positions)
            outs.append((out, inv_freq, factor, np.array([5, 11]) + step))
        enc.advance(batch, ops.i32([0, 0]))
    enc.submit().wait()
    for out, inv_freq, factor, positions in outs:
        assert error(out.numpy(), reference.rope(x, inv_freq, positions, factor)) < 1e-6


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("position", [32_767, 131_071])
def test_far_angles_are_those_of_transformers(isa: str, position: int) -> None:
    """The float32 product of position and frequency, as models were trained: 2^-24 off the true angle."""
    ops, half = ops_of(isa), 64
    inv_freq = (np.float32(1e4) ** -(np.arange(half, dtype=np.float32) / half)).astype(np.float32)
    x = np.zeros((1, 1, 2 * half), np.float32)
    x[..., :half] = 1  # becomes cosines and sines
    out = ops.f32(x)
    ops.run(lambda e: e.rope(out, core.Rope(ops.f32(inv_freq), 1.0), ops.i32([position])))
    turned = out.numpy()[0, 0].astype(np.float64)
    product = (np.float32(position) * inv_freq).astype(np.float64)
    assert np.abs(turned - np.r_[np.cos(product), np.sin(product)]).max() < 2e-7
    true = position * inv_freq.astype(np.float64)
    drift = np.abs(turned - np.r_[np.cos(true), np.sin(true)]).max()
    assert 1e-5 < drift < position * 2**-24 + 2e-7
