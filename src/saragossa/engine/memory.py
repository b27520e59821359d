"""Memory of this process, and what a sequence takes: keys, values and recurrent states."""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass

from saragossa import _core
from saragossa.engine.options import MAX_DRAFT_TOKENS
from saragossa.models.spec import DecoderSpec, DeltaSpec

KV_BYTES = {"bf16": 2, "f32": 4, "u8": 1}  # of a stored key or value
KV_GROUP = 64  # channels of u8 that share a step and a zero, of two bytes each
STATE_BYTES = 4  # recurrent states are float32
# Sequences of full context that fit the cache; its pages are committed only when they are written.
CACHE_SEQUENCES = 8
BLOCK_TOKENS = _core.BLOCK_TOKENS
SEQUENCE_MARKS = _core.SEQUENCE_MARKS
# Recurrent states of one sequence at most: those of its marks, its own, and one behind each row that is
# verified: the drawn token and drafts, for which any generation may ask. Without drafts a step ends in one.
STATES = SEQUENCE_MARKS + 1 + 1 + MAX_DRAFT_TOKENS


def peak_rss_bytes() -> int:
    """The largest resident set so far, mapped weights included."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts in KiB


@dataclass(frozen=True, slots=True)
class SequenceBytes:
    """What one sequence takes.

    full: bytes a token of the layers that see all; sliding: of the others (bytes a token, tokens kept);
    recurrent: one state of all delta nets, whatever the length (each snapshot takes another). A sequence also
    keeps marks, for rewinds: each another state, and the blocks of its windows.
    """

    full: int
    sliding: tuple[tuple[int, int], ...]
    recurrent: int

    @property
    def per_token(self) -> int:
        """Keys and values of a token that all layers keep."""
        return self.full + sum(nbytes for nbytes, _ in self.sliding)

    def kv(self, context: int) -> int:
        """Keys and values of `context` tokens."""
        return self.full * context + sum(nbytes * min(context, kept) for nbytes, kept in self.sliding)

    def marks(self, context: int) -> int:
        """What marks of `context` tokens and drafts take at most, beside `kv` and one state."""
        whole = -(-context // BLOCK_TOKENS)  # blocks of a layer that sees all
        sliding = 0
        for nbytes, kept in self.sliding:
            own = min(whole, kept // BLOCK_TOKENS)
            # Full blocks are shared; a mark's last one may have been copied when the sequence went on.
            older = min(whole - own, SEQUENCE_MARKS * (own - 1)) + SEQUENCE_MARKS
            sliding += nbytes * min(older, CACHE_SEQUENCES * whole - own)
        return sliding * BLOCK_TOKENS + (STATES - 1) * self.recurrent

    def largest(self, room: int, limit: int) -> int:
        """The longest context up to `limit` that fits into `room` bytes, with its states and marks."""
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            if self.kv(middle) + self.recurrent + self.marks(middle) <= room:
                low = middle
            else:
                high = middle - 1
        return low


def sequence_bytes(decoder: DecoderSpec, kv_dtype: str) -> SequenceBytes:
    """kv_dtype: bf16, f32 or u8. Layers that take another's keys add nothing."""
    full, recurrent = 0, 0
    heads = [*(decoder.mtp.layers if decoder.mtp else ()), *(decoder.block.layers if decoder.block else ())]
    sliding: dict[int, int] = {}
    for layer in (*decoder.layers, *heads):
        if layer.delta is not None:
            recurrent += delta_state_bytes(layer.delta)
        attention = layer.attention
        if attention is None or attention.kv_from is not None:
            continue
        nbytes = 2 * attention.kv_heads * head_bytes(attention.head_dim, kv_dtype)
        if attention.window:
            kept = kept_tokens(attention.window)
            sliding[kept] = sliding.get(kept, 0) + nbytes
        else:
            full += nbytes
    return SequenceBytes(full, tuple((nbytes, kept) for kept, nbytes in sorted(sliding.items())), recurrent)


def head_bytes(head_dim: int, kv_dtype: str) -> int:
    """Of one stored key or value head."""
    steps = 4 * -(-head_dim // KV_GROUP) if kv_dtype == "u8" else 0
    return head_dim * KV_BYTES[kv_dtype] + steps


def kept_tokens(window: int) -> int:
    """The most that a layer with a window keeps: its blocks at both ends, and one more for rewinds."""
    return ((window + 2 * (BLOCK_TOKENS - 1)) // BLOCK_TOKENS + 1) * BLOCK_TOKENS


def delta_state_bytes(delta: DeltaSpec) -> int:
    """Of one layer: a matrix a value head, and the last inputs of the convolution."""
    matrices = delta.value_heads * delta.key_dim * delta.value_dim
    return STATE_BYTES * (matrices + (delta.conv_width - 1) * delta.channels)
