"""What a sequence takes, in keys, values and states."""

import pytest

from saragossa.engine.loading import BLOCK_TOKENS
from saragossa.engine.memory import BLOCK_TOKENS as COUNTED
from saragossa.engine.memory import SequenceBytes, delta_state_bytes, kept_tokens, sequence_bytes
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
    assert COUNTED == BLOCK_TOKENS


def test_largest_context() -> None:
    cost = SequenceBytes(full=10, sliding=((5, 100),), recurrent=1000)
    assert cost.largest(999, 10_000) == 0
    assert cost.largest(1000 + 15 * 40, 10_000) == 40
    assert cost.largest(1000 + 15 * 40 - 1, 10_000) == 39
    assert cost.largest(1000 + 10 * 5000 + 500, 10_000) == 5000
    assert cost.largest(1 << 40, 10_000) == 10_000
    only = SequenceBytes(full=0, sliding=(), recurrent=10)
    assert only.largest(10, 77) == 77
