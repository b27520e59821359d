"""Published configs at their real size: shapes and counts against transformers, and what they take."""

import json
import math
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from saragossa.engine.memory import sequence_bytes
from saragossa.models.parameters import parameters
from saragossa.models.spec import ModelSpec
from saragossa.weights.bind import bind
from saragossa.weights.safetensors import TensorEntry

MODELS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "golden" / "real_configs.json").read_text()
)["models"]
Index = dict[str, TensorEntry]


class Figures(NamedTuple):
    """Written out by hand from the configs. Bytes with a bf16 cache; context of the last one: 32768."""

    idle: int  # parameters of experts that a token does not choose
    per_token: int
    recurrent: int
    kv_32k: int


# layers * kv_heads * head_dim * 2 (keys, values) * 2 bytes; a delta net: float matrices, and the convolution.
def _delta(layers: int, heads: int) -> int:
    return layers * 4 * (heads * 128 * 128 + 3 * (2 * 16 * 128 + heads * 128))


K32 = 32768
W512, W1024 = 1024, 1536  # tokens that a layer keeps for its window: blocks of 256, one more than it needs
FIGURES = {
    "Qwen3-30B-A3B": Figures(48 * 120 * 3 * 768 * 2048, 48 * 4 * 128 * 4, 0, 48 * 4 * 128 * 4 * K32),
    "Qwen3-Next-80B-A3B": Figures(
        48 * 502 * 3 * 512 * 2048, 12 * 2 * 256 * 4, _delta(36, 32), 12 * 2 * 256 * 4 * K32
    ),
    "Qwen3.6-27B": Figures(0, 16 * 4 * 256 * 4, _delta(48, 48), 16 * 4 * 256 * 4 * K32),
    "Qwen3.6-35B-A3B": Figures(
        40 * 248 * 3 * 512 * 2048, 10 * 2 * 256 * 4, _delta(30, 32), 10 * 2 * 256 * 4 * K32
    ),
    "Gemma-4-26B-A4B": Figures(
        30 * 120 * 3 * 704 * 2816,
        25 * 8 * 256 * 4 + 5 * 2 * 512 * 4,
        0,
        25 * 8 * 256 * 4 * W1024 + 5 * 2 * 512 * 4 * K32,
    ),
    "Gemma-4-31B": Figures(
        0,
        50 * 16 * 256 * 4 + 10 * 4 * 512 * 4,
        0,
        50 * 16 * 256 * 4 * W1024 + 10 * 4 * 512 * 4 * K32,
    ),
    "Gemma-4-12B": Figures(
        0,
        40 * 8 * 256 * 4 + 8 * 1 * 512 * 4,
        0,
        40 * 8 * 256 * 4 * W1024 + 8 * 1 * 512 * 4 * K32,
    ),
    # 15 and 24 layers have keys of their own.
    "Gemma-4-E2B": Figures(
        0,
        12 * 1 * 256 * 4 + 3 * 1 * 512 * 4,
        0,
        12 * 1 * 256 * 4 * W512 + 3 * 1 * 512 * 4 * K32,
    ),
    "Gemma-4-E4B": Figures(
        0,
        20 * 2 * 256 * 4 + 4 * 2 * 512 * 4,
        0,
        20 * 2 * 256 * 4 * W512 + 4 * 2 * 512 * 4 * K32,
    ),
}


def entry(name: str, shape: tuple[int, ...]) -> TensorEntry:
    return TensorEntry(name, Path("model.safetensors"), "BF16", shape, 0, 2 * math.prod(shape))


def fused(tensors: Mapping[str, list[tuple[list[int], list[int]]]]) -> Index:
    """As transformers holds the model."""
    index = {}
    for pattern, pairs in tensors.items():
        for shape, layers in pairs:
            for name in [pattern.replace("*", str(i)) for i in layers] or [pattern]:
                index[name] = entry(name, tuple(shape))
    return index


def one_by_one(index: Index) -> Index:
    """As the Hub's older files and transformers' own save hold the experts."""
    result: Index = {}
    for name, item in index.items():
        base, _, part = name.rpartition(".")
        if not base.endswith("experts"):
            result[name] = item
            continue
        count, out, inputs = item.shape
        halves = ("gate_proj", "up_proj") if part == "gate_up_proj" else (part,)
        for i in range(count):
            for half in halves:
                single = f"{base}.{i}.{half}.weight"
                result[single] = entry(single, (out // len(halves), inputs))
    return result


def mlx(index: Index) -> Index:
    """As mlx-lm renames and splits it."""
    result: Index = {}
    for name, item in index.items():
        inner = name.replace("model.language_model.", "language_model.model.")
        if inner == "lm_head.weight" and any("language_model" in other for other in index):
            inner = "language_model.lm_head.weight"
        base, _, part = inner.rpartition(".")
        shape = item.shape
        if inner.endswith("conv1d.weight"):
            result[inner] = entry(inner, (shape[0], shape[2], 1))
        elif base.endswith("experts"):
            switch = base.replace(".mlp.experts", ".mlp.switch_mlp")
            switch = switch if switch != base else f"{base}.switch_glu"
            halves = ("gate_proj", "up_proj") if part == "gate_up_proj" else (part,)
            for half in halves:
                whole = f"{switch}.{half}.weight"
                result[whole] = entry(whole, (shape[0], shape[1] // len(halves), shape[2]))
        else:
            result[inner] = entry(inner, shape)
    return result


FORMS = {"fused": lambda index: index, "one by one": one_by_one, "mlx": mlx}


def build(name: str, index: Index) -> ModelSpec:
    config = MODELS[name]["config"]
    spec: ModelSpec = import_module(f"saragossa.models.{config['model_type']}").build(config, index)
    return spec


def test_all_models_have_figures() -> None:
    assert set(MODELS) == set(FIGURES)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", MODELS)
def test_shapes_and_count_are_those_of_transformers(name: str, form: str) -> None:
    index = FORMS[form](fused(MODELS[name]["tensors"]))
    spec = build(name, index)
    bound = bind(spec, index)  # no tensor is missing, left over or misshapen
    assert parameters(spec).total == MODELS[name]["parameters"]
    assert sum(item.nbytes for item in bound) == 2 * MODELS[name]["parameters"]


@pytest.mark.parametrize("name", MODELS)
def test_what_a_sequence_takes(name: str) -> None:
    spec = build(name, fused(MODELS[name]["tensors"]))
    figures = FIGURES[name]
    assert parameters(spec).total - parameters(spec).active == figures.idle
    cost = sequence_bytes(spec.decoder, "bf16")
    assert (cost.per_token, cost.recurrent) == (figures.per_token, figures.recurrent)
    assert cost.kv(K32) == figures.kv_32k


def test_counts_for_people() -> None:
    named = {name: str(parameters(build(name, fused(model["tensors"])))) for name, model in MODELS.items()}
    assert named["Qwen3-30B-A3B"] == "30.5B, 3.4B active"
    assert named["Qwen3.6-27B"] == "26.9B"
