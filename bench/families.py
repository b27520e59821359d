"""Gated delta nets and experts beside transformers and llama.cpp: same shapes, interleaved, with verdicts.

    python bench/families.py --slice models/a3b-slice --stack models/delta-stack \\
        --python-oracle peers/bin/python

make_families.py makes the folders. Of the slice the decode of one sequence is measured, against the memory
bandwidth that its active bytes need (weights of the chosen experts, states read and written, keys and
values); of the stack the prefill of 1k and 8k tokens. Torch decodes in bfloat16; it prefills in that where
the CPU has instructions for it, else in float32, the faster of the two there. Each round starts every
contender once in a process of its own; ratios are taken within a round. The exit code is 1 where a figure
misses its target: the machine must be idle.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from contenders import Contender, WorkerError, memory_probe, read_bandwidth, run_worker
from report import file_name, machine, print_figures, print_verdicts, write_csv
from samples import Sample, Samples
from targets import LLAMA, MEMORY, OURS, TORCH, Verdict
from weights_read import active_bytes

CEILING, DECODE, PREFILL = 0.6, 4.0, 2.0  # share of the ceiling, times torch, times torch
LENGTHS = (1024, 8192)
DEPTH = 64
THREADS = (1, 2)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--slice", type=Path, help="make_families.py a3b-slice")
    add("--stack", type=Path, help="make_families.py delta-stack")
    add("--python-oracle", help="interpreter with torch, transformers and llama_cpp")
    add("--rounds", type=int, default=3)
    add("--decode", type=int, default=96, help="tokens")
    add("--out", type=Path, default=Path(__file__).parent / "results", help="folder of the CSV")
    return parser.parse_args()


def contenders(folder: Path, oracle: str | None, torch: str) -> list[Contender]:
    found = [Contender(OURS, "ours.py", sys.executable, folder / "mlx4")]
    if oracle:
        found.append(Contender(torch, "transformers_torch.py", oracle, folder / "bf16"))
        found.append(Contender(LLAMA[0], "llamacpp.py", oracle, folder / "q4_0.gguf"))
    return found


def fast_dtype(facts: dict[str, str]) -> str:
    """Torch's for long products; bfloat16 without instructions takes three times as long as float32."""
    return "bfloat16" if {"avx512_bf16", "amx_bf16"} & set(facts["cpu flags"].split()) else "float32"


def torch_name(dtype: str) -> str:
    return {"bfloat16": TORCH, "float32": "torch f32"}[dtype]


def measure(
    folder: Path, args: argparse.Namespace, job: dict[str, Any], binary: Path, facts: dict[str, str]
) -> Samples:
    """One model; a contender that fails is told and left out."""
    samples = Samples()
    vocab = json.loads((folder / "mlx4" / "config.json").read_text())["vocab_size"]
    everyone = contenders(folder, args.python_oracle, torch_name(job["dtype"]))
    for number in range(args.rounds):
        print(f"{folder.name}: round {number + 1} of {args.rounds}", file=sys.stderr)
        for threads in THREADS:
            samples.add(Sample(number, MEMORY, threads, "read", read_bandwidth(binary, threads), "GB/s"))
        at = number % len(everyone)
        for contender in everyone[at:] + everyone[:at]:
            for threads in THREADS:
                print(f"  {contender.name}, {threads} threads", file=sys.stderr)
                try:
                    figures = run_worker(contender, {"vocab": vocab, "threads": threads, **job})
                except WorkerError as error:
                    print(f"  {error}", file=sys.stderr)
                    facts[f"failed: {contender.name}"] = str(error)[:300]
                    continue
                facts[contender.name] = str(figures.pop("engine", ""))
                for metric, value in figures.items():
                    unit = "s" if metric == "load_s" else "tok/s"
                    samples.add(Sample(number, contender.name, threads, metric, value, unit))
    return samples


def decode_verdicts(samples: Samples, size: int) -> list[Verdict]:
    out = []
    for threads in THREADS:
        per_byte = samples.ratio((OURS, "decode", threads), (MEMORY, "read", threads))
        share = None if per_byte is None else per_byte * size / 1e9
        bandwidth = samples.median(MEMORY, "read", threads)
        note = "" if bandwidth is None else f"ceiling {bandwidth * 1e9 / size:.1f} tok/s"
        out.append(Verdict(f"decode, {threads} threads, share of the ceiling", share, CEILING, note=note))
        ratio = samples.ratio((OURS, "decode", threads), (TORCH, "decode", threads))
        out.append(Verdict(f"decode, {threads} threads, times {TORCH}", ratio, DECODE))
        beside = samples.ratio((OURS, "decode", threads), (LLAMA[0], "decode", threads))
        out.append(Verdict(f"decode, {threads} threads, times {LLAMA[0]} (beside)", beside, 0.0))
    return out


def prefill_verdicts(samples: Samples, torch: str) -> list[Verdict]:
    out = []
    for length in LENGTHS:
        for threads in THREADS:
            metric = f"prefill_{length}"
            ratio = samples.ratio((OURS, metric, threads), (torch, metric, threads))
            out.append(Verdict(f"prefill {length}, {threads} threads, times {torch}", ratio, PREFILL))
            beside = samples.ratio((OURS, metric, threads), (LLAMA[0], metric, threads))
            out.append(
                Verdict(f"prefill {length}, {threads} threads, times {LLAMA[0]} (beside)", beside, 0.0)
            )
    return out


def main() -> int:
    args = parse_arguments()
    missed = False
    wide = fast_dtype(machine())
    with memory_probe() as binary:
        for folder, decodes in ((args.slice, True), (args.stack, False)):
            if folder is None:
                continue
            facts = machine() | {"model": folder.name}
            size = active_bytes(folder / "mlx4", keys=DEPTH + args.decode // 2)
            facts["active bytes per token"] = str(size)
            shape = {"decode": args.decode, "depth": DEPTH} if decodes else {"decode": 0, "prefill": LENGTHS}
            job = shape | {"dtype": "bfloat16" if decodes else wide, "repeats": 1}
            samples = measure(folder, args, job, binary, facts)
            facts["load average at the end"] = " ".join(f"{x:.2f}" for x in os.getloadavg())
            checked = (
                decode_verdicts(samples, size) if decodes else prefill_verdicts(samples, torch_name(wide))
            )
            for key, value in facts.items():
                print(f"{key}: {value}")
            print_figures(samples)
            print_verdicts(checked)
            write_csv(args.out / file_name(facts["model"]), facts, samples, checked)
            print(f"kept in {args.out / file_name(facts['model'])}")
            missed |= any(v.passed is False for v in checked)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
