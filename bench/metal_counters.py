"""What a decoded token costs on the Metal device, counted by the emulator; no time of a GPU is in it.

    make metal-counters

Per model: command buffers, encoders, host waits, readbacks, dispatches, barriers, bytes, and the
milliseconds of CPU that encoding takes. Bytes are traced, never declared: one layer of each kind and the
head at their real shape, times how many there are. The last line is one JSON object; the exit code is 1
where a figure leaves its bound.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(Path(__file__).parent)]

from metal_bounds import FIELDS, check  # noqa: E402
from metal_roofline import OTHERS, print_roofline  # noqa: E402
from metal_shapes import SHAPES, Shape, write_zeros  # noqa: E402

from metal import core  # noqa: E402, F401  # puts the emulator's core in place
from metal.emulator import Emulator  # noqa: E402
from saragossa import _core  # noqa: E402
from saragossa.engine.loading import load  # noqa: E402

CONTEXT = 32  # tokens in the cache when a token is traced
STEPS = 16  # over which calls are counted
CALLS = ("command_buffers", "encoders", "host_waits", "readbacks", "dispatches", "barriers")

Figures = dict[str, float]


@contextmanager
def decoding(shape: Shape, kinds: tuple[str, ...], *, ahead: bool) -> Iterator[_core.Session]:
    """A session on a checkpoint of zeros with these layers, CONTEXT tokens in its cache."""
    before = os.environ.get("SARAGOSSA_RUN_AHEAD", "")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        write_zeros(path, shape.with_layers(kinds))
        os.environ["SARAGOSSA_RUN_AHEAD"] = "on" if ahead else "off"
        try:
            loaded = load(path, device="metal", context=1024)
        finally:
            os.environ["SARAGOSSA_RUN_AHEAD"] = before  # empty counts as unset
        session = _core.Session(loaded.model, 1, loaded.context)
        session.configure(0)
        session.prefill(0, list(range(2, 2 + CONTEXT)), True)
        for _ in range(3):
            session.step([0])
        yield session


def reads(shape: Shape, kinds: tuple[str, ...], emulator: Emulator) -> Counter[str]:
    """Bytes that a token of a model of these layers reads, nothing else running."""
    with decoding(shape, kinds, ahead=False) as session:
        emulator.set("trace", True)
        emulator.counters(reset=True)
        session.step([0])
        counted = emulator.counters(reset=True)
        emulator.set("trace", False)
    return Counter(unique_bytes=counted["touched_read"], requested_bytes=counted["requested_read"])


def bytes_of_a_token(shape: Shape, emulator: Emulator) -> Counter[str]:
    """Of the whole model: a model of one layer of each kind, and what each further layer adds."""
    kinds = Counter(shape.layer_kinds())
    ones = tuple(kinds)
    total = base = reads(shape, ones, emulator)
    for kind, count in kinds.items():
        more = reads(shape, (*ones, kind), emulator)
        total = total + Counter({name: (count - 1) * (more[name] - base[name]) for name in base})
    return total


def minimal_bytes(shape: Shape) -> int:
    """Weights that a token must read, and the keys and values of its context in bf16."""
    with tempfile.TemporaryDirectory() as folder:
        spec = write_zeros(Path(folder) / "model", shape.config)
    weights = 0.0
    for tensor in spec.tensors:
        size = tensor.shape[0] * (tensor.shape[1] if tensor.module else 1)
        weights += size * (4.5 / 8 if tensor.module else 4)  # vectors are float32 on the device
    kv = sum(2 * 2 * layer.attention.kv_heads * layer.attention.head_dim for layer in spec.decoder.layers)
    return round(weights + kv * (CONTEXT + 4))


def calls_of_a_token(shape: Shape, emulator: Emulator) -> dict[str, float]:
    """Calls and encoding time of the whole model in the running loop; kernels do not run."""
    emulator.set("execute", False)
    with decoding(shape, shape.layer_kinds(), ahead=True) as session:
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
    emulator.set("execute", True)
    return {name: counted[name] / (STEPS + 1) for name in CALLS} | {"encode_ms": min(encode)}


def measure(shape: Shape, emulator: Emulator) -> dict[str, float]:
    """All figures of one model, per decoded token."""
    figures = calls_of_a_token(shape, emulator)
    figures |= bytes_of_a_token(shape, emulator)
    figures["minimal_bytes"] = minimal_bytes(shape)
    return {name: round(figures[name], 4) for name in FIELDS}


def main() -> int:
    emulator = Emulator()
    results: dict[str, dict[str, float]] = {}
    failures = []
    for shape in SHAPES:
        print(f"counting {shape.name}", file=sys.stderr)
        results[shape.name] = measure(shape, emulator)
        failures += [f"{shape.name}: {text}" for text in check(results[shape.name], shape.layers)]
    findings = emulator.reports()
    failures += [f"emulator: {report.kind}: {report.text}" for report in findings]
    print("per decoded token, counted on the emulator\n")
    print(f"{'model':<15}" + "".join(f"{name:>16}" for name in FIELDS))
    for name, figures in results.items():
        print(f"{name:<15}" + "".join(f"{figures[field]:>16,.10g}" for field in FIELDS))
    print_roofline({name: (f["unique_bytes"] / 1e9, f["dispatches"]) for name, f in results.items()} | OTHERS)
    print()
    for failure in failures:
        print(f"outside its bound: {failure}")
    print(json.dumps(results))
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
