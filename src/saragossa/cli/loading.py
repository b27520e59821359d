"""From a model's name and the engine options of the command line to a loaded LLM."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from saragossa import runtime_flags
from saragossa.errors import ParameterError

if TYPE_CHECKING:
    from saragossa.llm import LLM


def check_engine_options(args: argparse.Namespace) -> None:
    """Refuse bad values before anything is fetched or loaded."""
    runtime_flags.switches(threads=args.threads)
    if args.exact and args.kv not in (None, "f32"):
        raise ParameterError(
            "kv", f"--kv: found {args.kv}, accepted with --exact is f32", cure="leave one of them out"
        )
    from saragossa.engine.options import check_speculation

    check_speculation(args.speculate, args.draft_model, args.draft_tokens)


def open_model(args: argparse.Namespace) -> LLM:
    """Load `args.model`, fetching it when it is missing."""
    from saragossa.llm import LLM

    return LLM(
        args.model,
        device=args.device,
        threads=args.threads,
        exact=True if args.exact else None,
        kv=args.kv,
        context=args.context,
        speculate=args.speculate,
        draft_model=args.draft_model,
        draft_tokens=args.draft_tokens,
        progress=sys.stderr.isatty(),
    )
