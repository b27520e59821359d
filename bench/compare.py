"""saragossa beside llama.cpp, transformers and mlx-lm: same weights, interleaved, with verdicts.

    python bench/compare.py --models models/qwen06 --python-oracle peers/bin/python
    python bench/compare.py --model-dir D --gguf q4_0.gguf q4_k_m.gguf --hf-dir B --python-oracle P

Run it with the interpreter that has saragossa; the peers live in the environment of --python-oracle. Each
round starts every contender once in a process of its own, another one first each time; ratios are taken
within a round. See README.md for what is measured and make_models.py for the checkpoints. The exit code is
1 where a figure misses its target, so use an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contenders import (
    Contender,
    WorkerError,
    help_seconds,
    idle_share,
    import_seconds,
    memory_probe,
    read_bandwidth,
    run_worker,
    spinning_neighbour,
)
from report import file_name, machine, print_figures, print_verdicts, write_csv
from samples import Sample, Samples
from targets import LLAMA, MEMORY, OURS, TORCH, verdicts
from weights_read import bytes_per_token

PREFILL = (256, 512)
THREADS = (1, 2)
MLX = "mlx-lm cpu"
IDLE = 0.92  # of the cores before a round; below it the figures are doubtful


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--models", type=Path, help="a folder that make_models.py made (mlx4/, bf16/, *.gguf)")
    add("--model-dir", type=Path, help="the 4-bit folder that saragossa and mlx-lm run")
    add("--gguf", type=Path, nargs="*", default=[], help="q4_0.gguf and q4_k_m.gguf")
    add("--hf-dir", type=Path, help="the unquantised folder that transformers runs")
    add("--python-oracle", help="interpreter with llama_cpp, torch, transformers, mlx_lm")
    add("--rounds", type=int, default=5)
    add("--quick", action="store_true", help="one short round, to see that everything runs")
    add(
        "--only", nargs="*", default=[], metavar="TEXT", help="contenders whose name holds one of these texts"
    )
    add("--out", type=Path, default=Path(__file__).parent / "results", help="folder of the CSV")
    args = parser.parse_args(arguments)
    if args.models:
        args.model_dir = args.model_dir or args.models / "mlx4"
        args.gguf = args.gguf or [p for n in ("q4_0", "q4_k_m") if (p := args.models / f"{n}.gguf").exists()]
        args.hf_dir = args.hf_dir or (args.models / "bf16" if (args.models / "bf16").exists() else None)
    if args.model_dir is None:
        parser.error("--models or --model-dir is needed")
    if not (args.model_dir / "config.json").is_file():
        parser.error(f"{args.model_dir} is no model folder: it has no config.json")
    if args.rounds < 1:
        parser.error(f"--rounds: found {args.rounds}, accepted is 1 or more")
    return args


def contenders(args: argparse.Namespace) -> list[Contender]:
    """Who takes part: what has a file and an interpreter, and is wanted."""
    found = [Contender(OURS, "ours.py", sys.executable, args.model_dir)]
    if args.python_oracle:
        peer = args.python_oracle
        for path in args.gguf:
            name = LLAMA[1] if "k_m" in path.name.lower() else LLAMA[0]
            found.append(Contender(name, "llamacpp.py", peer, path))
        if args.hf_dir:
            found.append(Contender(TORCH, "transformers_torch.py", peer, args.hf_dir))
        found.append(Contender(MLX, "mlx_cpu.py", peer, args.model_dir, every_round=False))
    return [c for c in found if not args.only or any(text in c.name for text in args.only)]


class Run:
    """One comparison: what to run and what came out."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.contenders = contenders(args)
        config = json.loads((args.model_dir / "config.json").read_text())
        text = config.get("text_config", config)
        self.samples = Samples()
        self.facts = machine()
        self.rounds = 1 if args.quick else args.rounds
        self.prefill = PREFILL
        self.job: dict[str, Any] = {"vocab": text["vocab_size"], "repeats": 1 if args.quick else 2}
        self.job |= {"prefill": self.prefill, "depth": 64, "decode": 16 if args.quick else 96}
        self.failures: list[str] = []

    def measure(self, bandwidth: Callable[[int], float]) -> None:
        for number in range(self.rounds):
            print(f"round {number + 1} of {self.rounds}", file=sys.stderr)
            self.check_idle(number)
            for threads in THREADS:
                self.samples.add(Sample(number, MEMORY, threads, "read", bandwidth(threads), "GB/s"))
            turn = [c for c in self.contenders if c.every_round]
            at = number % max(1, len(turn))
            for contender in turn[at:] + turn[:at]:
                for threads in THREADS:
                    self.one(number, contender, threads, self.job)
            self.contended(number, turn)
        self.once()

    def check_idle(self, number: int) -> None:
        """Keep how idle the machine was before the round, and say so where it was busy."""
        idle = idle_share()
        if idle is None:
            return
        self.samples.add(Sample(number, MEMORY, 0, "idle", 100 * idle, "%"))
        if idle < IDLE:
            busy = f"round {number + 1}: the machine was busy before it began ({100 * idle:.0f} % idle)"
            self.facts[f"warning {number + 1}"] = busy
            print(f"  {busy}", file=sys.stderr)

    def contended(self, number: int, turn: list[Contender]) -> None:
        job = self.job | {"prefill": (), "decode": 16}
        for contender in turn:
            if contender.name in (OURS, *LLAMA):
                with spinning_neighbour():
                    self.one(number, contender, 2, job, prefix="contended_")

    def once(self) -> None:
        """What needs no rounds: mlx-lm's short run, our memory and start-up times."""
        for contender in self.contenders:
            if not contender.every_round:
                job = self.job | {"prefill": (16,), "depth": 8, "decode": 8, "repeats": 1}
                self.one(0, contender, 2, job)
            if contender.name == OURS:
                self.one(0, contender, 2, self.job | {"memory": True, "depth": 512})
                self.samples.add(Sample(0, OURS, 0, "import_s", import_seconds(), "s"))
                self.samples.add(Sample(0, OURS, 0, "help_s", help_seconds(), "s"))

    def one(
        self, number: int, contender: Contender, threads: int, job: dict[str, Any], prefix: str = ""
    ) -> None:
        """Run a worker once and keep its figures; a failure is kept too, and the run goes on."""
        print(f"  {contender.name}, {threads} threads {prefix}", file=sys.stderr)
        try:
            figures = run_worker(contender, job | {"threads": threads})
        except WorkerError as error:
            self.failures.append(str(error))
            print(f"  {error}", file=sys.stderr)
            return
        self.facts.setdefault(contender.name, str(figures.pop("engine", "")))
        figures.pop("engine", None)
        for metric, value in figures.items():
            if job.get("memory"):
                if metric != "load_s":
                    self.samples.add(Sample(number, OURS, threads, metric, value / 1e6, "MB"))
            elif metric != "load_s" or not prefix:
                unit = "s" if metric == "load_s" else "tok/s"
                self.samples.add(Sample(number, contender.name, threads, prefix + metric, value, unit))


def leave_page_cache(paths: list[Path | None]) -> None:
    """As after a boot: each engine's first run reads its files in its own way (huge pages, for one)."""
    for path in paths:
        for file in (path.iterdir() if path.is_dir() else [path]) if path else []:
            if not hasattr(os, "posix_fadvise") or not file.is_file():
                continue
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main() -> int:
    args = parse_arguments()
    run = Run(args)
    size = bytes_per_token(args.model_dir)
    run.facts |= {"model": args.model_dir.resolve().parent.name, "bytes per token": str(size)}
    if (os.cpu_count() or 1) < max(THREADS):
        print("fewer than two cores: the figures for two threads mean nothing", file=sys.stderr)
    leave_page_cache([args.model_dir, args.hf_dir, *args.gguf])
    with memory_probe() as binary:
        run.measure(lambda threads: read_bandwidth(binary, threads))
    run.facts["load average at the end"] = " ".join(f"{x:.2f}" for x in os.getloadavg())
    checked = verdicts(run.samples, size, run.prefill)
    for key, value in run.facts.items():
        print(f"{key}: {value}")
    print()
    print_figures(run.samples)
    print_verdicts(checked)
    name = file_name(run.facts["model"] + ("-quick" if args.quick else ""))
    write_csv(args.out / name, run.facts, run.samples, checked)
    print(f"kept in {args.out / name}")
    for failure in run.failures:
        print(f"failed: {failure}", file=sys.stderr)
    return int(bool(run.failures) or any(v.passed is False for v in checked))


if __name__ == "__main__":
    sys.exit(main())
