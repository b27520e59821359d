"""Attention on the Metal device: shapes beyond the op cases, splits, independence of rows, traffic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from metal.emulator import Emulator
from saragossa import _core_test as core
from unit.ops.cases import Case, Paged, attention_case, normal
from unit.ops.harness import Array, Ops, error, from_bf16, read, to_bf16
from unit.ops.test_fused import EXACT

CASES = [
    attention_case("splits", Paged(((1900, 2),), 4, 2, 64)),
    attention_case("splits-at-an-edge", Paged(((511, 1), (512, 1), (255, 1)), 2, 2, 64)),
    attention_case("window-over-splits", Paged(((1500, 2),), 4, 2, 64, block=64), window=700),
    attention_case("sequences", Paged(((1030, 1), (3, 2), (700, 1), (0, 1)), 4, 1, 128, block=64)),
    attention_case("head-80", Paged(((530, 1),), 6, 2, 80)),
    attention_case("head-96", Paged(((530, 1),), 6, 2, 96, block=512)),
    attention_case("head-256", Paged(((530, 1),), 8, 1, 256)),
    attention_case("head-256-f32", Paged(((270, 1),), 2, 1, 256, dtype="f32")),
    attention_case("head-512", Paged(((270, 2),), 4, 2, 512)),
    attention_case("head-odd", Paged(((270, 2),), 4, 2, 33, block=64)),
    attention_case("group-12", Paged(((300, 1),), 12, 1, 64)),
    attention_case("group-16", Paged(((300, 1),), 16, 1, 128)),
    attention_case("softcap-over-splits", Paged(((600, 1),), 4, 2, 64), softcap=5.0, spread=4.0),
    attention_case("prefill-head-96", Paged(((200, 40),), 6, 2, 96)),
    attention_case("prefill-head-odd", Paged(((60, 21),), 4, 2, 33, block=64)),
    attention_case("prefill-head-512", Paged(((60, 21),), 2, 2, 512)),
    attention_case("prefill-group-16", Paged(((40, 12),), 16, 1, 128)),
    attention_case("prefill-window-sequences", Paged(((90, 40), (0, 30)), 4, 2, 64, block=64), window=33),
]


pytestmark = pytest.mark.usefixtures("checked")


@pytest.fixture(scope="module")
def metal() -> Ops:
    return Ops(device="metal")


def run(case: Case, ops: Ops) -> Array:
    enc = ops.begin()
    out = case.encode(ops, enc, case.inputs())
    enc.submit().wait()
    return read(out)["y"]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_scalar(case: Case, metal: Ops) -> None:
    assert error(run(case, metal), run(case, Ops("scalar"))) <= case.tolerance


@pytest.mark.parametrize("layout", range(1, 4))
def test_no_layout_of_matrices_is_assumed(metal: Ops, emulator: Emulator, layout: int) -> None:
    case = attention_case("layout", Paged(((20, 30),), 4, 2, 64))
    want = run(case, metal)
    emulator.set("shuffle_cooperative", True)
    emulator.set("seed", layout)
    try:
        assert run(case, metal).tobytes() == want.tobytes()
    finally:
        emulator.set("shuffle_cooperative", False)
        emulator.set("seed", 1)


def test_the_switch_takes_the_other_kernel(metal: Ops, emulator: Emulator) -> None:
    case = attention_case("switch", Paged(((100, 40),), 4, 2, 64))
    plain = Ops(device="metal", metal_simdgroup_attention=False)
    kernels = []
    results = []
    for ops in (metal, plain):
        emulator.counters(reset=True)
        results.append(run(case, ops))
        kernels.append({d["kernel"] for d in emulator.counters()["dispatch_list"]})
    assert kernels == [{"attention_prefill"}, {"attention_decode"}]
    assert error(results[0], results[1]) <= case.tolerance


def test_each_run_of_a_mixed_batch_has_its_kernel(metal: Ops, emulator: Emulator) -> None:
    """Decoding sequences beside prompts: neither takes the other's kernel, whatever the average is."""
    for spans, kernels in (
        (((300, 1), (50, 30), (200, 1), (0, 1)), ["decode", "merge", "prefill", "decode", "merge"]),
        (((0, 20), (70, 12), (40, 8)), ["prefill", "decode"]),
        (tuple((10 * i, 1) for i in range(12)), ["decode"]),
    ):
        case = attention_case("mixed", Paged(spans, 4, 2, 64, block=64))
        emulator.counters(reset=True)
        got = run(case, metal)
        assert [d["kernel"] for d in emulator.counters()["dispatch_list"]] == [
            f"attention_{k}" for k in kernels
        ]
        assert error(got, run(case, Ops("scalar"))) <= case.tolerance


def test_rows_of_a_session_that_stand_by_do_not_count(metal: Ops, emulator: Emulator) -> None:
    """A prompt of one row of a session of eight, whose table has all of them."""
    cache = Cache(metal, 128)
    cache.table = np.tile(cache.table, (4, 1))
    cache.runs = [40]
    emulator.counters(reset=True)
    cache.attend([(0, p) for p in range(40, 80)], 80)
    assert [d["kernel"] for d in emulator.counters()["dispatch_list"]] == ["attention_prefill"]


# --- one row and its neighbours ---------------------------------------------------------------------------


class Cache:
    """Two sequences of one layer; rows at chosen positions."""

    def __init__(self, ops: Ops, length: int, kv_heads: int = 2, d: int = 64, block: int = 64) -> None:
        rng = np.random.default_rng(5)
        self.ops, self.d, self.columns = ops, d, length // block
        k, v = (ops.bf16(normal(rng, 2 * self.columns, kv_heads, block, d)) for _ in range(2))
        self.kv = core.KvLayer(k, v)
        self.table = np.arange(2 * self.columns, dtype=np.int32).reshape(2, self.columns)
        self.queries = normal(rng, 2, length, 4, d)
        self.runs: list[int] = []  # what the batch tells of its rows

    def batch(self, rows: list[tuple[int, int]], max_keys: int) -> Any:
        i32 = self.ops.i32
        return core.Batch(
            ids=i32(np.zeros(len(rows))),
            positions=i32([p for _, p in rows]),
            sequence=i32([s for s, _ in rows]),
            block_table=i32(self.table),
            max_keys=max_keys,
            runs=self.runs,
        )

    def attend(self, rows: list[tuple[int, int]], max_keys: int, **params: Any) -> Array:
        """y of rows (sequence, position)."""
        y = self.ops.empty(len(rows), 4, self.d)
        q = self.ops.f32(np.stack([self.queries[s, p] for s, p in rows]))
        attention = core.AttentionParams(scale=self.d**-0.5, **params)
        self.ops.run(lambda e: e.attention(y, q, self.kv, self.batch(rows, max_keys), attention))
        return np.asarray(y.numpy())


@pytest.mark.parametrize("window", [0, 300])
def test_a_row_depends_on_no_other_row(metal: Ops, window: int) -> None:
    cache = Cache(metal, 1024)
    alone = cache.attend([(0, 600)], 601, window=window)
    for rows, at in (
        ([(1, 3), (0, 600)], 1),
        ([(0, 598), (0, 599), (0, 600), (1, 1000)], 2),
    ):
        assert cache.attend(rows, 1024, window=window)[at].tobytes() == alone[0].tobytes()


@pytest.mark.parametrize("window", [0, 21])
def test_a_row_of_a_prompt_depends_on_no_other_row(metal: Ops, window: int) -> None:
    cache = Cache(metal, 128)
    long = cache.attend([(0, p) for p in range(40, 80)], 80, window=window)
    short = cache.attend([(0, p) for p in range(51, 75)], 75, window=window)
    assert short.tobytes() == long[11:35].tobytes()
    mixed = cache.attend([(1, 5), *((0, p) for p in range(51, 75))], 75, window=window)
    assert mixed[1:].tobytes() == short.tobytes()


def attend_at(ops: Ops, y: Any, q: Any, cache: Cache, batch: Any) -> None:
    ops.run(lambda e: e.attention(y, q, cache.kv, batch, core.AttentionParams(scale=0.125)))


def test_positions_are_read_on_the_device(metal: Ops) -> None:
    """A step is encoded before the one in front of it has moved the positions."""
    cache = Cache(metal, 1024)
    batch = cache.batch([(0, 510)], 513)
    q = metal.f32(cache.queries[:1, 7])
    enc, ys = metal.begin(), [metal.empty(1, 4, 64) for _ in range(3)]
    for y in ys:
        enc.attention(y, q, cache.kv, batch, core.AttentionParams(scale=0.125))
        enc.advance(batch, metal.i32([0]))
    enc.submit().wait()
    for step, y in enumerate(ys):
        want = metal.empty(1, 4, 64)
        at = cache.batch([(0, 510 + step)], 1024)
        attend_at(metal, want, q, cache, at)
        assert y.numpy().tobytes() == want.numpy().tobytes(), step


@pytest.mark.parametrize("rows", [1, 20])
def test_a_missing_block_makes_its_rows_nan(metal: Ops, rows: int) -> None:
    cache = Cache(metal, 256)
    cache.table[0, 1] = 1 << 30
    y = cache.attend([*((0, 100 + r) for r in range(rows)), (1, 90)], 256)
    assert np.isnan(y[:rows]).all()
    assert np.isfinite(y[rows]).all()


def test_more_keys_than_were_announced_are_nan(metal: Ops) -> None:
    cache = Cache(metal, 1024)
    assert np.isnan(cache.attend([(0, 600)], 512)).all()
    assert np.isnan(cache.attend([(0, 300)], 200)).all()


# --- traffic ----------------------------------------------------------------------------------------------


def traffic(emulator: Emulator, case: Case, ops: Ops) -> list[dict[str, Any]]:
    """The dispatches of the case."""
    with emulator.traced() as counted:
        run(case, ops)
    out: list[dict[str, Any]] = counted["dispatch_list"]
    return out


@pytest.mark.parametrize(("heads", "kv_heads", "d"), [(16, 8, 128), (8, 1, 256), (4, 1, 64), (14, 2, 80)])
def test_keys_and_values_are_read_once_a_kv_head(
    metal: Ops, emulator: Emulator, heads: int, kv_heads: int, d: int
) -> None:
    keys = 768
    case = attention_case("traffic", Paged(((keys - 1, 1),), heads, kv_heads, d))
    decode, merge = traffic(emulator, case, metal)
    assert [decode["kernel"], merge["kernel"]] == ["attention_decode", "attention_merge"]
    cached = keys * kv_heads * d * 2
    of_cache = [b for b in decode["buffers"] if b["unique_read"] == cached]
    assert len(of_cache) == 2  # k and v
    # Lanes that have no key of their own read their neighbours' again: rows of 160 bytes leave some.
    most = cached if 256 % d == 0 else cached * 5 // 4
    assert all(cached <= b["requested_read"] <= most for b in of_cache)
    # Splits pass on a maximum, a sum and d values a head; beside the cache: the queries, a few numbers.
    assert decode["requested_written"] == 3 * heads * (d + 2) * 4
    assert decode["unique_read"] <= 2 * cached + heads * d * 4 + 64


def test_what_a_window_hides_is_not_read(metal: Ops, emulator: Emulator) -> None:
    case = attention_case("traffic-window", Paged(((1023, 1),), 4, 2, 64), window=256)
    (decode,) = traffic(emulator, case, metal)
    assert decode["unique_read"] <= 2 * 256 * 2 * 64 * 2 + 4 * 64 * 4 + 64


def test_a_prompt_reads_no_keys_that_its_window_hides(metal: Ops, emulator: Emulator) -> None:
    """Of each tile of 16 tokens the keys from the first one's window on."""
    first, tokens, window = 500, 32, 64
    case = attention_case("prompt-window", Paged(((first, tokens),), 4, 2, 64), window=window)
    (prefill,) = traffic(emulator, case, metal)
    seen = (window + tokens - 1) * 2 * 64 * 2
    of_cache = [b for b in prefill["buffers"] if b["unique_read"] == seen]
    assert len(of_cache) == 2
    assert [b["requested_read"] for b in of_cache] == [2 * (window + 15) * 2 * 64 * 2] * 2


def test_one_dispatch_where_one_split_is_enough(metal: Ops, emulator: Emulator) -> None:
    for keys, dispatches in ((1, 1), (256, 1), (257, 2)):
        case = attention_case("dispatches", Paged(((keys - 1, 1),), 4, 2, 64))
        assert len(traffic(emulator, case, metal)) == dispatches


def test_a_prompt_reads_keys_once_a_tile(metal: Ops, emulator: Emulator) -> None:
    """32 rows a tile: with 4 heads a kv head, 8 tokens. Keys behind a tile's last row are not read."""
    tokens, d = 64, 64
    case = attention_case("prompt", Paged(((0, tokens),), 8, 2, d))
    (prefill,) = traffic(emulator, case, metal)
    keys = sum(range(8, tokens + 1, 8)) * 2 * d * 2
    of_cache = [b for b in prefill["buffers"] if b["unique_read"] == tokens * 2 * d * 2]
    assert [b["requested_read"] for b in of_cache] == [keys, keys]


# --- the way into the cache ---------------------------------------------------------------------------------


def test_a_nan_stays_one_in_the_cache(metal: Ops) -> None:
    """A NaN whose payload is in the low half would round to infinity."""
    p = Paged(((0, 1),), 1, 1, 20)
    k = np.zeros((1, 1, 20), np.float32)
    k.view(np.uint32)[0, 0, ::3] = 0x7F800001
    k.view(np.uint32)[0, 0, 1::3] = 0xFFFFFFFF
    kv = p.layer(metal, np.zeros((1, 1, 256, 20)), np.zeros((1, 1, 256, 20)))
    metal.run(lambda e: e.kv_append(kv, metal.f32(k), metal.f32(k), p.batch(metal)))
    assert np.array_equal(np.isnan(from_bf16(kv.k.numpy()[0, 0, 0])), np.isnan(k[0, 0]))


def test_a_row_without_a_block_is_not_appended(metal: Ops) -> None:
    cache = Cache(metal, 128)
    before = cache.kv.k.numpy().copy()
    cache.table[0, 1] = -1
    row = metal.f32(np.ones((2, 2, 64), np.float32))
    metal.run(lambda e: e.kv_append(cache.kv, row, row, cache.batch([(0, 70), (1, 3)], 128)))
    changed = np.argwhere((cache.kv.k.numpy() != before).any(-1))
    assert changed.tolist() == [[2, 0, 3], [2, 1, 3]]
    assert (cache.kv.k.numpy()[2, :, 3] == to_bf16(np.ones(64))).all()


@pytest.mark.parametrize("name", EXACT)
def test_fused_equals_parts(metal: Ops, name: str) -> None:
    """In one dispatch, in parts, and on the scalar CPU. What a cache rounds may round the other way."""
    results = []
    for ops in (metal, Ops(device="metal", fused=False), Ops("scalar")):
        enc = ops.begin()
        out = EXACT[name](ops, enc)
        enc.submit().wait()
        results.append(read(out))
    for key, fused in results[0].items():
        for other in results[1:]:
            rounded = key.startswith("cache") or key.endswith("scales")
            least = 1e-5 if name.startswith("attention") else 2e-6
            assert error(fused, other[key]) <= (2**-6 if rounded else least), key
