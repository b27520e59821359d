"""The bounds of the Metal counters, per decoded token: one table for the bench and for the tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from saragossa.cli.metal_bytes import TokenBytes
from saragossa.models.spec import DecoderSpec, LayerSpec

FIELDS = (
    "command_buffers",
    "encoders",
    "host_waits",
    "readbacks",
    "dispatches",
    "barriers",
    "unique_bytes",
    "minimal_bytes",
    "requested_bytes",
    "encode_ms",
)

# figure: (least, most)
BOUNDS: dict[str, tuple[float, float]] = {
    "command_buffers": (1, 1),
    "encoders": (1, 1),
    "host_waits": (0, 0),
    "readbacks": (0, 0),
}
STEP_DISPATCHES = (
    8  # of a token outside its layers: embedding, first norm, head, softcap, sampling, feeding the next step
)
# A dispatch reads what the one before it has written, so each has one barrier in front; more are for nothing.
BARRIERS_A_DISPATCH = 1
# Unique bytes, read and written, over weights, keys and values, and states.
READ_SHARE = 1.03
READ_SHARE_NEWER = 1.05  # of models with experts or delta nets
ENCODE_MS = 0.3 / (28 * 9)  # a dispatch


class Model(NamedTuple):
    """What bounds follow from."""

    kinds: Mapping[str, LayerSpec]  # a layer of each kind
    decoder: DecoderSpec
    least: TokenBytes


def layer_dispatches(layer: LayerSpec) -> int:
    """The most that a layer may have."""
    # q, k, v; norms, rope, append; attention; merge of a split context; o; norm
    # q, k, v, z, a, b; convolution; delta rule and norm; out; norm
    count = 6 if layer.attention is not None else 5
    if layer.moe is None:
        return count + 3  # gate and up; down; norm
    if layer.mlp is None:
        return count + 5  # router and shared gate; choice; gate and up; down; norm
    # Gemma 4's both: gate and up; down; norms of experts and router; router; choice; gate and up; down; norms
    return count + 10


def check(figures: Mapping[str, Any], model: Model) -> Iterator[str]:
    """What lies outside its bound, in words."""
    for name, (least, most) in BOUNDS.items():
        if not least <= figures[name] <= most:
            yield f"{name} {figures[name]:g}, bound {least:g} to {most:g}"
    for kind, count in figures["layer_dispatches"].items():
        if count > (bound := layer_dispatches(model.kinds[kind])):
            yield f"dispatches of a layer {count:g} ({kind}), bound {bound}"
    dispatches = sum(map(layer_dispatches, model.decoder.layers)) + STEP_DISPATCHES
    if figures["dispatches"] > dispatches:
        yield f"dispatches {figures['dispatches']:g}, bound {dispatches}"
    barriers = BARRIERS_A_DISPATCH * min(figures["dispatches"], dispatches)
    if figures["barriers"] > barriers:
        yield f"barriers {figures['barriers']:g}, bound {barriers:g}, one in front of each dispatch"
    newer = any(layer.moe is not None or layer.delta is not None for layer in model.decoder.layers)
    bound_share = READ_SHARE_NEWER if newer else READ_SHARE
    share = figures["unique_bytes"] / model.least.total
    if share > bound_share:
        yield f"unique bytes {share:.3f} times the least, bound {bound_share}"
    encode = ENCODE_MS * dispatches
    if figures["encode_ms"] > encode:
        yield f"encode_ms {figures['encode_ms']:.3f}, bound {encode:.3f} for {dispatches} dispatches"
