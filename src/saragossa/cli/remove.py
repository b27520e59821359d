"""`saragossa rm`: remove models from the cache."""

from __future__ import annotations

import argparse
import shutil

from saragossa.cli.tables import size
from saragossa.errors import HubError
from saragossa.weights.locate import DEMO


def run(args: argparse.Namespace) -> int:
    """Remove each and say what became free. Stops at the first that is not there."""
    for name in args.repos:
        print(f"{name}: {size(_remove(name))} freed")
    return 0


def _remove(name: str) -> int:
    if name != DEMO:
        from saragossa.weights.hub import remove

        return remove(name)
    from saragossa.weights.checkpoint import describe
    from saragossa.weights.demo import demo_folder

    folder = demo_folder()
    if not folder.is_dir():
        raise HubError("demo: not in the local cache", cure="saragossa run demo fetches it")
    freed = describe(folder).nbytes
    shutil.rmtree(folder)
    return freed
