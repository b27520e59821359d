"""Numbers of config.json that are no sizes, scales or bounds of a model: named, in every family."""

from __future__ import annotations

import math
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import families as f
from saragossa.errors import ConfigError
from saragossa.models import supported
from saragossa.models.block_drafter import attach
from saragossa.models.hybrid import MOST_CONV_WIDTH
from tiny_checkpoints import config

DENSE = ("llama", "mistral", "qwen2", "qwen3", "gemma3_text", "gemma3")
CONFIGS: dict[str, dict[str, Any]] = {
    **{name: config(name) for name in DENSE},
    **f.qwen(),
    "gemma4_text": f.gemma4_text(),
    "gemma4": f.gemma4(),
    "gemma4_unified": f.gemma4(model_type="gemma4_unified"),
    "gemma4_unified_text": f.gemma4_text(model_type="gemma4_unified_text"),
}
GEMMA = [name for name in CONFIGS if "gemma" in name]
GEMMA3 = ["gemma3", "gemma3_text"]
MOE = ["qwen3_moe", "qwen3_next", "qwen3_5_moe", "qwen3_5_moe_text"]
HYBRID = [name for name in CONFIGS if name.startswith(("qwen3_5", "qwen3_next"))]
NO_NUMBERS = (math.nan, math.inf, -math.inf, -1.0, 0.0, 1e-300, 1e300, 10**400)
TABLE: list[tuple[list[str], str, tuple[object, ...]]] = [
    (list(CONFIGS), "rms_norm_eps", (*NO_NUMBERS, 2.0)),
    (list(CONFIGS), "vocab_size", (0, -1, 1 << 31, 1.5)),
    (list(CONFIGS), "num_hidden_layers", (0, -1, 10**9)),
    (list(CONFIGS), "max_position_embeddings", (0, -1, 1 << 31)),
    (GEMMA, "final_logit_softcapping", (*NO_NUMBERS, float(1 << 31), 1e5, 1e-3)),
    (GEMMA3, "attn_logit_softcapping", (*NO_NUMBERS, float(1 << 31))),
    (GEMMA3, "query_pre_attn_scalar", NO_NUMBERS),
    (GEMMA, "sliding_window", (0, -1)),
    (MOE, "num_experts_per_tok", (0, -1, 6)),
    (MOE, "moe_intermediate_size", (0, -1)),
    (MOE[1:], "shared_expert_intermediate_size", (-1, 1 << 31)),
    (HYBRID, "linear_conv_kernel_dim", (-1, 0, 1, 17, 64)),
    (HYBRID, "linear_key_head_dim", (0, -1)),
]
YARN: dict[str, Any] = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}
ROPE: list[tuple[dict[str, Any], str]] = [
    *(({"rope_type": "default", "rope_theta": value}, "rope_theta") for value in (*NO_NUMBERS, 0.5)),
    *(
        ({"rope_type": kind, "rope_theta": 1e4, "factor": value, **more}, "factor")
        for value in (*NO_NUMBERS, 0.5, 1e7)
        for kind, more in (
            ("linear", {}),
            ("proportional", {}),
            ("yarn", {}),
            ("llama3", {"low_freq_factor": 1.0, "high_freq_factor": 4.0}),
        )
    ),
    *(
        ({**YARN, key: value}, key)
        for key in ("attention_factor", "beta_fast", "beta_slow")
        for value in NO_NUMBERS
    ),
    *(
        ({**YARN, "mscale": value, "mscale_all_dim": 1.0}, "mscale")
        for value in (math.inf, -1.0, 1e300, 1e20)
    ),
    *(
        ({"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": value}, "partial_rotary_factor")
        for value in (*NO_NUMBERS, 1.5)
    ),
]  # fmt: skip


def build(name: str, changes: dict[str, Any]) -> None:
    raw = CONFIGS[name]
    if "text_config" in raw:
        raw = {**raw, "text_config": {**raw["text_config"], **changes}}
    else:
        raw = {**raw, **changes}
    import_module(f"saragossa.models.{name}").build(raw, {})


def test_every_family_is_here() -> None:
    assert sorted(CONFIGS) == supported()
    for name in CONFIGS:
        build(name, {})


@pytest.mark.parametrize(
    ("name", "key", "values"),
    [(name, key, values) for names, key, values in TABLE for name in names],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_number_without_sense_is_named(name: str, key: str, values: tuple[object, ...]) -> None:
    for value in values:
        with pytest.raises(ConfigError, match=key):
            build(name, {key: value})


@pytest.mark.parametrize("name", CONFIGS)
def test_a_rope_number_without_sense_is_named(name: str) -> None:
    for parameters, key in ROPE:
        nested = dict.fromkeys(("full_attention", "sliding_attention"), parameters)
        with pytest.raises(ConfigError, match=key):
            build(name, {"rope_parameters": nested if "gemma" in name else parameters})


def test_numbers_at_the_bounds_load() -> None:
    build("gemma3_text", {"final_logit_softcapping": 1e4, "attn_logit_softcapping": 0.01})
    build("llama", {"rms_norm_eps": 1.0})
    build("qwen3_next", {"linear_conv_kernel_dim": MOST_CONV_WIDTH})


def test_the_widest_convolution_is_that_of_the_ops() -> None:
    source = (Path(__file__).parents[3] / "csrc" / "op_types.h").read_text()
    found = re.search(r"kMostConvWidth = (\d+);", source)
    assert found is not None
    assert int(found[1]) == MOST_CONV_WIDTH


@pytest.mark.parametrize("size", [-1, 0, 1, 257, 1 << 31])
def test_a_block_of_no_sense_is_named(size: int) -> None:
    target = import_module("saragossa.models.qwen3").build(config("qwen3"), {})
    raw = config("qwen3", block_size=size, dflash_config={"target_layer_ids": [0], "mask_token_id": 1})
    with pytest.raises(ConfigError, match="block_size"):
        attach(target, raw, {})
