"""Prints a comparison and keeps it: a table for people, a CSV with the machine's description."""

from __future__ import annotations

import csv
import datetime
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from samples import Samples
from targets import Verdict

FLAGS = ("avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8", "amx_bf16")
ARM_FLAGS = ("asimd", "asimddp", "i8mm", "bf16", "sve", "sve2")


def machine() -> dict[str, str]:
    """What a figure needs beside it."""
    info = _read("/proc/cpuinfo")
    words = set(re.findall(r"^(?:flags|Features)\s*:(.*)$", info, re.M)[0].split()) if info else set()
    memory = re.search(r"MemTotal:\s*(\d+)", _read("/proc/meminfo"))
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": cpu_name(),
        "cpu flags": " ".join(flag for flag in (*FLAGS, *ARM_FLAGS) if flag in words),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "memory": f"{int(memory[1]) / 2**20:.1f} GiB" if memory else "",
        "kernel": platform.platform(),
        "compiler": _first_line([shutil.which("cc") or "cc", "--version"]),
        "python": platform.python_version(),
        "saragossa version": _version(),
        "commit": _first_line(["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]),
        "load average": " ".join(f"{x:.2f}" for x in os.getloadavg()),
    }


def cpu_name() -> str:
    """The processor's name."""
    for key in ("model name", "Model"):
        found = re.search(rf"^{key}\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.M)
        if found:
            return found[1].strip()
    return _first_line(["sysctl", "-n", "machdep.cpu.brand_string"]) or platform.machine()


def file_name(model: str) -> str:
    """<date>-<cpu>-<model>.csv"""
    slug = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\(.*?\)|processor|cpu", "", cpu_name().lower())).strip("-")
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}-{slug}-{model}.csv"


def write_csv(path: Path, facts: dict[str, str], samples: Samples, checked: Sequence[Verdict]) -> None:
    """Comment lines (machine, verdicts), then a line a sample."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as stream:
        for key, value in facts.items():
            stream.write(f"# {key}: {value}\n")
        for verdict in checked:
            stream.write(f"# {verdict.word}: {verdict.what}: {_number(verdict.found)} {_target(verdict)}\n")
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["round", "contender", "threads", "metric", "value", "unit"])
        for s in samples.all:
            writer.writerow([s.round, s.contender, s.threads, s.metric, f"{s.value:.6g}", s.unit])


def print_figures(samples: Samples) -> None:
    """Medians, one line a contender and thread count."""
    metrics = sorted({s.metric for s in samples.all if s.unit in ("tok/s", "GB/s")})
    rows = [["median", "threads", *metrics]]
    for contender, threads in sorted({(s.contender, s.threads) for s in samples.all if s.threads}):
        medians = [samples.median(contender, metric, threads) for metric in metrics]
        if any(m is not None for m in medians):
            rows.append([contender, str(threads), *(_number(m) for m in medians)])
    _print_table(rows)


def print_verdicts(checked: Sequence[Verdict]) -> None:
    rows = [["", "figure", "found", "target", ""]]
    rows += [[v.word, v.what, _number(v.found), _target(v), v.note] for v in checked]
    _print_table(rows)


def _target(verdict: Verdict) -> str:
    sign = ">=" if verdict.at_least else "<="
    return f"{sign} {verdict.target:g}" + (f" (goal {verdict.goal:g})" if verdict.goal else "")


def _print_table(rows: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print()


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _first_line(command: list[str]) -> str:
    try:
        output = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10).stdout
    except OSError:
        return ""
    return output.splitlines()[0].strip() if output.strip() else ""


def _version() -> str:
    try:
        return importlib.metadata.version("saragossa")
    except importlib.metadata.PackageNotFoundError:
        return "not installed (source tree)"
