"""Decode of blocks of experts against the memory: GB/s of the chosen experts' bytes beside bench/membw.

.venv/bin/python bench/ops_moe.py [--layers 4] [--threads 1,2] [--rows 1] [--isa auto]

The shape is Qwen3.6-35B-A3B's: hidden 2048, 8 of 256 experts of 512 and a shared one, 4 bits in groups of
64. Weights are random and far larger than the caches; every step draws its experts anew. Steps and reads of
the memory take turns; prints CSV: medians, and the share of the memory's rate.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np

from saragossa import _core_test as core
from unit.ops.harness import Ops

ROOT = Path(__file__).parents[1]
HIDDEN, COUNT, TOP_K, INNER, SHARED, BITS, GROUP = 2048, 256, 8, 512, 512, 4, 64
STEPS = 8  # of a submission


def weight(ops: Ops, rng: np.random.Generator, out: int, n_in: int) -> Any:
    words = rng.integers(0, 1 << 32, (out, n_in * BITS // 32), np.uint32)
    scales = (rng.random((out, n_in // GROUP), np.float32) * 0.01).view(np.uint32) >> 16
    put = ops.device.tensor
    return core.Weight(
        out,
        n_in,
        put(words, "u32"),
        bits=BITS,
        group=GROUP,
        scales=put(scales.astype(np.uint16), "bf16"),
        biases=put(scales.astype(np.uint16), "bf16"),
    )


def experts(ops: Ops, rng: np.random.Generator) -> Any:
    both = weight(ops, rng, COUNT * 2 * INNER, HIDDEN)
    return core.Experts(
        count=COUNT,
        top_k=TOP_K,
        intermediate=INNER,
        gate=core.ExpertWeight(both, 2 * INNER),
        up=core.ExpertWeight(both, 2 * INNER, INNER),
        down=core.ExpertWeight(weight(ops, rng, COUNT * HIDDEN, INNER), HIDDEN),
        shared_intermediate=SHARED,
        shared_gate=weight(ops, rng, SHARED, HIDDEN),
        shared_up=weight(ops, rng, SHARED, HIDDEN),
        shared_down=weight(ops, rng, HIDDEN, SHARED),
    )


class Step:
    """STEPS tokens through the layers, in one submission."""

    def __init__(self, ops: Ops, layers: list[Any], rows: int) -> None:
        self.ops, self.layers, self.rows = ops, layers, rows
        self.rng = np.random.default_rng(1)

    def seconds(self) -> tuple[float, int]:
        """Of a submission, and the bytes of the experts that it chose."""
        ops, rows = self.ops, self.rows
        keep: list[Any] = []
        routes: list[Any] = []
        x = ops.f32(self.rng.standard_normal((rows, HIDDEN)))
        norm, shared = ops.f32(np.ones(HIDDEN)), ops.f32(np.zeros((rows, 1)))
        e = ops.begin()
        for _ in range(STEPS):
            for layer in self.layers:
                logits = ops.f32(self.rng.standard_normal((rows, COUNT)))
                ids, weights = ops.i32(np.zeros((rows, TOP_K))), ops.empty(rows, TOP_K)
                h, z = ops.empty(rows, TOP_K * INNER + SHARED), ops.empty(rows, HIDDEN)
                y = ops.f32(np.ones((rows, HIDDEN)))
                e.route(core.Routes(ids, weights), logits, True)
                e.moe_gated(h, x, ids, layer)
                e.moe_down_norm(y, z, h, core.Routes(ids, weights), shared, layer, norm, 1e-6)
                keep += [logits, weights, h, y, z]
                routes.append(ids)
        start = time.perf_counter()
        done = e.submit()
        seconds = time.perf_counter() - start
        done.wait()
        chosen = sum(len(np.unique(ids.numpy())) for ids in routes)
        value = BITS / 8 + 4 / GROUP  # bytes, with its part of a bf16 scale and bias
        return seconds, int(3 * HIDDEN * (INNER * chosen + SHARED * len(routes)) * value)


def membw(threads: int) -> float:
    binary = ROOT / "build" / "membw"
    if not binary.exists():
        binary.parent.mkdir(exist_ok=True)
        source = str(ROOT / "bench" / "membw.c")
        subprocess.run(["cc", "-O3", "-march=native", source, "-o", str(binary), "-lpthread"], check=True)
    out = subprocess.run([binary, str(threads), "256", "3"], check=True, capture_output=True, text=True)
    return float(out.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--isa", default="auto", help="auto, " + ", ".join(core.instruction_sets()))
    parser.add_argument("--repeats", type=int, default=9)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    base = Ops(args.isa, activations="int15")
    layers = [experts(base, rng) for _ in range(args.layers)]
    print(f"# {base.device.description}; {args.layers} layers, {args.rows} rows")
    print("threads,ms_layer,GB_s,membw_GB_s,of_membw,best_GB_s,best_membw_GB_s")
    for threads in map(int, args.threads.split(",")):
        step = Step(Ops(args.isa, activations="int15", threads=threads), layers, args.rows)
        step.seconds()
        rates: list[float] = []
        times: list[float] = []
        reads: list[float] = []
        for _ in range(args.repeats):
            reads.append(membw(threads))
            seconds, size = step.seconds()
            rates.append(size / seconds / 1e9)
            times.append(seconds / STEPS / args.layers * 1e3)
        rate, read = statistics.median(rates), statistics.median(reads)
        line = f"{threads},{statistics.median(times):.3f},{rate:.1f},{read:.1f},{rate / read:.2f}"
        print(f"{line},{max(rates):.1f},{max(reads):.1f}")


if __name__ == "__main__":
    main()
