"""Greedy ids of real models against transformers in float32, where its margin is above 0.3.

    python bench/real_models.py FOLDER... --python-oracle PYTHON [--tokens 48]

FOLDER: an unquantised Hugging Face folder. PYTHON: an interpreter with torch and transformers.
Teacher-forced: after a near tie the reference's own token is fed, so every step counts. Prints a row for
each model and path; fails when an id differs above the margin, or when the tokenizers disagree.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from contenders import Contender, WorkerError, run_worker

import saragossa

MARGIN = 0.3
PROMPTS = [
    "The capital of France is",
    "Once upon a time, there was a little",
    "def fibonacci(n):\n",
    "Item 1 costs 3 dollars. Item 2 costs 6 dollars. Item 3 costs",
    "Zwölf Boxkämpfer jagen Viktor quer über den",
]


def compare(llm: saragossa.LLM, cases: list[dict[str, Any]]) -> tuple[int, int, int]:
    """Steps, steps above the margin, and of those the ones that differ."""
    steps = clear = wrong = 0
    for case in cases:
        session = llm.session()
        known = list(case["ids"])
        for want, margin in zip(case["new"], case["margins"], strict=True):
            session.prefill(known[session.length :])
            got = session.step()
            steps += 1
            clear += margin > MARGIN
            wrong += margin > MARGIN and got != want
            known.append(want)
    return steps, clear, wrong


def check(folder: Path, python: str, tokens: int) -> bool:
    job = {"prompts": PROMPTS, "tokens": tokens}
    cases = run_worker(Contender("transformers float32", "reference_greedy.py", python, folder), job)["cases"]
    good = True
    for exact in (True, False):
        with saragossa.LLM(folder, device="cpu", exact=exact, context=1024) as llm:
            for text, case in zip(PROMPTS, cases, strict=True):
                if llm.tokenize(text) != case["ids"]:
                    print(f"{folder.name}: the tokenizers disagree on {text!r}", file=sys.stderr)
                    good = False
            steps, clear, wrong = compare(llm, cases)
        path = "exact" if exact else "default"
        print(f"{folder.name:24} {path:8} {steps:6} {clear:10} {wrong:6}", flush=True)
        good = good and not wrong
    return good


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--python-oracle", required=True, metavar="PYTHON")
    parser.add_argument("--tokens", type=int, default=48, metavar="N")
    args = parser.parse_args()
    print(f"{'model':24} {'path':8} {'steps':>6} {'above ' + str(MARGIN):>10} {'differ':>6}")
    try:
        results = [check(folder, args.python_oracle, args.tokens) for folder in args.folders]
    except (WorkerError, saragossa.SaragossaError) as error:
        print(f"real_models: {error}", file=sys.stderr)
        return 1
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
