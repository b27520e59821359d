"""32768 tokens on tiny checkpoints, cut down to the layers that a test is about."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np

from saragossa import _core
from saragossa.engine.loading import BLOCK_TOKENS, open_device
from saragossa.engine.session import chunks
from saragossa.weights.bind import BoundTensor, bind
from saragossa.weights.checkpoint import load_spec
from saragossa.weights.safetensors import SafetensorsIndex

GOLDEN = Path(__file__).parents[1] / "golden"
TOKENS = 32768
CONTEXT = TOKENS + 1024


def tokens(count: int = TOKENS) -> list[int]:
    ids = np.random.default_rng(32).integers(4, 250, TOKENS)
    ids[0] = 2
    return cast(list[int], ids[:count].tolist())


def model(
    name: str,
    layers: tuple[int, ...] | None = None,
    *,
    device: str = "cpu",
    exact: bool = True,
    sequences: int = 2,
) -> _core.Model:
    """The checkpoint with these of its layers, and a context that its config does not promise."""
    spec = load_spec(GOLDEN / name)
    tensors = bind(spec, SafetensorsIndex.open(GOLDEN / name))
    decoder = replace(spec.decoder, max_context=CONTEXT)
    if layers is not None:
        decoder = replace(decoder, layers=tuple(decoder.layers[i] for i in layers))
        tensors = list(renumbered(tensors, layers))
    on, values = open_device(device, exact=exact)
    blocks = -(-CONTEXT // BLOCK_TOKENS) * sequences
    return _core.Model(on, decoder, tensors, blocks=blocks, kv_dtype=str(values["kv_dtype"]))


def renumbered(tensors: list[BoundTensor], layers: tuple[int, ...]) -> Iterator[BoundTensor]:
    for tensor in tensors:
        parts = tensor.role.split(".", 2)
        if parts[0] != "layers":
            yield tensor
        for at, layer in enumerate(layers):
            if parts[:2] == ["layers", str(layer)]:
                yield replace(tensor, role=f"layers.{at}.{parts[2]}")


def prefill(
    core: _core.Session, ids: list[int], *, chunk: int = 2048, row: int = 0, marks: bool = True
) -> None:
    """Appended in chunks that end where `chunk` divides."""
    for begin, end in chunks(core.length(row), len(ids), chunk):
        core.prefill(row, ids[begin:end], False)
        if marks:
            core.mark(row)
