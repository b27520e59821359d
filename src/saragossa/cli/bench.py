"""`saragossa bench`: our figures on this machine, as a table, JSON, CSV or a plot."""

from __future__ import annotations

import argparse
import csv
import dataclasses
import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saragossa.cli import loading, machine
from saragossa.cli.tables import size, table
from saragossa.errors import SaragossaError, UsageError

if TYPE_CHECKING:
    from saragossa.engine.bench import Report

PREFILL = (128, 512, 2048)
DEPTHS = (0, 512, 2048)
COLUMNS = ("kind", "tokens", "depth", "tok_s", "tok_s_min", "tok_s_max", "runs")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    loading.check_engine_options(args)
    plot = None if args.plot is None else check_plot(Path(args.plot))
    from saragossa.engine.bench import measure

    with loading.open_model(args) as model:  # the second load finds the file in the page cache
        check_lengths(args, model.context)
    with loading.open_model(args) as model:
        report = measure(
            model,
            prefill=args.prefill or PREFILL,
            depths=args.depths or DEPTHS,
            tokens=args.tokens,
            repeat=args.repeat,
            progress=lambda what: (
                print(f"measuring {what}", file=sys.stderr) if sys.stderr.isatty() else None
            ),
        )
    if args.json:
        print(
            json.dumps(
                {"model": args.model, "machine": machine.describe(), **dataclasses.asdict(report)}, indent=1
            )
        )
    elif args.csv:
        write_csv(args.model, report)
    else:
        print_table(args.model, report)
    if plot is not None:
        draw(args.model, report, plot)
    return 0


def check_lengths(args: argparse.Namespace, context: int) -> None:
    """What was asked for must fit the context; what is measured by default is left out where it does not."""
    cure = "ask for less, or raise --context as far as the model allows"
    longest = max(args.prefill or [1])
    if longest > context:
        raise UsageError(f"--prefill: found {longest}, accepted is 1 to {context}, the context", cure=cure)
    if args.tokens >= context:
        raise UsageError(
            f"--tokens: found {args.tokens}, accepted is 1 to {context - 1}, the context less one", cure=cure
        )
    deepest = max(args.depths or [0])
    if deepest + 1 + args.tokens > context:
        raise UsageError(
            f"--depths: found {deepest} with {args.tokens} tokens to decode, the context is {context}",
            cure=cure,
        )


def check_plot(path: Path) -> Path:
    """Refuse before minutes are spent on measuring."""
    if importlib.util.find_spec("matplotlib") is None:
        raise SaragossaError("--plot needs matplotlib", cure="pip install 'saragossa[devtools]'")
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise UsageError(f"--plot: found {path.name!r}, accepted is a name that ends in .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise UsageError(f"--plot: the folder {path.parent} does not exist", cure="create it first")
    return path


def print_table(name: str, report: Report) -> None:
    """The figures for people."""
    print(f"{name} on {report.device}")
    rows = [
        [r.kind, str(r.tokens), str(r.depth), f"{r.tok_s:.1f}", f"{r.tok_s_min:.1f}", f"{r.tok_s_max:.1f}"]
        for r in report.rows
    ]
    print(table(["", "tokens", "depth", "tok/s", "min", "max"], rows, right=range(1, 6)))
    print(f"load {report.load_s:.3f} s, peak memory {size(report.peak_rss_bytes)}")
    for skipped in report.skipped:
        print(f"skipped {skipped}")


def write_csv(name: str, report: Report) -> None:
    """One line a figure; comments at the top describe the machine."""
    for key, value in machine.describe().items():
        print(f"# {key}: {value}")
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["model", "device", *COLUMNS, "load_s", "peak_rss_bytes"])
    for row in report.rows:
        cells: list[Any] = [getattr(row, column) for column in COLUMNS]
        cells = [f"{cell:.2f}" if isinstance(cell, float) else cell for cell in cells]
        writer.writerow([name, report.device, *cells, f"{report.load_s:.4f}", report.peak_rss_bytes])
    for skipped in report.skipped:
        print(f"# skipped {skipped}")


def draw(name: str, report: Report, path: Path) -> None:
    """Two panels: prefill by length, decode by depth."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.5))
    for panel, kind, x, label in zip(
        panels, ("prefill", "decode"), ("tokens", "depth"), ("prompt tokens", "tokens before"), strict=True
    ):
        rows = [row for row in report.rows if row.kind == kind]
        panel.plot([getattr(row, x) for row in rows], [row.tok_s for row in rows], marker="o")
        panel.set(title=kind, xlabel=label, ylabel="tok/s")
        panel.set_ylim(0, 1.1 * max((row.tok_s for row in rows), default=1.0))
        panel.grid(alpha=0.3)
    figure.suptitle(f"{name} on {report.device}")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
