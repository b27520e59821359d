"""Starts each contender in a process of its own and reads its figures."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TIMEOUT = 1800  # seconds of one worker at most


class WorkerError(Exception):
    """A worker failed; the message holds the end of what it said."""


@dataclass(frozen=True)
class Contender:
    """One engine on one file. worker: a file of workers/; rounds: False where one short run is enough."""

    name: str
    worker: str
    python: str
    model: Path
    every_round: bool = True


def run_worker(contender: Contender, job: dict[str, Any]) -> dict[str, Any]:
    """The figures that a worker prints. Raises WorkerError."""
    command = [contender.python, str(HERE / "workers" / contender.worker)]
    command.append(json.dumps({"model": str(contender.model), **job}))
    environment = dict(os.environ)
    if contender.python != sys.executable:
        environment.pop("PYTHONPATH", None)  # ours, not the peers'
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise WorkerError(f"{contender.name}: no answer within {TIMEOUT} s") from error
    lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
    if result.returncode != 0 or not lines:
        tail = " / ".join((result.stderr.strip() or result.stdout.strip()).splitlines()[-3:])
        raise WorkerError(f"{contender.name}: exit code {result.returncode}: {tail}")
    figures: dict[str, Any] = json.loads(lines[-1])
    return figures


@contextlib.contextmanager
def memory_probe() -> Iterator[Path]:
    """membw.c, compiled for this machine."""
    compiler = os.environ.get("CC") or shutil.which("cc") or "cc"
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "membw"
        tuning = "-mcpu=native" if os.uname().machine in ("aarch64", "arm64") else "-march=native"
        source = str(HERE / "membw.c")
        subprocess.run([compiler, "-O3", tuning, source, "-o", str(binary), "-lpthread"], check=True)
        yield binary


def read_bandwidth(binary: Path, threads: int) -> float:
    """GB/s (1e9 bytes)."""
    result = subprocess.run([str(binary), str(threads)], capture_output=True, text=True, check=True)
    return float(result.stdout)


def idle_share(seconds: float = 1.0) -> float | None:
    """How idle the cores are while we wait, 0 to 1; None where the system does not tell."""
    before = _cpu_ticks()
    time.sleep(seconds)
    after = _cpu_ticks()
    total = sum(after) - sum(before)
    return (after[3] - before[3]) / total if total else None


def _cpu_ticks() -> list[int]:
    """user, nice, system, idle, ... of all cores together."""
    try:
        line = Path("/proc/stat").read_text().splitlines()[0]
    except OSError:
        return [0] * 8
    return [int(word) for word in line.split()[1:9]]


@contextlib.contextmanager
def spinning_neighbour() -> Iterator[None]:
    """Another process that keeps one of our cores busy."""
    code = "import os\nif hasattr(os, 'sched_setaffinity'): os.sched_setaffinity(0, {%d})\nwhile True: pass"
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    process = subprocess.Popen([sys.executable, "-c", code % cores[-1]])
    try:
        time.sleep(0.2)
        yield
    finally:
        process.kill()
        process.wait()


def import_seconds(repeats: int = 5) -> float:
    """`import saragossa` in a fresh interpreter; the median."""
    code = "import time; t = time.perf_counter(); import saragossa; print(time.perf_counter() - t)"
    run = [sys.executable, "-c", code]
    return statistics.median(
        float(subprocess.run(run, capture_output=True, text=True, check=True).stdout) for _ in range(repeats)
    )


def help_seconds(repeats: int = 5) -> float:
    """`saragossa --help`, the interpreter's start included; the median."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "saragossa", "--help"], capture_output=True, check=True)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
