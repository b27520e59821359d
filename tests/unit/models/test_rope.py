"""Rotary frequencies against transformers (tests/golden/rope.json) and the two config forms."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from saragossa.errors import ConfigError
from saragossa.models import llama, qwen3
from saragossa.models.rope import rope_spec
from saragossa.models.spec import RopeSpec
from tiny_checkpoints import config

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "rope.json").read_text())
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}


def spec(parameters: dict[str, Any], head_dim: int = 64, max_position: int = 256) -> RopeSpec:
    return rope_spec(parameters, head_dim=head_dim, max_position=max_position)


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["name"])
def test_equals_transformers(case: dict[str, Any]) -> None:
    rope = spec(case["parameters"], case["head_dim"], case["max_position"])
    assert rope.dims == 2 * len(case["inv_freq"])
    assert rope.inv_freq == pytest.approx(case["inv_freq"], rel=1e-6, abs=0)
    assert rope.attention_factor == pytest.approx(case["attention_factor"], rel=1e-6)


def test_values_are_float32() -> None:
    import struct

    values = spec({"rope_theta": 1e6, **YARN}).inv_freq
    assert struct.unpack(f"<{len(values)}f", struct.pack(f"<{len(values)}f", *values)) == values


def rope_of(**changes: Any) -> RopeSpec:
    return qwen3.build(config("qwen3", **changes), {}).decoder.ropes[0]


def test_yarn_is_read_from_every_spelling() -> None:
    new = rope_of(rope_parameters={"rope_theta": 1e6, **YARN})
    plain = rope_of(rope_parameters={"rope_theta": 1e6, "rope_type": "default"})
    assert new.inv_freq != plain.inv_freq
    assert new.attention_factor == pytest.approx(0.1 * math.log(4) + 1)
    older = {key: value for key, value in YARN.items() if key != "rope_type"}
    for scaling in ({**older, "type": "yarn"}, {**older, "rope_type": "yarn"}, {**YARN, "type": "yarn"}):
        assert rope_of(rope_parameters=..., rope_theta=1e6, rope_scaling=scaling) == new
    assert rope_of(rope_parameters={"rope_theta": 1e6, **YARN}, rope_scaling=dict(YARN)) == new
    # theta beside transformers 5's block
    assert rope_of(rope_parameters=dict(YARN), rope_theta=1_000_000) == new


def test_defaults_of_theta() -> None:
    assert rope_of(rope_parameters=...).inv_freq == rope_of(rope_parameters=..., rope_theta=1e4).inv_freq
    assert rope_of(rope_parameters=..., rope_theta=1e4) != rope_of(rope_parameters=..., rope_theta=1e6)


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_parameters": {"rope_theta": 1e6, "rope_type": "default", "partial_rotary_factor": 0.25}},
        {"rope_parameters": ..., "rope_theta": 1e6, "partial_rotary_factor": 0.25},
        {
            "rope_parameters": {"rope_theta": 1e6, "rope_type": "default", "partial_rotary_factor": 0.25},
            "partial_rotary_factor": 0.25,
        },
    ],
    ids=["rope_parameters", "top level", "both"],
)
def test_partial_rotary(changes: dict[str, Any]) -> None:
    rope = rope_of(head_dim=256, **changes)
    assert rope.dims == 64
    assert rope.inv_freq == pytest.approx([1e6 ** (-2 * i / 64) for i in range(32)], rel=1e-6)


@pytest.mark.parametrize("kind", ["dynamic", "longrope", "su", "mrope", 7])
def test_unsupported_types_list_the_supported(kind: object) -> None:
    with pytest.raises(ConfigError, match=rf"rope_type {kind!r} .*default, linear, llama3, yarn"):
        rope_of(rope_parameters={"rope_theta": 1e6, "rope_type": kind, "factor": 2.0})


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rope_type": "linear"}, "factor is missing"),
        ({"rope_type": "linear", "factor": 0.5}, "factor is 0.5; at least 1"),
        ({"rope_type": "linear", "factor": "2"}, "factor is '2'"),
        ({"rope_type": "linear", "factor": True}, "factor is True"),
        ({"rope_type": "linear", "factor": math.nan}, "factor is nan"),
        ({"rope_type": "linear", "factor": 2.0, "mscale": 1.0}, "mscale is not known for rope_type 'linear'"),
        ({"rope_type": "default", "factr": 1.0}, "factr is not known"),
        ({"rope_theta": 0}, "rope_theta is 0"),
        ({"rope_theta": math.nan}, "rope_theta is nan"),
        ({"rope_theta": 1e4, "partial_rotary_factor": 1.5}, "partial_rotary_factor 1.5"),
        ({"rope_theta": 1e4, "partial_rotary_factor": 0.05}, "rotates 3 of 64"),
        ({"rope_type": "llama3", "factor": 8.0, "high_freq_factor": 4.0}, "low_freq_factor is missing"),
        (
            {"rope_type": "llama3", "factor": 8.0, "high_freq_factor": 1.0, "low_freq_factor": 1.0},
            "high_freq_factor 1 must be above",
        ),
        ({**YARN, "truncate": 1}, "truncate is 1"),
        ({**YARN, "original_max_position_embeddings": 64.5}, "an integer is wanted"),
    ],
)
def test_bad_parameters_are_named(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        spec(parameters)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_theta": 5e5}, r"rope_theta is 500000.0 in the top level and 100000.0 in rope_parameters"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_type is 'linear' in rope_scaling"),
        ({"rope_parameters": {"type": "linear", "rope_type": "yarn"}}, "rope type is 'linear' and rope_type"),
    ],
)
def test_two_forms_that_disagree(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        llama.build(config("llama", **changes), {})


@pytest.mark.parametrize("key", ["rope_theta", "rope_type", "partial_rotary_factor"])
def test_nan_is_named_whatever_form_it_stands_in(key: str) -> None:
    for form in ({"rope_type": "default"}, {}):
        with pytest.raises(ConfigError, match=f"{key}.* nan"):
            qwen3.build(config("qwen3", rope_parameters={**form, "rope_theta": 1e4, key: math.nan}), {})
