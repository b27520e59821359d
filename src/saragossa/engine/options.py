"""What a caller may say about a generation, and what comes back: plain values."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

from saragossa.errors import ParameterError
from saragossa.text.generation_defaults import MAX_REPETITION_PENALTY, MAX_TEMPERATURE, GenerationDefaults
from saragossa.text.stop import check_stops

FinishReason = Literal["stop", "length"]
SpeculationMethod = Literal["off", "mtp", "draft", "lookup"]
MAX_TOP_LOGPROBS = 20  # as OpenAI allows
GREEDY_BELOW = 1e-5  # a temperature below this is greedy: the logits over it would overflow
MAX_LOGIT_BIAS = 1024  # entries; OpenAI allows 300
MAX_DRAFT_TOKENS = 7  # verified at once, beside the drawn token


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """Sampling and stopping. The defaults are plain greedy decoding until an end token.

    max_tokens: tokens to generate at most, the end token included; None: what the context leaves.
    temperature: 0 is greedy.
    top_k: 0 is off. top_p: 1 is off. min_p: 0 is off, relative to the likeliest token.
    repetition_penalty: 1 is off; counts prompt and output (divides positive logits, multiplies others).
    presence_penalty, frequency_penalty: OpenAI's, on the output only.
    logit_bias: token id -> addend in [-100, 100].
    seed: the same seed, prompt and options give the same tokens; None: a random one.
    stop: strings that end the text; they are not part of it.
    top_logprobs: None: no log probabilities; n: of each token and of the n likeliest.
    ignore_eos: go on past end tokens.
    speculate: who drafts tokens ahead ("off", "mtp", "draft", "lookup"); None: as the LLM was loaded. It
    changes speed alone. draft_tokens: drafts at most, 1 to 7; None: the LLM's.
    """

    max_tokens: int | None = None
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    stop: str | Sequence[str] = ()
    top_logprobs: int | None = None
    ignore_eos: bool = False
    speculate: SpeculationMethod | None = None
    draft_tokens: int | None = None

    def validate(self) -> None:
        """Raise ParameterError that names the first parameter that is out of range or no number."""
        if self.max_tokens is not None:
            _integer("max_tokens", self.max_tokens, 1, 2**31 - 1)
        _number("temperature", self.temperature, 0.0, MAX_TEMPERATURE)
        _integer("top_k", self.top_k, 0, 2**31 - 1)
        _number("top_p", self.top_p, 0.0, 1.0, open_low=True)
        _number("min_p", self.min_p, 0.0, 1.0)
        _number("repetition_penalty", self.repetition_penalty, 0.01, MAX_REPETITION_PENALTY)
        _number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        if self.seed is not None:
            _integer("seed", self.seed, -(2**63), 2**64 - 1)
        if self.top_logprobs is not None:
            _integer("top_logprobs", self.top_logprobs, 0, MAX_TOP_LOGPROBS)
        if not isinstance(self.ignore_eos, bool):
            raise ParameterError(
                "ignore_eos", f"ignore_eos: found {self.ignore_eos!r}, accepted is True or False"
            )
        check_stops(self.stop)
        self._validate_bias()
        _check_drafts(self.speculate, self.draft_tokens)

    def _validate_bias(self) -> None:
        if not isinstance(self.logit_bias, Mapping):
            raise ParameterError(
                "logit_bias", f"logit_bias: found {self.logit_bias!r}, accepted is a mapping"
            )
        if len(self.logit_bias) > MAX_LOGIT_BIAS:
            raise ParameterError(
                "logit_bias", f"logit_bias: {len(self.logit_bias)} entries, accepted are {MAX_LOGIT_BIAS}"
            )
        for token, value in self.logit_bias.items():
            _integer("logit_bias", token, 0, 2**31 - 1)
            _number("logit_bias", value, -100.0, 100.0)

    def with_overrides(self, overrides: Mapping[str, Any]) -> GenerationOptions:
        """A copy with some fields replaced; an unknown name is a ParameterError that lists the known ones."""
        known = {f.name for f in fields(self)}
        for name in overrides:
            if name not in known:
                raise ParameterError(
                    name, f"unknown option '{name}'", cure=f"known are {', '.join(sorted(known))}"
                )
        return replace(self, **overrides)

    @classmethod
    def from_defaults(cls, defaults: GenerationDefaults) -> GenerationOptions:
        """What a checkpoint's generation_config.json asks for.

        do_sample false, or a file that says nothing about sampling, means greedy; the repetition penalty
        applies in any case, as in transformers.
        """
        penalty = 1.0 if defaults.repetition_penalty is None else defaults.repetition_penalty
        asked = (defaults.temperature, defaults.top_k, defaults.top_p, defaults.min_p)
        sampled = defaults.do_sample or (defaults.do_sample is None and any(v is not None for v in asked))
        if not sampled:
            return cls(repetition_penalty=penalty)
        return cls(
            temperature=1.0 if defaults.temperature is None else defaults.temperature,
            top_k=defaults.top_k or 0,
            top_p=1.0 if defaults.top_p is None else defaults.top_p,
            min_p=defaults.min_p or 0.0,
            repetition_penalty=penalty,
        )

    def session_arguments(self) -> dict[str, Any]:
        """The keyword arguments of the core's Session.configure."""
        seed = int.from_bytes(os.urandom(8)) if self.seed is None else self.seed
        return {
            "temperature": float(self.temperature) if self.temperature >= GREEDY_BELOW else 0.0,
            "top_k": self.top_k,
            "top_p": float(self.top_p),
            "min_p": float(self.min_p),
            "repetition_penalty": float(self.repetition_penalty),
            "presence_penalty": float(self.presence_penalty),
            "frequency_penalty": float(self.frequency_penalty),
            "seed": seed & (2**64 - 1),
            "top_logprobs": -1 if self.top_logprobs is None else self.top_logprobs,
            "bias": sorted((int(token), float(value)) for token, value in self.logit_bias.items()),
        }


def check_speculation(method: object, draft_model: object, draft_tokens: object) -> SpeculationMethod:
    """The method that a model is to be loaded for. Raises ParameterError, before anything is fetched."""
    _check_drafts(method, draft_tokens)
    if method is None:
        method = "off" if draft_model is None else "draft"
    if method == "draft" and draft_model is None:
        raise ParameterError(
            "draft_model", "speculate is 'draft', but no draft model is named", cure="name one: draft_model"
        )
    if method != "draft" and draft_model is not None:
        raise ParameterError(
            "draft_model",
            f"a draft model is named, but speculate is {method!r}",
            cure="leave one of them out, or make speculate 'draft'",
        )
    return next(known for known in get_args(SpeculationMethod) if known == method)


def _check_drafts(method: object, draft_tokens: object) -> None:
    methods = get_args(SpeculationMethod)
    if method is not None and method not in methods:
        raise ParameterError(
            "speculate", f"speculate: found {method!r:.80}, accepted is {', '.join(methods)}"
        )
    if draft_tokens is not None:
        _integer("draft_tokens", draft_tokens, 1, MAX_DRAFT_TOKENS)


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural log probabilities under the model's own distribution, before any sampling option.

    top: (token id, log probability) of the likeliest tokens, best first.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Chunk:
    """One step of a stream: a token and the text that it completed, which may be empty.

    The last chunk has a finish_reason and may have no token (text that was held back).
    """

    text: str
    token_id: int | None = None
    logprobs: TokenLogprobs | None = None
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class Metrics:
    """load_s: seconds to load the model; rates in tokens per second; peak_rss_bytes of the process."""

    load_s: float
    prefill_tok_s: float
    decode_tok_s: float
    peak_rss_bytes: int
    device: str


@dataclass(frozen=True, slots=True)
class Completion:
    """A finished generation. token_ids holds what was generated, the end token included."""

    text: str
    token_ids: list[int]
    prompt_tokens: int
    finish_reason: FinishReason
    metrics: Metrics
    logprobs: list[TokenLogprobs] | None = None


def _number(name: str, value: object, low: float, high: float, *, open_low: bool = False) -> None:
    """A bool is no number here, and neither is NaN: every comparison with it is false."""
    fits = (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and (low < value if open_low else low <= value)
        and value <= high  # false for NaN and infinities
    )
    if not fits:
        bounds = f"{'above ' if open_low else ''}{low:g} to {high:g}"
        raise ParameterError(name, f"{name}: found {value!r}, accepted is a number {bounds}")


def _integer(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ParameterError(name, f"{name}: found {value!r}, accepted is a whole number {low} to {high}")
