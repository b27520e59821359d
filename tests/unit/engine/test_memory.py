"""What a sequence takes, in keys, values and states."""

from pathlib import Path

import pytest

import saragossa
from saragossa import _core
from saragossa.cli.fits import fit
from saragossa.engine.memory import (
    BLOCK_TOKENS,
    SEQUENCE_MARKS,
    STATES,
    SequenceBytes,
    delta_state_bytes,
    kept_tokens,
    sequence_bytes,
)
from saragossa.engine.options import MAX_DRAFT_TOKENS
from saragossa.models.spec import AttentionSpec, DecoderSpec, DeltaSpec, LayerSpec, MlpSpec, RopeSpec


def layer(kv_heads: int = 2, head_dim: int = 16, window: int = 0, kv_from: int | None = None) -> LayerSpec:
    attention = AttentionSpec(4, kv_heads, head_dim, 1.0, 0, window=window, kv_from=kv_from)
    return LayerSpec(attention, MlpSpec(8))


def decoder(*layers: LayerSpec) -> DecoderSpec:
    return DecoderSpec(96, 64, layers, (RopeSpec(16, (1.0,) * 8),), 1e-6, 512)


DELTA = DeltaSpec(2, 6, 8, 12, conv_width=4)


def test_layers_add_up() -> None:
    delta = LayerSpec(None, MlpSpec(8), delta=DELTA)
    layers = (layer(), layer(window=100), delta, layer(3, 8), layer(kv_from=0), delta)
    cost = sequence_bytes(decoder(*layers), "bf16")
    full, sliding = 2 * (2 * 16 + 3 * 8) * 2, 2 * 2 * 16 * 2
    assert cost == SequenceBytes(full, ((sliding, kept_tokens(100)),), 2 * delta_state_bytes(DELTA))
    assert cost.per_token == full + sliding
    assert cost.kv(50) == 50 * (full + sliding)
    assert cost.kv(10_000) == 10_000 * full + kept_tokens(100) * sliding


def test_state_of_a_delta_net() -> None:
    channels = 2 * 2 * 8 + 6 * 12
    assert delta_state_bytes(DELTA) == 4 * (6 * 8 * 12 + 3 * channels)


@pytest.mark.parametrize("window", [1, 2, 100, 256, 257, 512, 1024, 4096])
def test_kept_tokens_bound_what_the_cache_keeps(window: int) -> None:
    """A layer gives back the blocks that no later query sees, but for one."""
    most = 0
    for length in range(1, 4 * window + 2048):
        first = max(0, length - window + 1)  # the next query sees itself and window - 1 before it
        kept = -(-length // BLOCK_TOKENS) - max(0, first // BLOCK_TOKENS - 1)
        most = max(most, kept * BLOCK_TOKENS)
    assert most <= kept_tokens(window) <= most + BLOCK_TOKENS


FAMILIES = Path(__file__).parents[2] / "golden" / "families"


@pytest.mark.parametrize("name", ["gemma4-e2b-q4g32", "qwen3_5-q4g32"])
def test_a_long_talk_takes_what_is_counted(name: str) -> None:
    """Turns of many lengths, each of which leaves marks: never more than is counted, and not much less."""
    with saragossa.LLM(FAMILIES / name, device="cpu", context=2048) as llm:
        model, cost = llm.loaded.model, sequence_bytes(llm.loaded.spec.decoder, "bf16")
        before, slots = model.cache_groups, model.free_slots
        session = llm.session()
        most_states, most_kv = 0, 0
        for turn in range(80):
            session.prefill([5] * (9 + turn % 17))
            session.step()
            session.step()
            most_states = max(most_states, slots - model.free_slots)
            used = [(was[0], was[2] - now[2]) for was, now in zip(before, model.cache_groups, strict=True)]
            sliding = sum(blocks for window, blocks in used if window)
            most_kv = max(most_kv, sliding)
        assert session.length > 1200
        per_block = BLOCK_TOKENS * sum(nbytes for nbytes, _ in cost.sliding)
        counted = cost.kv(session.length) - cost.full * session.length
        counted += cost.marks(session.length) - (STATES - 1) * cost.recurrent
        assert most_kv * per_block <= counted
        assert most_kv * per_block > counted // 2 or not cost.sliding
        assert SEQUENCE_MARKS < most_states <= SEQUENCE_MARKS + 2 or not cost.recurrent


def test_drafts_take_the_states_that_are_counted() -> None:
    """As many marks as are kept, as many drafts as are verified: the estimate is what the core takes."""
    folder = FAMILIES / "qwen3_5-q4g32"
    with saragossa.LLM(folder, device="cpu", context=256) as llm:
        model, cost = llm.loaded.model, sequence_bytes(llm.loaded.spec.decoder, "bf16")
        free, session = model.free_slots, _core.Session(model, 1, llm.context)
        session.configure(0)
        for _ in range(SEQUENCE_MARKS):
            session.prefill(0, [5, 9, 11], True)
            session.mark(0)
        session.step([0])  # leaves the last mark's state
        session.verify(0, [7] * MAX_DRAFT_TOKENS)
        assert free - model.free_slots == STATES
        assert cost.marks(llm.context) == (STATES - 1) * cost.recurrent > 0
        fitted = fit("x", folder, 1 << 40, llm.context, "bf16")
        assert fitted.state_bytes + fitted.mark_bytes == STATES * cost.recurrent


def test_largest_context() -> None:
    cost = SequenceBytes(full=10, sliding=((5, 512),), recurrent=1000)
    states = STATES * 1000
    assert cost.largest(states - 1, 10_000) == 0
    one_block = states + 7 * 256 * 5  # of the eight sequences that the cache has room for
    assert cost.largest(one_block + 15 * 40, 10_000) == 40
    assert cost.largest(one_block + 15 * 40 - 1, 10_000) == 39
    assert cost.largest(states + 10 * 5000 + 5 * 512 + (8 + 8) * 256 * 5, 10_000) == 5000
    assert cost.largest(1 << 40, 10_000) == 10_000
    only = SequenceBytes(full=0, sliding=(), recurrent=10)
    assert only.largest(10 * STATES, 77) == 77
