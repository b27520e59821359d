"""Warnings on stderr: what the library logs, and variables that nobody reads."""

from __future__ import annotations

import logging
import sys

from saragossa import runtime_flags


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]
    def format(self, record: logging.LogRecord) -> str:
        return f"saragossa: {record.levelname.lower()}: {record.getMessage()}"


def setup_notices() -> None:
    """Called once before a command runs."""
    log = logging.getLogger("saragossa")
    if not any(isinstance(handler, _Handler) for handler in log.handlers):
        log.addHandler(_Handler())
        log.propagate = False
    if suspects := runtime_flags.suspects():
        from saragossa import settings  # pydantic: only where a name asks for it

        known = settings.variables()
        for name in suspects:
            if name not in known:
                print(f"saragossa: warning: {runtime_flags.unknown_variable(name, known)}", file=sys.stderr)
