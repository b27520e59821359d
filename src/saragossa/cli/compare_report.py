"""A comparison as text for people, and as the record that goes into a repository."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from saragossa.cli.tables import table
from saragossa.engine.compare import LOGIT_DEVIATIONS, Comparison, Parting, md5_of

if TYPE_CHECKING:
    from saragossa.cli.compare import Side

RECORDED_PROMPT = 64  # a longer prompt is recorded by its md5 alone


def as_record(a: Side, b: Side, result: Comparison) -> dict[str, Any]:
    """Plain values without a word of the machine: no path, no time, no GPU."""
    prompt = a.trace.prompt
    step = result.layer_step
    return {
        "model": a.model if a.model == b.model or b.name == "golden" else [a.model, b.model],
        "a": a.name,
        "b": b.name,
        "prompt_tokens": len(prompt),
        "prompt_md5": md5_of(prompt),
        **({"prompt": list(prompt)} if len(prompt) <= RECORDED_PROMPT else {}),
        "max_tokens": max(len(a.trace.greedy), len(b.trace.greedy)),
        "verdict": result.verdict,
        "greedy_md5": {"a": result.md5[0], "b": result.md5[1]},
        "partings": [_parting(parting, result) for parting in result.partings],
        "largest_logit_difference": {
            "value": _round(result.logit_difference),
            "deviations": _round(result.logit_share),
            "position": result.logit_position,
            "positions": result.positions,
        },
        "layers": {
            "tolerance": result.bounds.layer,
            "step": step,
            "first": result.first_layer,
            "difference": [_round(value) for value in result.layers],
            "fingerprints": {
                name: [
                    {"norm": _round(norm), "first8": [_round(value) for value in values]}
                    for norm, values in zip(
                        side.trace.norms[step].tolist(), side.trace.first8[step].tolist(), strict=True
                    )
                ]
                for name, side in (("a", a), ("b", b))
            },
        },
        **{
            f"failure_{name}": text
            for name, text in zip("ab", result.failures, strict=True)
            if text is not None
        },
    }


def without_fingerprints(record: dict[str, Any]) -> dict[str, Any]:
    """What is kept of it: the layers' differences, not their values."""
    layers = {key: value for key, value in record["layers"].items() if key != "fingerprints"}
    return {**record, "layers": layers}


def _parting(parting: Parting, result: Comparison) -> dict[str, Any]:
    return {
        "step": parting.step,
        "ids": dict(zip("ab", parting.ids, strict=True)),
        "margins": {name: _round(value) for name, value in zip("ab", parting.margins, strict=True)},
        "near_tie": parting.margin <= result.bounds.margin,
        "bound": result.bounds.margin,
        "top": {
            name: [[token, _round(value)] for token, value in top]
            for name, top in zip("ab", parting.top, strict=True)
        },
    }


def _round(value: float) -> float | str:
    """Six digits; JSON has no word for what is not a number or not finite."""
    return float(f"{value:.6g}") if math.isfinite(value) else str(value)


def as_text(a: Side, b: Side, result: Comparison) -> str:
    """The report for people."""
    prompt, steps = len(a.trace.prompt), max(len(a.trace.greedy), len(b.trace.greedy))
    bound = LOGIT_DEVIATIONS * result.bounds.layer
    lines = [
        f"A:       {a.name} of {a.model}",
        f"B:       {b.name} of {b.model}",
        f"tokens:  {prompt} of the prompt, {steps} greedy",
        f"greedy:  md5 {result.md5[0]} in A, {result.md5[1]} in B: "
        + ("equal" if result.md5[0] == result.md5[1] else "not equal"),
    ]
    for name, text in zip("AB", result.failures, strict=True):
        if text is not None:
            lines.append(f"failed:  {name}: {text}")
    for i, parting in enumerate(result.partings):
        lines += _parting_lines(parting, prompt, result.bounds.margin, whole=i == 0)
    lines.append(
        f"logits:  largest difference {result.logit_difference:.3g}, at position {result.logit_position}; "
        f"{result.positions} positions were compared; at most {result.logit_share:.3g} of their deviation, "
        + (f"more than {bound:g}" if result.logits_differ else f"within {bound:g}")
    )
    lines += _layer_lines(a, b, result)
    return "\n".join([*lines, f"verdict: {result.verdict}"])


def _parting_lines(parting: Parting, prompt: int, bound: float, *, whole: bool) -> list[str]:
    step = parting.step
    where = f"step {step}" if step >= 0 else f"position {prompt - 1 + step} of the prompt"
    near = (
        f"a near tie, up to {bound:g}"
        if parting.margin <= bound
        else f"no near tie, which is up to {bound:g}"
    )
    lines = [
        f"parts:   at {where}: {parting.ids[0]} in A, {parting.ids[1]} in B; "
        f"margin {parting.margins[0]:.3g} in A, {parting.margins[1]:.3g} in B: {near}"
    ]
    for name, top in zip("AB", parting.top, strict=True):
        if whole:
            best = ", ".join(f"{token} {value:.4f}" for token, value in top)
            lines.append(f"         {name}: {best or 'the file has no logits of this step'}")
    return lines


def _layer_lines(a: Side, b: Side, result: Comparison) -> list[str]:
    step, first = result.layer_step, result.first_layer
    worst = max(range(len(result.layers)), key=lambda i: result.layers[i])
    where = "the last position of the prompt" if step == 0 else f"the token of step {step - 1}"
    if first is None:
        return [
            f"layers:  none differs by more than {result.bounds.layer:g}; layer {worst} does most, "
            f"by {result.layers[worst]:.3g}, at {where}"
        ]
    lines = [
        f"layers:  layer {first} is the first that differs by more than {result.bounds.layer:g}, at {where}"
    ]
    rows = [
        (str(i), f"{value:.3g}", f"{a.trace.norms[step][i]:.5g}", f"{b.trace.norms[step][i]:.5g}")
        for i, value in enumerate(result.layers)
    ]
    drawn = table(("layer", "difference", "norm in A", "norm in B"), rows, right=(0, 1, 2, 3))
    lines += [f"         {line}" for line in drawn.splitlines()]
    for name, side in (("A", a), ("B", b)):
        values = " ".join(f"{value:.5g}" for value in side.trace.first8[step][first])
        lines.append(f"         first values of layer {first} in {name}: {values}")
    return lines
