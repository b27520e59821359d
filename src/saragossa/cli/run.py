"""`saragossa run`: one answer, or a chat."""

from __future__ import annotations

import argparse
import sys

from saragossa.cli import loading
from saragossa.cli.conversation import Conversation
from saragossa.cli.prompts import not_empty, read_stdin
from saragossa.cli.sampling_options import said, validated
from saragossa.cli.terminal import ModelOutput, prefill_progress


def run(args: argparse.Namespace) -> int:
    """Answer PROMPT, or standard input where it is no terminal, else chat."""
    overrides = said(args)
    validated(overrides)
    loading.check_engine_options(args)
    question = args.prompt
    if question is None and not sys.stdin.isatty():
        question = read_stdin().rstrip("\n")
    if question is not None:
        not_empty(question)
    with loading.open_model(args) as model:
        conversation = Conversation(model, overrides, system=args.system, thinking=args.thinking)
        if question is None:
            from saragossa.cli.chat import chat

            chat(conversation, args.model)
        else:
            output = ModelOutput(sys.stdout)
            for text in conversation.answer(question, prefill_progress()):
                output.write(text)
            output.end_line()
    return 0
