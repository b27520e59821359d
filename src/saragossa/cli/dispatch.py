"""One command: its module, its exit code, and every error as one line on stderr."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from saragossa.cli.parser import parse
from saragossa.errors import SaragossaError


def dispatch(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. KeyboardInterrupt passes."""
    _open_missing_streams()
    for stream in (sys.stdout, sys.stderr):  # a terminal without UTF-8 gets ? rather than a traceback
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        args = parse(list(sys.argv[1:] if argv is None else argv))
    except SystemExit as leave:  # --help, --version and usage errors
        return leave.code if isinstance(leave.code, int) else 1
    except OSError as error:  # --version into a full disk
        print(f"saragossa: error: {describe(error)}", file=sys.stderr)
        return 1
    try:
        return _run(args.module, args)
    except BrokenPipeError:
        # The reader went away (`| head`): nothing to say, and nothing may fail when Python flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if args.debug:
            raise
        print(f"saragossa: error: {describe(error)}", file=sys.stderr)
        return error.exit_code if isinstance(error, SaragossaError) else 1


def _open_missing_streams() -> None:
    """Streams that the caller closed (`<&-`, `>&-`) read as empty and swallow what is written."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123


def _run(module: str, args: object) -> int:
    from saragossa.cli.notices import setup_notices

    setup_notices()
    code: int = importlib.import_module(f"saragossa.cli.{module}").run(args)
    sys.stdout.flush()
    return code


def describe(error: Exception) -> str:
    """One printable line for any error."""
    if isinstance(error, SaragossaError):
        text = str(error)
    elif isinstance(error, MemoryError):
        text = "out of memory (use a smaller model or a smaller --context)"
    elif isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        text = f"{where}{error.strerror or error}"
    else:
        text = (
            f"internal error: {type(error).__name__}: {error} (a bug: --debug shows where, please report it)"
        )
    return "".join(c if c.isprintable() else " " for c in text)
