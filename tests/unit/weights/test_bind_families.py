"""bind: the newer families in every stored form, and what does not fit."""

import logging
from pathlib import Path
from typing import Any

import pytest

import families as f
from saragossa.errors import ConfigError, ModelError, WeightsError
from saragossa.weights.bind import BoundTensor, bind
from saragossa.weights.checkpoint import load_spec
from saragossa.weights.safetensors import SafetensorsIndex
from tiny_checkpoints import Stored, config, stored, write_model

Q4 = {"bits": 4, "group_size": 32}
QWEN = f.qwen()


def bound(
    folder: Path, raw: dict[str, Any], held: dict[str, Stored], mtp: bool = False
) -> dict[str, BoundTensor]:
    write_model(folder, raw, held)
    index = SafetensorsIndex.open(folder)
    return {item.role: item for item in bind(load_spec(folder, index, mtp=mtp), index)}


def refused(folder: Path, raw: dict[str, Any], held: dict[str, Stored]) -> str:
    with pytest.raises(WeightsError) as error:
        bound(folder, raw, held)
    return error.value.message


def shapes_of(model_type: str, form: str) -> f.Shapes:
    if form == "mlx" and "qwen3_5" in model_type:
        return f.qwen_tensors(model_type, form, "language_model.model.", "language_model.lm_head")
    return f.qwen_tensors(model_type, form)


@pytest.mark.parametrize("form", ["single", "fused", "mlx"])
@pytest.mark.parametrize("model_type", QWEN)
def test_qwen_floats(tmp_path: Path, model_type: str, form: str) -> None:
    held = f.floats(shapes_of(model_type, form))
    found = bound(tmp_path, QWEN[model_type], held)
    index = SafetensorsIndex.open(tmp_path)
    assert sum(item.nbytes for item in found.values()) == sum(entry.nbytes for entry in index.values())


@pytest.mark.parametrize("form", ["single", "mlx"])
@pytest.mark.parametrize("model_type", QWEN)
def test_qwen_quantised(tmp_path: Path, model_type: str, form: str, caplog: pytest.LogCaptureFixture) -> None:
    shapes = shapes_of(model_type, form)
    raw = {**QWEN[model_type], "quantization": {**Q4, **f.routers(shapes)}}
    with caplog.at_level(logging.WARNING, logger="saragossa"):
        found = bound(tmp_path, raw, f.packed(shapes))
    assert not caplog.text
    index = SafetensorsIndex.open(tmp_path)
    assert sum(item.nbytes for item in found.values()) == sum(entry.nbytes for entry in index.values())
    assert found["layers.0.delta_conv" if model_type != "qwen3_moe" else "norm"].kind == "dense"
    if "layers.0.router" in found:
        assert (found["layers.0.router"].bits, found["layers.0.router"].group_size) == (8, 64)
        assert (found["layers.0.experts_up"].bits, found["layers.0.experts_up"].group_size) == (4, 32)


def test_rows(tmp_path: Path) -> None:
    found = bound(tmp_path, QWEN["qwen3_next"], f.floats(shapes_of("qwen3_next", "mlx")))
    q, gate = found["layers.3.q"], found["layers.3.q_gate"]
    assert q.parts == gate.parts
    assert q.rows == ((0, 32), (64, 32), (128, 32), (192, 32))
    assert (q.shape, q.stored_rows, q.nbytes) == ((128, 64), 256, 128 * 64 * 2)
    qkv = found["layers.0.delta_qkv"]
    assert (qkv.shape, qkv.stored_rows) == ((f.CHANNELS, 64), 176)
    assert found["layers.0.delta_conv"].shape == (f.CHANNELS, 3)


def test_a_stack_of_experts(tmp_path: Path) -> None:
    shapes = shapes_of("qwen3_moe", "single")
    found = bound(tmp_path / "floats", QWEN["qwen3_moe"], f.floats(shapes))
    index = SafetensorsIndex.open(tmp_path / "floats")
    up = found["layers.2.experts_up"]
    assert (up.kind, up.stack, up.shape, len(up.parts)) == ("dense", 5, (160, 64), 5)
    for i, part in enumerate(up.parts):
        assert part.offset == index[f"model.layers.2.mlp.experts.{i}.up_proj.weight"].offset
    raw = {**QWEN["qwen3_moe"], "quantization": {**Q4, **f.routers(shapes)}}
    packed = bound(tmp_path / "packed", raw, f.packed(shapes))["layers.2.experts_up"]
    index = SafetensorsIndex.open(tmp_path / "packed")
    assert (packed.kind, packed.stack, packed.bits, len(packed.parts)) == ("affine", 5, 4, 15)
    name = "model.layers.2.mlp.experts.1.up_proj"
    offsets = [index[f"{name}.{part}"].offset for part in ("weight", "scales", "biases")]
    assert [part.offset for part in packed.parts[3:6]] == offsets


def test_three_dimensions(tmp_path: Path) -> None:
    found = bound(tmp_path, QWEN["qwen3_5_moe"], f.floats(shapes_of("qwen3_5_moe", "fused")))
    both = found["layers.0.experts_gate_up"]
    assert (both.shape, both.stack, both.rows, len(both.parts)) == ((320, 64), 0, (), 1)


def test_mtp(tmp_path: Path) -> None:
    raw = QWEN["qwen3_5_moe"]
    held = f.floats(f.qwen_tensors("qwen3_5_moe", "fused", "model.language_model.", mtp="mtp."))
    held |= {"model.visual.patch_embed.proj.weight": stored("BF16", 4, 3)}
    assert not any(role.startswith("mtp") for role in bound(tmp_path, raw, held))
    found = bound(tmp_path, raw, held, mtp=True)
    assert found["mtp.fc"].shape == (64, 128)
    assert found["mtp.layers.0.experts_down"].stack == 5
    del held["mtp.layers.0.mlp.experts.3.up_proj.weight"]
    assert "mtp.fc" not in bound(tmp_path, raw, held)
    with pytest.raises(WeightsError, match=r"missing mtp.layers.0.mlp.experts.3.up_proj.weight"):
        bound(tmp_path, raw, held, mtp=True)
    with pytest.raises(WeightsError, match=r"no mtp\.fc\.weight"):
        bound(tmp_path, raw, f.floats(shapes_of("qwen3_5_moe", "fused")), mtp=True)
    with pytest.raises(ModelError, match="a llama model has no MTP head, which was asked for"):
        bound(tmp_path, config("llama"), {"x": stored("BF16", 1)}, mtp=True)


GEMMA: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dense": ({}, {}),
    "k_eq_v": (f.K_EQ_V, {"k_eq_v": True}),
    "small": (f.GEMMA_SMALL, {"small": True}),
    "small, keys of sharing layers in the file": (f.GEMMA_SMALL, {"small": True, "shared_keys": True}),
    "experts one by one": ({**f.K_EQ_V, **f.GEMMA_MOE}, {"k_eq_v": True, "moe": "single"}),
    "experts fused": ({**f.K_EQ_V, **f.GEMMA_MOE}, {"k_eq_v": True, "moe": "fused"}),
    "experts of MLX": ({**f.K_EQ_V, **f.GEMMA_MOE}, {"k_eq_v": True, "moe": "mlx"}),
}


@pytest.mark.parametrize("prefix", ["model.language_model.", "language_model.model."])
@pytest.mark.parametrize("case", GEMMA)
def test_gemma4(tmp_path: Path, case: str, prefix: str, caplog: pytest.LogCaptureFixture) -> None:
    changes, options = GEMMA[case]
    shapes = f.gemma_tensors(prefix, **options)
    kept = [name for name in shapes if "sharing" not in case or not _of_sharing_layers(name)]
    held = f.floats(shapes) | {"model.vision_tower.x": stored("BF16", 3)}
    found = bound(tmp_path / "floats", f.gemma4(changes), held)
    index = SafetensorsIndex.open(tmp_path / "floats")
    assert sum(item.nbytes for item in found.values()) == sum(index[name].nbytes for name in kept)
    raw = f.gemma4(changes, quantization={**Q4, **f.routers(shapes)})
    with caplog.at_level(logging.WARNING, logger="saragossa"):
        packed = bound(tmp_path / "packed", raw, f.packed(shapes))
    assert not caplog.text
    assert packed["layers.0.q"].kind == "affine"
    if "moe" in options:
        assert packed["layers.0.router_norm"].factor == 0.125
        assert packed["layers.0.router"].bits == 8


def _of_sharing_layers(name: str) -> bool:
    parts = (".k_proj", ".v_proj", ".k_norm")
    return any(f"layers.{i}.self_attn{part}" in name for i in (4, 5) for part in parts)


# --- overrides ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["single", "mlx"])
@pytest.mark.parametrize(
    "key",
    [
        "model.layers.0.mlp.switch_mlp.down_proj",
        "language_model.model.layers.0.mlp.switch_mlp.down_proj",
        "model.layers.0.mlp.experts.down_proj",
        "layers.0.mlp.experts.down_proj",
    ],
)
def test_overrides_of_experts_in_every_spelling(
    tmp_path: Path, key: str, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    """oQ files: one projection of one layer in 8 bits by 32, the others in 4 by 32."""
    shapes = shapes_of("qwen3_moe", form)
    held = f.packed(shapes)
    wide = {name: shape for name, shape in shapes.items() if "layers.0.mlp" in name and "down_proj" in name}
    held |= f.packed(wide, 8, 32)
    block = {**Q4, **f.routers(shapes), key: {"bits": 8, "group_size": 32}}
    with caplog.at_level(logging.WARNING, logger="saragossa"):
        found = bound(tmp_path, {**QWEN["qwen3_moe"], "quantization": block}, held)
    assert not caplog.text
    assert found["layers.0.experts_down"].bits == 8
    assert found["layers.2.experts_down"].bits == 4


def test_an_override_of_one_expert(tmp_path: Path) -> None:
    shapes = shapes_of("qwen3_moe", "single")
    name = "model.layers.0.mlp.experts.2.down_proj"
    held = f.packed(shapes) | f.packed({f"{name}.weight": (64, 32)}, 8, 32)
    block = {**Q4, **f.routers(shapes), name: {"bits": 8, "group_size": 32}}
    message = refused(tmp_path, {**QWEN["qwen3_moe"], "quantization": block}, held)
    assert f"{name} is stored as 8-bit, group size 32, BF16" in message
    assert "the experts of a layer must be stored alike" in message
    del block[name]
    message = refused(tmp_path, {**QWEN["qwen3_moe"], "quantization": block}, held)
    assert f"{name} is stored as 8-bit, group size 32, the config's quantization says 4-bit" in message


def test_oq_files(tmp_path: Path) -> None:
    """8 bits by 64, some modules by 128 or left as float, the mode named."""
    shapes = shapes_of("qwen3_5_moe", "mlx")
    wide = "language_model.model.layers.3.self_attn.o_proj"
    left = "language_model.model.layers.3.self_attn.k_proj"
    held = f.packed(shapes, 8, 64)
    for name, shape in shapes.items():
        if name.endswith("experts.down_proj.weight") or "switch_mlp.down_proj" in name:
            held |= f.packed({name: shape}, 8, 32)
    held |= f.packed({f"{wide}.weight": (64, 128)}, 8, 128)
    held[f"{left}.weight"] = stored("BF16", 64, 64)
    for part in ("scales", "biases"):
        del held[f"{left}.{part}"]
    block: dict[str, Any] = {"bits": 8, "group_size": 64, "mode": "affine", left: False}
    block[wide] = {"bits": 8, "group_size": 128, "mode": "affine"}
    for i in range(4):
        block[f"language_model.model.layers.{i}.mlp.switch_mlp.down_proj"] = {"bits": 8, "group_size": 32}
    raw = {**QWEN["qwen3_5_moe"], "quantization": block, "quantization_config": block}
    found = bound(tmp_path, raw, held)
    assert found["layers.3.o"].group_size == 128
    assert found["layers.3.k"].kind == "dense"
    assert found["layers.3.q"].group_size == 64


# --- what does not fit ----------------------------------------------------------------------------


def test_too_few_experts_name_the_first_missing(tmp_path: Path) -> None:
    held = f.floats(shapes_of("qwen3_moe", "single"))
    for i in (3, 4):
        del held[f"model.layers.0.mlp.experts.{i}.gate_proj.weight"]
    message = refused(tmp_path, QWEN["qwen3_moe"], held)
    expected = "missing model.layers.0.mlp.experts.3.gate_proj.weight (the config has 5 experts, 3 are there)"
    assert expected in message
    assert "experts.4" not in message
    none = {name: item for name, item in held.items() if ".experts." not in name}
    message = refused(tmp_path, QWEN["qwen3_moe"], none)
    assert (
        "model.layers.0.mlp.experts.0.gate_proj.weight (the config has 5 experts, none is there)" in message
    )


@pytest.mark.parametrize("form", ["fused", "mlx"])
def test_too_few_experts_in_one_tensor(tmp_path: Path, form: str) -> None:
    raw = f.changed(QWEN["qwen3_moe"], {"num_local_experts": 6})
    message = refused(tmp_path, raw, f.floats(shapes_of("qwen3_moe", form)))
    assert "it holds 5 experts, the config has 6" in message


def test_more_experts_than_the_config_has(tmp_path: Path) -> None:
    raw = f.changed(QWEN["qwen3_moe"], {"num_local_experts": 4})
    held = f.floats(shapes_of("qwen3_moe", "single"))
    message = refused(tmp_path, raw, held)
    assert "not part of a qwen3_moe model: model.layers.0.mlp.experts.4." in message


@pytest.mark.parametrize("rows", [128, 512])
def test_gate_rows_that_do_not_fit(tmp_path: Path, rows: int) -> None:
    name = "model.layers.3.self_attn.q_proj.weight"
    held = f.floats(shapes_of("qwen3_next", "single")) | {name: stored("BF16", rows, 64)}
    message = refused(tmp_path, QWEN["qwen3_next"], held)
    expected = f"{name} has shape [{rows}, 64], the config says [256, 64] (queries and their gates together)"
    assert message.count(expected) == 1


def test_packed_gate_rows_that_do_not_fit(tmp_path: Path) -> None:
    shapes = shapes_of("qwen3_next", "single")
    wrong = {"model.layers.3.self_attn.q_proj.weight": (128, 64)}
    raw = {**QWEN["qwen3_next"], "quantization": {**Q4, **f.routers(shapes)}}
    message = refused(tmp_path, raw, f.packed(shapes) | f.packed(wrong))
    assert message.count("q_proj is packed as [128, 8]") == 1
    assert "for a weight of [256, 64]" in message


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("in_proj_qkvz.weight", (175, 64), "says [176, 64] (several projections together)"),
        ("conv1d.weight", (104, 1, 4), "conv1d.weight has shape [104, 1, 4], the config says [104, 1, 3]"),
        ("conv1d.weight", (104, 3), "conv1d.weight has shape [104, 3]"),
        ("A_log", (5,), "A_log has shape [5], the config says [6]"),
    ],
)
def test_delta_tensors_that_do_not_fit(
    tmp_path: Path, name: str, shape: tuple[int, ...], message: str
) -> None:
    held = f.floats(shapes_of("qwen3_next", "single"))
    held[f"model.layers.0.linear_attn.{name}"] = stored("BF16", *shape)
    assert message in refused(tmp_path, QWEN["qwen3_next"], held)


def test_missing_delta_tensors_are_those_of_the_family(tmp_path: Path) -> None:
    held = f.floats(shapes_of("qwen3_next", "single"))
    del held["model.layers.0.linear_attn.in_proj_qkvz.weight"]
    message = refused(tmp_path, QWEN["qwen3_next"], held)
    assert message.count("missing model.layers.0.linear_attn.in_proj_qkvz.weight") == 1
    held = f.floats(shapes_of("qwen3_5", "single"))
    del held["model.layers.0.linear_attn.in_proj_z.weight"]
    assert "missing model.layers.0.linear_attn.in_proj_z.weight" in refused(tmp_path, QWEN["qwen3_5"], held)


def test_overrides_of_what_is_not_loaded_are_no_mistake(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shapes = shapes_of("qwen3_5", "mlx")
    held = f.packed(shapes | {"language_model.mtp.fc.weight": (64, 128)})
    held |= {"vision_tower.blocks.0.attn.qkv.weight": stored("BF16", 4, 4)}
    left = {"language_model.mtp.fc": {"bits": 8}, "vision_tower.blocks.0.attn.qkv": False}
    with caplog.at_level(logging.WARNING, logger="saragossa"):
        bound(tmp_path, {**QWEN["qwen3_5"], "quantization": {**Q4, **left}}, held)
        assert not caplog.text
        lost = {**Q4, "language_model.model.layers.0.mlp.experts.7.up_proj": False}
        bound(tmp_path, {**QWEN["qwen3_5"], "quantization": lost}, held)
    assert "no module has the name language_model.model.layers.0.mlp.experts.7.up_proj" in caplog.text


def test_a_config_that_contradicts_its_tensors(tmp_path: Path) -> None:
    held = f.floats(f.gemma_tensors("model."))
    assert "not part of a gemma4_text model" in refused(tmp_path, f.gemma4_text(**f.K_EQ_V), held)
    without = f.floats(f.gemma_tensors("model.", k_eq_v=True))
    assert "missing model.layers.1.self_attn.v_proj.weight" in refused(tmp_path, f.gemma4_text(), without)
    raw = f.changed(QWEN["qwen3_5_text"], {"layer_types": [f.FULL] * 4})
    message = refused(tmp_path, raw, f.floats(shapes_of("qwen3_5_text", "single")))
    assert "missing model.layers.0.self_attn.q_proj.weight" in message
    with pytest.raises(ConfigError, match=r"config\.json: rope_type 'spiral' is not supported"):
        bound(tmp_path, f.changed(raw, {"rope_parameters": {"rope_type": "spiral"}}), held)
