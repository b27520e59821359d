"""Times what a gated delta net layer does between its linears, and the linears: `python bench/ops_delta.py`.

The shape is Qwen3.6-35B-A3B's: hidden 2048, 16 key and 32 value heads of 128, 4-bit linears in groups of 64.
Prints CSV: rows, part, the best of several rounds in microseconds.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from ops import best  # isort: skip  (puts the tests on the path)
from saragossa import _core_test as core
from unit.ops.cases_delta import BENCH_HEADS, EPS, Run, Steps, delta_inputs
from unit.ops.harness import Ops

HIDDEN, WIDTH = 2048, 4


def weight(ops: Ops, out: int, n: int) -> Any:
    rng = np.random.default_rng(out)
    codes = ops.u32(
        rng.integers(0, 1 << 32, (out, n // 8), dtype=np.uint32)
        .view(np.uint32)
        .astype(np.int64)
        .astype(np.uint32)
    )
    scales, biases = (ops.bf16(rng.standard_normal((out, n // 64)) * 0.01) for _ in range(2))
    return core.Weight(out, n, codes, bits=4, group=64, scales=scales, biases=biases)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--threads", type=int, default=0, help="0: all cores that are ours")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 64, 512])
    args = parser.parse_args()
    heads = BENCH_HEADS
    ops = {
        name: Ops(args.isa, threads=args.threads, activations="int15", chunked_delta=name == "chunked")
        for name in ("chunked", "sequential")
    }
    print(f"# {ops['chunked'].device.description}")
    print("rows,part,us")
    for rows in args.rows:
        steps = Steps((Run(rows, 0, "place"),))
        a = delta_inputs(np.random.default_rng(0), steps, heads, "usual")
        for name, o in ops.items():
            y, z, w = o.empty(rows, heads.values), o.f32(a["z"]), o.f32(a["w"])
            qkv, gates = (
                o.f32(a["qkv"]),
                core.DeltaGates(*(o.f32(a[n]) for n in ("a", "b", "a_log", "dt_bias"))),
            )
            conv = o.f32(np.zeros((2, WIDTH - 1, heads.channels)))
            state, batch = core.RecurrentLayer(conv, o.f32(a["state"])), steps.batch(o)

            def rule(e: Any) -> None:
                e.delta_rule_norm(y, qkv, gates, heads.core(), z, w, EPS, state, batch)  # noqa: B023

            print(f"{rows},delta_rule_norm {name},{best(o, rule):.0f}")
        x, conv_w = o.f32(a["qkv"]), o.f32(np.ones((heads.channels, WIDTH)))
        out = o.empty(rows, heads.channels)
        took = best(o, lambda e: e.conv_qk_norm(out, x, conv_w, heads.core(), state, batch))  # noqa: B023
        print(f"{rows},conv_qk_norm,{took:.0f}")
        hidden, values = o.f32(np.ones((rows, HIDDEN))), o.f32(np.ones((rows, heads.values)))
        parts = [
            core.LinearOut(out, weight(o, heads.channels, HIDDEN)),
            core.LinearOut(z, weight(o, heads.values, HIDDEN)),
        ]
        last, back = weight(o, HIDDEN, heads.values), o.empty(rows, HIDDEN)

        def linears(e: Any) -> None:
            e.linear_group(hidden, parts)  # noqa: B023
            e.linear(back, values, last)  # noqa: B023

        print(f"{rows},linears,{best(o, linears, times=3):.0f}")


if __name__ == "__main__":
    main()
