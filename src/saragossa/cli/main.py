"""Entry point of the console script and of `python -m saragossa`.

Exit codes: 0, 1 (it failed), 2 (the options or the input are wrong), 130 (Ctrl-C).
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing itself is imported where Ctrl-C is heeded
if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        from saragossa.cli.dispatch import (
            dispatch,  # here, so that Ctrl-C may come while modules are imported
        )

        return dispatch(argv)
    except KeyboardInterrupt:
        start = "\n" if sys.stderr is not None and sys.stderr.isatty() else ""  # behind the terminal's ^C
        print(f"{start}saragossa: interrupted", file=sys.stderr)
        return INTERRUPTED
