"""What a decoded token costs on the Metal device, counted by the emulator; no time of a GPU is in it.

    make metal-counters

Per model: command buffers, encoders, host waits, readbacks, dispatches, barriers, bytes, and the
milliseconds of CPU that encoding takes. Bytes are traced, never declared: a layer of each kind and the
head at their real shape, times how many there are. The cache is as long as the context says; what fills it
is encoded and not executed, for the values of keys change no count. The last line is one JSON object; the
exit code is 1 where a figure leaves its bound.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(Path(__file__).parent)]

from metal import core  # noqa: E402, F401  # puts the emulator's core in place, before anything imports the other

# isort: split
from metal_bounds import FIELDS, Model, check  # noqa: E402
from metal_roofline import print_roofline  # noqa: E402
from metal_shapes import FAMILIES, SHAPES, Shape  # noqa: E402
from metal_zeros import write_zeros  # noqa: E402

from metal.emulator import Emulator  # noqa: E402
from saragossa import _core  # noqa: E402
from saragossa.cli import metal_bytes  # noqa: E402
from saragossa.engine.loading import load  # noqa: E402
from saragossa.weights.bind import bind  # noqa: E402
from saragossa.weights.checkpoint import load_spec  # noqa: E402
from saragossa.weights.safetensors import SafetensorsIndex  # noqa: E402

CONTEXT, LONG = 1024, 32768  # tokens in the cache when a token is traced
STEPS = 16  # over which calls are counted
CHUNK = 512  # tokens of a prefill's submission
SMALL_VOCAB = 1024  # where the head does not matter
CALLS = ("command_buffers", "encoders", "host_waits", "readbacks", "dispatches", "barriers")
# Larger than any model here: the machine that counts need not hold it.
MEMORY_MIB = 64 << 10

Figures = dict[str, Any]


@contextmanager
def decoding(shape: Shape, context: int, emulator: Emulator, *, ahead: bool) -> Iterator[_core.Session]:
    """A session on a checkpoint of zeros, `context` tokens in its cache; kernels do not run until told to."""
    before = os.environ.get("SARAGOSSA_RUN_AHEAD", "")
    emulator.set("working_set_mib", MEMORY_MIB)
    emulator.set("max_buffer_mib", MEMORY_MIB)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        write_zeros(path, shape.config)
        os.environ["SARAGOSSA_RUN_AHEAD"] = "on" if ahead else "off"
        try:
            loaded = load(path, device="metal", context=context + 16 * STEPS)
        finally:
            os.environ["SARAGOSSA_RUN_AHEAD"] = before  # empty counts as unset
        emulator.set("execute", False)
        session = _core.Session(loaded.model, 1, loaded.context)
        session.configure(0)
        for first in range(0, context, CHUNK):
            count = min(CHUNK, context - first)
            session.prefill(0, [2 + i % 512 for i in range(first, first + count)], first + count == context)
        try:
            yield session
        finally:
            emulator.set("execute", True)


def reads(shape: Shape, context: int, emulator: Emulator) -> Counter[str]:
    """Bytes that a token of this model reads and writes, nothing else running."""
    with decoding(shape, context, emulator, ahead=False) as session:
        emulator.set("execute", True)
        emulator.set("trace", True)
        emulator.counters(reset=True)
        session.step([0])
        counted = emulator.counters(reset=True)
        emulator.set("trace", False)
    return Counter(
        unique_bytes=counted["touched_read"] + counted["touched_written"],
        requested_bytes=counted["requested_read"],
    )


def minus(left: Counter[str], right: Counter[str], times: int = 1) -> Counter[str]:
    return Counter({name: left[name] - times * right[name] for name in left})


def layer_reads(shape: Shape, context: int, emulator: Emulator) -> dict[str, Counter[str]]:
    """What one more layer of each kind adds to a model that has all kinds."""
    small = shape.changed(vocab_size=SMALL_VOCAB)
    kinds = tuple(Counter(shape.layer_kinds()))
    base = reads(small.with_layers(kinds), context, emulator)
    return {kind: minus(reads(small.with_layers((kind, *kinds)), context, emulator), base) for kind in kinds}


def other_reads(
    shape: Shape, layers: dict[str, Counter[str]], context: int, emulator: Emulator
) -> Counter[str]:
    """What a token reads outside its layers, the head above all."""
    rest = reads(shape.with_layers(tuple(layers)), context, emulator)
    for of_layer in layers.values():
        rest = minus(rest, of_layer)
    return rest


def calls(shape: Shape, context: int, emulator: Emulator) -> Figures:
    """Calls and encoding time of a model in the running loop."""
    with decoding(shape, context, emulator, ahead=True) as session:
        for _ in range(3):
            session.step([0])
        encode = []
        for _ in range(8):  # the least disturbed run counts
            session.configure(0)  # waits for the step that runs ahead
            emulator.counters(reset=True)
            for _ in range(STEPS):
                session.step([0])
            session.configure(0)
            counted = emulator.counters(reset=True)
            native = counted["encode_ns"] - counted["method_ns"]  # without the emulator's own methods
            encode.append(native / (STEPS + 1) / 1e6)
    return {name: counted[name] / (STEPS + 1) for name in CALLS} | {"encode_ms": min(encode)}


def layer_dispatches(shape: Shape, context: int, emulator: Emulator) -> dict[str, float]:
    """By kind of layer."""
    kinds = tuple(Counter(shape.layer_kinds()))

    def count(layers: tuple[str, ...]) -> float:
        return float(calls(shape.with_layers(layers), context, emulator)["dispatches"])

    base = count(kinds)
    return {kind: count((kind, *kinds)) - base for kind in kinds}


def model_of(shape: Shape, context: int) -> Model:
    """The model's spec, and the least that a token moves behind `context` others."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        write_zeros(path, shape.config)
        spec = load_spec(path)
        tensors = bind(spec, SafetensorsIndex.open(path))
    kinds = dict(zip(shape.layer_kinds(), spec.decoder.layers, strict=True))
    return Model(kinds, spec.decoder, metal_bytes.of_token(spec.decoder, tensors, context + 1))


def measure(shape: Shape, emulator: Emulator, contexts: tuple[int, ...] = (CONTEXT,)) -> dict[int, Figures]:
    """All figures of one model, per decoded token, by context."""
    results: dict[int, Figures] = {}
    rest: Counter[str] | None = None
    for context in contexts:
        layers = layer_reads(shape, context, emulator)
        rest = rest or other_reads(shape, layers, context, emulator)
        total = rest
        for kind, count in Counter(shape.layer_kinds()).items():
            total = minus(total, layers[kind], -count)
        figures = calls(shape, context, emulator) | dict(total)
        figures["minimal_bytes"] = model_of(shape, context).least.total
        results[context] = {name: round(figures[name], 4) for name in FIELDS}
        results[context]["layer_dispatches"] = layer_dispatches(shape, context, emulator)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description="What a decoded token costs on the Metal device.")
    parser.add_argument("models", nargs="*", help="names of models; none: all")
    chosen = parser.parse_args().models
    emulator = Emulator()
    results: dict[tuple[str, int], Figures] = {}
    failures = []
    for shape in (*SHAPES, *FAMILIES):
        if chosen and shape.name not in chosen:
            continue
        print(f"counting {shape.name}", file=sys.stderr)
        contexts = (CONTEXT, LONG) if shape in FAMILIES else (CONTEXT,)
        for context, figures in measure(shape, emulator, contexts).items():
            results[shape.name, context] = figures
            model = model_of(shape, context)
            failures += [f"{shape.name}, {context} tokens: {text}" for text in check(figures, model)]
    failures += [f"emulator: {report.kind}: {report.text}" for report in emulator.reports()]
    print_figures(results)
    for shapes, context in ((SHAPES, CONTEXT), (FAMILIES, CONTEXT), (FAMILIES, LONG)):
        counted = {shape.name: results.get((shape.name, context)) for shape in shapes}
        print_roofline(
            {n: (f["unique_bytes"] / 1e9, f["dispatches"]) for n, f in counted.items() if f}, context
        )
    print()
    for failure in failures:
        print(f"outside its bound: {failure}")
    print(json.dumps({f"{name}@{context}": figures for (name, context), figures in results.items()}))
    return int(bool(failures))


def print_figures(results: dict[tuple[str, int], Figures]) -> None:
    print("per decoded token, counted on the emulator\n")
    print(f"{'model':<16}{'context':>8}" + "".join(f"{name:>16}" for name in FIELDS) + "  dispatches a layer")
    for (name, context), figures in results.items():
        layers = ", ".join(f"{kind} {count:g}" for kind, count in figures["layer_dispatches"].items())
        print(f"{name:<16}{context:>8}" + "".join(f"{figures[f]:>16,.10g}" for f in FIELDS) + f"  {layers}")


if __name__ == "__main__":
    sys.exit(main())
