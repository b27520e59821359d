"""What the Metal kernels cannot do is named when the model is made, before a weight is read."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

import families
from saragossa import _core
from saragossa.errors import DeviceError

pytestmark = pytest.mark.usefixtures("unchecked")


def make(name: str, raw: dict[str, Any], device: str = "metal") -> None:
    decoder = import_module(f"saragossa.models.{name}").build(raw, {}).decoder
    _core.Model(_core.Device(device), decoder, [], blocks=1, block_tokens=256, kv_dtype="bf16")


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        (
            "qwen3_5_text",
            families.qwen3_5_text(linear_key_head_dim=257),
            "keys of delta nets 257, .* at most 256",
        ),
        ("qwen3_moe", families.qwen3_moe(num_local_experts=513), "experts of a layer: 513, .* at most 512"),
        (
            "qwen3_moe",
            families.qwen3_moe(num_local_experts=32, num_experts_per_tok=17),
            "experts of a token: 17, .* at most 16",
        ),
        ("qwen3_moe", families.qwen3_moe(vocab_size=600_000), "a vocabulary 600000, .* at most 524288"),
        ("qwen3_moe", families.qwen3_moe(hidden_size=65_600), "a hidden size 65600, .* at most 65536"),
    ],
)
def test_a_model_beyond_the_kernels(name: str, raw: dict[str, Any], message: str) -> None:
    with pytest.raises(DeviceError, match=f"device 'metal' cannot run .* {message}.* --device cpu"):
        make(name, raw)
    with pytest.raises(Exception, match="embed"):  # the CPU takes it: only its weights are missing
        make(name, raw, "cpu")


def test_a_model_at_the_bounds_is_only_without_weights() -> None:
    raw = families.qwen3_next(linear_key_head_dim=256, num_experts=512, num_experts_per_tok=16)
    with pytest.raises(Exception, match="embed"):
        make("qwen3_next", raw)
