"""Times single ops of the core at the shapes of a 0.6B model: `python bench/ops.py [--isa avx2]`.

The cases are those of the tests (tests/unit/ops/cases.py). Needs a core built with SARAGOSSA_TESTS=ON, as
`make` does. Prints CSV: the op, and the best of several rounds in microseconds a call.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np

from saragossa import _core_test as core
from unit.ops.cases import BENCH
from unit.ops.harness import Ops
from unit.ops.sampling import Row

VOCABULARY = 151936
SAMPLING = {
    "greedy": Row(),
    "temperature": Row(temperature=0.8),
    "top-k 20, top-p 0.95": Row(temperature=0.8, top_k=20, top_p=0.95),
    "top-p 0.95": Row(temperature=0.8, top_p=0.95),
    "min-p 0.05": Row(temperature=0.8, min_p=0.05),
}


class Repeating:
    """An encoder that records each op several times."""

    def __init__(self, encoder: Any, times: int) -> None:
        self._encoder, self._times = encoder, times

    def __getattr__(self, op: str) -> Callable[..., None]:
        record = getattr(self._encoder, op)

        def repeat(*args: Any) -> None:
            for _ in range(self._times):
                record(*args)

        return repeat


def best(ops: Ops, encode: Callable[[Any], Any], *, rounds: int = 7, times: int = 10) -> float:
    """Microseconds of one call; the CPU runs a submission inside of submit."""
    seconds = []
    for _ in range(rounds):
        encoder = ops.begin()
        keep = encode(Repeating(encoder, times))
        start = time.perf_counter()
        done = encoder.submit()
        seconds.append((time.perf_counter() - start) / times)
        done.wait()
        del keep
    return min(seconds) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa", default="auto", help="auto, " + ", ".join(core.instruction_sets()))
    parser.add_argument("--threads", type=int, default=0, help="0: all cores that are ours")
    args = parser.parse_args()
    ops = Ops(args.isa, threads=args.threads)
    print(f"# {ops.device.description}")
    print("op,us")
    for case in BENCH:
        inputs = case.inputs()
        print(f"{case},{best(ops, lambda e, c=case, a=inputs: c.encode(ops, e, a)):.1f}")  # type: ignore[misc]
    logits = ops.f32(np.random.default_rng(1).standard_normal((1, VOCABULARY)) * 2.5)
    out = ops.i32([0])
    for name, row in SAMPLING.items():
        params = ops.u8(row.params()[None])
        print(f'"sample, {name}",{best(ops, lambda e, p=params: e.sample(logits, p, out)):.1f}')  # type: ignore[misc]


if __name__ == "__main__":
    main()
