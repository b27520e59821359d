"""Every parameter is checked by name; NaN passes no bound."""

from __future__ import annotations

import math
from typing import Any

import pytest

from saragossa.engine.options import GenerationOptions
from saragossa.errors import ParameterError
from saragossa.text.generation_defaults import GenerationDefaults

NAN, INF = math.nan, math.inf

REFUSED: list[tuple[str, Any]] = [
    *[("temperature", v) for v in (NAN, INF, -INF, "nan", -0.1, 2.5, True, None)],
    *[("top_p", v) for v in (0, 1.5, NAN, -1)],
    *[("min_p", v) for v in (-0.1, 1.1, NAN)],
    *[("top_k", v) for v in (-1, 1.5, NAN, True)],
    *[("repetition_penalty", v) for v in (0, -1, NAN, INF, 11)],
    *[("presence_penalty", v) for v in (9, -2.1, NAN)],
    *[("frequency_penalty", v) for v in (2.1, NAN)],
    *[("max_tokens", v) for v in (0, -1, 1.5, 1e30, True)],
    *[("seed", v) for v in (1.5, 2**64, "1")],
    *[("top_logprobs", v) for v in (-1, 21, "yes", True)],
    *[
        ("logit_bias", v)
        for v in ({1: NAN}, {1: 101}, {-1: 0.5}, {"a": 1.0}, [1], dict.fromkeys(range(1025), 0.0))
    ],
    ("ignore_eos", "yes"),
]


@pytest.mark.parametrize(("name", "value"), REFUSED, ids=lambda v: repr(v)[:20])
def test_bad_value_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ParameterError) as caught:
        GenerationOptions(**{name: value}).validate()
    assert caught.value.param == name
    assert name in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 2, "top_p": 1, "min_p": 1, "top_k": 0},
        {"presence_penalty": -2.0, "frequency_penalty": 2.0, "repetition_penalty": 1.1},
        {"logit_bias": {0: -100, 5: 100.0}, "seed": -1, "top_logprobs": 20, "max_tokens": 1},
    ],
)
def test_bounds_are_inclusive(options: dict[str, Any]) -> None:
    GenerationOptions(**options).validate()


def test_unknown_override_lists_the_known_ones() -> None:
    with pytest.raises(ParameterError, match=r"temprature.*temperature"):
        GenerationOptions().with_overrides({"temprature": 1.0})


def test_seed_is_64_bits_and_random_when_missing() -> None:
    assert GenerationOptions(seed=-1).session_arguments()["seed"] == 2**64 - 1
    assert GenerationOptions().session_arguments()["seed"] != GenerationOptions().session_arguments()["seed"]


@pytest.mark.parametrize(
    ("defaults", "expected"),
    [
        ({}, {"temperature": 0.0}),
        ({"do_sample": False, "temperature": 0.7}, {"temperature": 0.0, "top_p": 1.0}),
        ({"do_sample": True}, {"temperature": 1.0}),
        (
            {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95},
            {"temperature": 0.6, "top_k": 20, "top_p": 0.95},
        ),
        ({"temperature": 0.7, "repetition_penalty": 1.1}, {"temperature": 0.7, "repetition_penalty": 1.1}),
        ({"repetition_penalty": 1.1}, {"temperature": 0.0, "repetition_penalty": 1.1}),
    ],
)
def test_checkpoint_defaults(defaults: dict[str, Any], expected: dict[str, Any]) -> None:
    options = GenerationOptions.from_defaults(GenerationDefaults.from_config(defaults))
    assert {name: getattr(options, name) for name in expected} == expected
