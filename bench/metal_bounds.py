"""The bounds of the Metal counters, per decoded token: one table for the bench and for the tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
LAYER_DISPATCHES = 9  # of a dense layer
STEP_DISPATCHES = (
    8  # of a token outside its layers: embedding, last norm, head, sampling, feeding the next step
)
# A dispatch reads what the one before it has written, so each has one barrier in front; more are for nothing.
BARRIERS_A_DISPATCH = 1
READ_SHARE = 1.03  # unique bytes over weights plus KV
ENCODE_MS_28_LAYERS = 0.3


def check(figures: Mapping[str, float], layers: int) -> Iterator[str]:
    """What lies outside its bound, in words."""
    for name, (least, most) in BOUNDS.items():
        if not least <= figures[name] <= most:
            yield f"{name} {figures[name]:g}, bound {least:g} to {most:g}"
    dispatches = LAYER_DISPATCHES * layers + STEP_DISPATCHES
    if figures["dispatches"] > dispatches:
        yield f"dispatches {figures['dispatches']:g}, bound {dispatches}"
    barriers = BARRIERS_A_DISPATCH * min(figures["dispatches"], dispatches)
    if figures["barriers"] > barriers:
        yield f"barriers {figures['barriers']:g}, bound {barriers:g}, one in front of each dispatch"
    share = figures["unique_bytes"] / figures["minimal_bytes"]
    if share > READ_SHARE:
        yield f"unique bytes {share:.3f} times the least, bound {READ_SHARE}"
    encode = ENCODE_MS_28_LAYERS * layers / 28
    if figures["encode_ms"] > encode:
        yield f"encode_ms {figures['encode_ms']:.3f}, bound {encode:.3f} for {layers} layers"
