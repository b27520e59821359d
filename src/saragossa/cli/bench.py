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
    from saragossa.engine.bench_speculation import SpeculationReport

PREFILL = (128, 512, 2048)
DEPTHS = (0, 512, 2048)
COLUMNS = ("kind", "tokens", "depth", "tok_s", "tok_s_min", "tok_s_max", "runs")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    loading.check_engine_options(args)
    if args.speculate not in (None, "off") or args.draft_model is not None:
        return run_speculation(args)
    if args.prompt_file is not None:
        raise UsageError("--prompt-file is of --speculate alone", cure="add --speculate NAME")
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


def run_speculation(args: argparse.Namespace) -> int:
    """Drafts beside plain decoding."""
    if args.plot is not None or args.prefill is not None or args.depths is not None:
        raise UsageError("--plot, --prefill and --depths do not go with --speculate", cure="leave them out")
    from saragossa.engine import bench_speculation

    text = bench_speculation.TEXT
    if args.prompt_file is not None:
        text = Path(args.prompt_file).read_text(encoding="utf-8")
    with loading.open_model(args) as model:
        ids = model.tokenize(text)
        if len(ids) + 1 + args.tokens > model.context:
            raise UsageError(
                f"--tokens: {args.tokens} behind a prompt of {len(ids)} do not fit the context of "
                f"{model.context}",
                cure="ask for less, or raise --context as far as the model allows",
            )
        report = bench_speculation.measure(
            model,
            model.speculator.method,
            ids,
            tokens=args.tokens,
            repeat=args.repeat,
            progress=lambda what: print(what, file=sys.stderr) if sys.stderr.isatty() else None,
        )
    values = {**dataclasses.asdict(report), "speedup": report.speedup}
    if args.json:
        print(json.dumps({"model": args.model, "machine": machine.describe(), **values}, indent=1))
    elif args.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(["model", *values])
        writer.writerow([args.model, *(f"{v:.4f}" if isinstance(v, float) else v for v in values.values())])
    else:
        print_speculation(args.model, report)
    return 0


def print_speculation(name: str, report: SpeculationReport) -> None:
    """One line a figure."""

    def rates(median: float, low: float, high: float) -> str:
        return f"{median:.1f} tok/s ({low:.1f} to {high:.1f})"

    rows = {
        "plain": rates(report.plain_tok_s, report.plain_tok_s_min, report.plain_tok_s_max),
        report.method: rates(report.tok_s, report.tok_s_min, report.tok_s_max),
        "speedup": f"{report.speedup:.2f}",
        "drafts accepted": f"{100 * report.acceptance:.1f} %",
        "tokens per verification": f"{report.tokens_per_verification:.2f}",
        "verifications": f"{report.verifications}, and {report.plain_steps} steps without drafts",
        "the tokens are the same": f"{report.tokens} in each of {report.runs} runs",
    }
    print(f"{name} on {report.device}")
    for label, value in rows.items():
        print(f"{label + ':':25}{value}")


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
