"""Sampling options, one row each: the command line's and the chat's /set share them.

Ranges are not here: GenerationOptions.validate() knows them, for every caller.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saragossa.errors import ParameterError

if TYPE_CHECKING:
    from saragossa.engine.options import GenerationOptions


@dataclass(frozen=True, slots=True)
class SamplingOption:
    """A field of GenerationOptions that takes one value."""

    field: str
    type: Callable[[str], Any]
    help: str

    @property
    def flag(self) -> str:
        return "--" + self.field.replace("_", "-")


OPTIONS = (
    SamplingOption("max_tokens", int, "tokens to generate at most"),
    SamplingOption("temperature", float, "0 is greedy; higher is more varied"),
    SamplingOption("top_k", int, "draw among the K most likely tokens; 0: all"),
    SamplingOption("top_p", float, "draw among the most likely tokens that together have this probability"),
    SamplingOption("min_p", float, "drop tokens below this share of the most likely one's probability"),
    SamplingOption(
        "repetition_penalty", float, "divide the logits of tokens seen in prompt and answer; 1: none"
    ),
    SamplingOption("presence_penalty", float, "taken once from the logit of each token of the answer"),
    SamplingOption("frequency_penalty", float, "taken from a token's logit each time the answer has it"),
    SamplingOption("seed", int, "seed of the draws; the same seed gives the same answer"),
)


GENERATE_MAX_TOKENS = 256  # of `generate`; `run` goes on to the end of the answer


def logit_bias(text: str) -> tuple[int, float]:
    """ID=VALUE, for argparse."""
    token, equals, value = text.partition("=")
    try:
        if not (equals and token.isascii() and token.isdigit() and len(token) <= 10):
            raise ValueError
        return int(token), float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"found {text!r}, accepted is ID=VALUE, such as 42=-5") from None


def add_sampling_options(parser: argparse.ArgumentParser, defaults: str) -> None:
    """All sampling options in a group; `defaults` says what holds where none is given."""
    group = parser.add_argument_group("sampling", defaults)
    for option in OPTIONS:
        metavar = "N" if option.type is int else "X"
        group.add_argument(option.flag, type=option.type, metavar=metavar, help=option.help)
    group.add_argument(
        "--logit-bias",
        type=logit_bias,
        action="append",
        metavar="ID=VALUE",
        help="added to a token's logit; may be repeated",
    )
    group.add_argument(
        "--stop", action="append", metavar="TEXT", help="end the answer before this text; may be repeated"
    )
    group.add_argument(
        "--ignore-eos", action="store_true", default=None, help="go on after the model's end token"
    )


def said(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of GenerationOptions that the command line names."""
    fields = [option.field for option in OPTIONS] + ["stop", "ignore_eos", "top_logprobs"]
    values = {field: getattr(args, field, None) for field in fields}
    if args.logit_bias:
        values["logit_bias"] = dict(args.logit_bias)
    return {field: value for field, value in values.items() if value is not None}


def validated(values: Mapping[str, Any]) -> GenerationOptions:
    """Options from fields. Raises ParameterError, before a model is loaded."""
    from saragossa.engine.options import GenerationOptions

    options = GenerationOptions(**values)
    options.validate()
    return options


def parse_one(name: str, text: str) -> tuple[str, Any]:
    """A field and its value from the chat's /set. Raises ParameterError."""
    field = name.removeprefix("--").replace("-", "_")
    for option in OPTIONS:
        if option.field == field:
            try:
                return field, option.type(text)
            except ValueError:
                raise ParameterError(field, f"{field}: found {text!r}, accepted is a number") from None
    names = ", ".join(option.field for option in OPTIONS)
    raise ParameterError(field, f"no option {name!r}", cure=f"there are {names}")
