"""What a token moves, of published shapes in bf16, against figures written out by hand."""

from __future__ import annotations

import math

import pytest

from saragossa.cli import metal_bytes
from saragossa.models.parameters import parameters
from saragossa.weights.bind import bind
from unit.models.test_real_configs import MODELS, build, fused

LENGTH = 2000
# Keys and values of two bytes; one layer's state in floats, read and written.
KV = {
    "Qwen3-30B-A3B": 48 * 4 * 128 * 4 * LENGTH,
    "Qwen3.6-35B-A3B": 10 * 2 * 256 * 4 * LENGTH,
    "Gemma-4-26B-A4B": 25 * 8 * 256 * 4 * 1024 + 5 * 2 * 512 * 4 * LENGTH,
    # 20 of its 35 layers take the keys of others, which are read once.
    "Gemma-4-E2B": 12 * 1 * 256 * 4 * 512 + 3 * 1 * 512 * 4 * LENGTH,
}
STATE = {"Qwen3.6-35B-A3B": 2 * 30 * 4 * (32 * 128 * 128 + 3 * (2 * 16 * 128 + 32 * 128))}


@pytest.mark.parametrize("name", KV)
def test_the_least_of_a_token(name: str) -> None:
    index = fused(MODELS[name]["tensors"])
    spec = build(name, index)
    least = metal_bytes.of_token(spec.decoder, bind(spec, index), LENGTH)
    assert (least.kv, least.state) == (KV[name], STATE.get(name, 0))
    # Of tables that are not the head a row is read; vectors have four bytes on the device.
    tables = ("embed", "per_layer_embed") if not spec.decoder.tied else ("per_layer_embed",)
    skipped = sum(math.prod(t.shape) - t.shape[1] for t in spec.tensors if t.role in tables)
    floats = sum(
        math.prod(t.shape) for t in spec.tensors if len(t.shape) == 1 or t.role.endswith("delta_conv")
    )
    assert least.weights == 2 * (parameters(spec).active - skipped + floats)
    assert least.total == least.weights + least.kv + least.state


def test_kernels_of_a_step_and_of_a_prompt() -> None:
    index = fused(MODELS["Qwen3.6-35B-A3B"]["tensors"])
    spec = build("Qwen3.6-35B-A3B", index)
    bound = bind(spec, index)
    step = metal_bytes.of_decode(spec.decoder, bound, LENGTH - 1, 3)
    expert = 512 * 2048 * 2
    assert step["moe_gated"] == 3 * 40 * 9 * 2 * expert
    assert step["moe_down"] == 3 * 40 * 9 * expert
    assert step["delta_rule_step"] == 3 * 2 * 30 * 4 * 32 * 128 * 128
    assert step["attention_decode"] == 10 * 2 * 256 * 4 * (3 * LENGTH + 3)
    ran = {"matmul", "moe_matmul", "delta_rule_rows"}
    # Twenty tokens choose 160 of 256 experts at most, and use the shared one.
    prompt = metal_bytes.of_prefill(spec.decoder, bound, 20, ran)
    assert prompt["moe_matmul"] == 40 * 161 * 3 * expert
    assert prompt["matvec"] == 2 * 248320 * 2048
    assert prompt["matmul"] + prompt["matvec"] == step["matvec"] // 3
    assert prompt["delta_rule_rows"] == step["delta_rule_step"] // 3
