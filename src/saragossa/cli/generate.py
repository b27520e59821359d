"""`saragossa generate`: text from a prompt, with exactly the options that were given."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Any

from saragossa.cli import loading
from saragossa.cli.prompts import read_prompt
from saragossa.cli.sampling_options import GENERATE_MAX_TOKENS, said, validated
from saragossa.cli.terminal import ModelOutput
from saragossa.errors import UsageError

if TYPE_CHECKING:
    from saragossa.engine.options import Completion, Metrics, TokenLogprobs
    from saragossa.llm import LLM


def run(args: argparse.Namespace) -> int:
    """Generate and print. What can be refused without the model is refused before it is loaded."""
    options = validated({"max_tokens": GENERATE_MAX_TOKENS} | said(args))
    loading.check_engine_options(args)
    if args.top_logprobs is not None and not args.json:
        raise UsageError("--top-logprobs has no effect on plain text", cure="add --json")
    prompt = read_prompt(args)
    from saragossa.engine.generation import Timing

    with loading.open_model(args) as model:
        ids = prompt_ids(model, prompt, args)
        continues = args.raw or not isinstance(prompt, str)
        if args.json:
            completion = model.generate(ids, options, continues=continues)
            print(json.dumps(as_json(completion, model), ensure_ascii=False, allow_nan=False))
            metrics = completion.metrics
        else:
            timing = Timing()
            output = ModelOutput(sys.stdout)
            for chunk in model.stream(ids, options, continues=continues, timing=timing):
                output.write(chunk.text)
            print()  # in any case: the text is all but the last character
            metrics = model.metrics(timing, len(ids))
        if args.metrics:
            sys.stdout.flush()
            print(as_text(metrics, len(ids)), file=sys.stderr)
    return 0


def prompt_ids(model: LLM, prompt: str | list[int], args: argparse.Namespace) -> list[int]:
    """The prompt's token ids: as given, as raw text, or as a user message through the chat template."""
    if not isinstance(prompt, str):
        return prompt
    if args.raw:
        return model.tokenize(prompt)
    messages = [{"role": "system", "content": args.system}] if args.system else []
    messages.append({"role": "user", "content": prompt})
    return model.chat_ids(messages, enable_thinking=args.thinking)


def as_json(completion: Completion, model: LLM) -> dict[str, Any]:
    """The object that `--json` prints; `logprobs` only where they were asked for."""
    result = {
        "text": completion.text,
        "token_ids": completion.token_ids,
        "prompt_tokens": completion.prompt_tokens,
        "finish_reason": completion.finish_reason,
        "metrics": dataclasses.asdict(completion.metrics),
    }
    if completion.logprobs is not None:
        result["logprobs"] = [_logprob_json(entry, model) for entry in completion.logprobs]
    return result


def _logprob_json(entry: TokenLogprobs, model: LLM) -> dict[str, Any]:
    def row(token_id: int, logprob: float) -> dict[str, Any]:
        return {"token_id": token_id, "token": model.detokenize([token_id]), "logprob": logprob}

    return row(entry.token_id, entry.logprob) | {"top": [row(*pair) for pair in entry.top]}


def as_text(metrics: Metrics, prompt_tokens: int) -> str:
    """One line a figure."""
    return (
        f"device:      {metrics.device}\n"
        f"load:        {metrics.load_s:.3f} s\n"
        f"prefill:     {metrics.prefill_tok_s:.1f} tok/s ({prompt_tokens} tokens)\n"
        f"decode:      {metrics.decode_tok_s:.1f} tok/s\n"
        f"peak memory: {metrics.peak_rss_bytes / 1e6:.0f} MB"
    )
