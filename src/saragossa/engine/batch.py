"""Several prompts at once: prefilled one after the other, decoded together."""

from __future__ import annotations

import time
from collections.abc import Sequence

from saragossa import _core
from saragossa.engine.generation import TextStream, Timing, token_limit
from saragossa.engine.options import Chunk, GenerationOptions, TokenLogprobs
from saragossa.engine.session import chunks
from saragossa.errors import ParameterError
from saragossa.text.tokenizer import Tokenizer

ROWS = 8  # decoded together at most: as many as share a weight's load without changing a row's result


def generate_batch(
    model: _core.Model,
    tokenizer: Tokenizer,
    prompts: Sequence[Sequence[int]],
    options: GenerationOptions,
    *,
    context: int,
    chunk: int,
    continues: bool = True,
) -> list[tuple[list[Chunk], Timing]]:
    """The chunks of each prompt, in order. On the CPU a row's tokens do not depend on its neighbours.

    Raises what a single generation raises, before anything runs.
    """
    options.validate()
    limits = [token_limit(len(prompt), context, options.max_tokens) for prompt in prompts]
    if any(not prompt for prompt in prompts):
        raise ParameterError("prompt", "the prompt is empty", cure="give at least one token")
    out: list[tuple[list[Chunk], Timing]] = []
    for at in range(0, len(prompts), ROWS):
        group = slice(at, at + ROWS)
        out += _run_group(
            model,
            tokenizer,
            prompts[group],
            limits[group],
            options,
            context=context,
            chunk=chunk,
            continues=continues,
        )
    return out


def _run_group(
    model: _core.Model,
    tokenizer: Tokenizer,
    prompts: Sequence[Sequence[int]],
    limits: Sequence[int],
    options: GenerationOptions,
    *,
    context: int,
    chunk: int,
    continues: bool = True,
) -> list[tuple[list[Chunk], Timing]]:
    core = _core.Session(model, len(prompts), context)
    streams = [
        TextStream(tokenizer, options, p, limit, continues) for p, limit in zip(prompts, limits, strict=True)
    ]
    results: list[tuple[list[Chunk], Timing]] = [([], Timing()) for _ in prompts]

    def take(row: int) -> None:
        token, pairs = core.drawn(row)
        logprobs = TokenLogprobs(*pairs[0], top=tuple(pairs[1:])) if pairs else None
        results[row][0].append(streams[row].push(token, logprobs))

    for row, prompt in enumerate(prompts):
        core.configure(row, **options.session_arguments())
        start = time.perf_counter()
        for begin, end in chunks(0, len(prompt), chunk):
            core.prefill(row, prompt[begin:end], end == len(prompt))
        take(row)
        results[row][1].prefill_s = time.perf_counter() - start
    while rows := [row for row, stream in enumerate(streams) if stream.finish_reason is None]:
        start = time.perf_counter()
        core.step(rows)
        elapsed = time.perf_counter() - start
        for row in rows:
            take(row)
            results[row][1].decode_s += elapsed
            results[row][1].decoded += 1
    return results
