"""`saragossa pull`: fetch a model; what is there already is kept."""

from __future__ import annotations

import argparse
import sys

from saragossa.weights.locate import DEMO, locate


def run(args: argparse.Namespace) -> int:
    """Fetch and print the folder."""
    progress = sys.stderr.isatty()
    if args.repo == DEMO:
        print(locate(DEMO, progress=progress))
        return 0
    from saragossa.weights.hub import pull

    print(pull(args.repo, progress=progress))
    return 0
