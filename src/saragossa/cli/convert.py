"""`saragossa convert`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from saragossa.cli.tables import size
from saragossa.errors import UsageError


def run(args: argparse.Namespace) -> int:
    """Convert and say what was written."""
    if args.group_size is not None and args.bits is None and args.mode in (None, "affine"):
        raise UsageError("--group-size has no effect without --bits", cure="add --bits 4")
    if args.mode == "affine" and args.bits is None:
        raise UsageError("--mode affine has no effect without --bits", cure="add --bits 4")
    if args.override and args.bits is None and args.mode is None:
        raise UsageError("--override has no effect without --bits or --mode", cure="add --bits 4")
    from saragossa.weights.convert import convert

    report = convert(
        Path(args.src),
        Path(args.dst),
        bits=args.bits,
        group_size=args.group_size,
        mode=args.mode or "affine",
        dtype=args.dtype,
        overrides=args.override,
        mtp=args.mtp,
        progress=sys.stderr.isatty(),
    )
    print(
        f"{report.dst}: {report.model_type}, {report.parameters / 1e6:.1f} million parameters, "
        f"{size(report.nbytes)}, {report.bits_per_weight:.2f} bits a weight"
    )
    if report.skipped:
        more = f" and {len(report.skipped) - 3} more" if len(report.skipped) > 3 else ""
        names = ", ".join(report.skipped[:3]) + more
        print(f"not quantised, as the group size does not divide their rows: {names}")
    return 0
