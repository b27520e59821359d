"""Experts, delta nets and Gemma 4: as `mlx_lm.convert` wrote them, byte for byte; mixed bits."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import families
import tiny_checkpoints as tiny
from saragossa.errors import ConvertError, UsageError, WeightsError
from saragossa.models import supported
from saragossa.weights.bind import BoundTensor, bind
from saragossa.weights.checkpoint import load_spec
from saragossa.weights.convert import convert
from saragossa.weights.convert.floats import from_float32, to_float32
from saragossa.weights.convert.layout import QWEN3_5, copy_job, targets
from saragossa.weights.safetensors import SafetensorsIndex

FAMILIES = Path(__file__).parents[2] / "golden" / "families"
QUANTISED = sorted(
    path.name for path in FAMILIES.iterdir() if path.is_dir() and re.fullmatch(r".+-q\dg\d+", path.name)
)
Contents = dict[str, tiny.Stored]


def contents(folder: Path) -> Contents:
    """Every tensor: dtype, shape, bytes."""
    index = SafetensorsIndex.open(folder)
    out = {}
    for name, entry in index.items():
        with entry.file.open("rb") as file:
            file.seek(entry.offset)
            out[name] = entry.dtype, entry.shape, file.read(entry.nbytes)
    return out


def config_of(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return result


def load(folder: Path, *, mtp: bool = False) -> dict[str, BoundTensor]:
    """The folder as the engine binds it: a wrong config, name or shape raises here."""
    index = SafetensorsIndex.open(folder)
    return {tensor.role: tensor for tensor in bind(load_spec(folder, index, mtp=mtp), index)}


def hub_form(name: str, folder: Path) -> Path:
    """The golden `name` as mlx-lm was given it: older keys; with Qwen3.5's experts wide decays and norms."""
    shutil.copytree(FAMILIES / name, folder)
    shutil.move(folder / "config.hub.json", folder / "config.json")
    if name.startswith("qwen3_5_moe"):
        tensors = contents(folder)
        for key, (dtype, shape, data) in tensors.items():
            if key.endswith(("A_log", "linear_attn.norm.weight")):
                values = to_float32(np.frombuffer(data, "<u2"), dtype)
                tensors[key] = "F32", shape, values.tobytes()
        tiny.write_safetensors(folder / "model.safetensors", tensors)
    return folder


def parts_of(name: str) -> tuple[str, int, int]:
    base, bits, group_size = re.fullmatch(r"(.+)-q(\d)g(\d+)", name).groups()  # type: ignore[union-attr]
    return base, int(bits), int(group_size)


def differing(ours: Contents, theirs: Contents) -> list[str]:
    return sorted(set(ours) ^ set(theirs)) + [k for k in theirs if k in ours and ours[k] != theirs[k]]


def write(folder: Path, config: dict[str, Any], shapes: families.Shapes) -> Path:
    """A model of random bf16 weights."""
    rng = np.random.default_rng(0)
    tensors = {
        name: ("BF16", shape, from_float32(rng.standard_normal(shape).astype(np.float32), "BF16").tobytes())
        for name, shape in shapes.items()
    }
    return tiny.write_model(folder, config, tensors)


# --- as mlx-lm writes them -----------------------------------------------------------------------------


def test_there_are_goldens_of_every_family() -> None:
    kinds = {config_of(FAMILIES / name)["model_type"] for name in QUANTISED}
    assert kinds == {"qwen3_moe", "qwen3_next", "qwen3_5", "qwen3_5_moe", "gemma4", "gemma4_unified"}


def test_every_model_type_has_been_thought_of() -> None:
    """A new one goes into this list when layout.py is right for it."""
    dense = {"llama", "mistral", "qwen2", "qwen3", "gemma3", "gemma3_text"}
    families = {"qwen3_moe", "qwen3_next", "gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text"}
    assert set(supported()) == dense | families | QWEN3_5


@pytest.mark.parametrize("name", QUANTISED)
def test_equals_mlx_lm(name: str, tmp_path: Path) -> None:
    """Tensors and all of config.json. Where 64 does not divide, routers have groups of the others' size."""
    base, bits, group_size = parts_of(name)
    source = hub_form(base, tmp_path / "in")
    report = convert(source, tmp_path / "out", bits=bits, group_size=group_size, mtp=False, progress=False)
    ours, theirs = contents(tmp_path / "out"), contents(FAMILIES / name)
    assert differing(ours, theirs) == []
    assert config_of(tmp_path / "out") == config_of(FAMILIES / name)
    assert report.nbytes == sum(len(data) for _, _, data in ours.values())
    assert load(tmp_path / "out")


@pytest.mark.parametrize(
    ("source", "golden"),
    [
        ("qwen3_moe-fused", "qwen3_moe-q4g32"),
        ("qwen3_5_moe-hub", "qwen3_5_moe-q4g64"),
        ("qwen3_5-mlx", "qwen3_5-q4g32"),
        ("qwen3_5_moe-mlx", "qwen3_5_moe-q4g64"),
    ],
)
def test_other_forms_of_a_checkpoint_give_the_same(source: str, golden: str, tmp_path: Path) -> None:
    """Fused experts, the Hub's file, and an MLX folder, whose norms already have their one."""
    _, bits, group_size = parts_of(golden)
    convert(FAMILIES / source, tmp_path / "out", bits=bits, group_size=group_size, mtp=False, progress=False)
    assert differing(contents(tmp_path / "out"), contents(FAMILIES / golden)) == []


@pytest.mark.parametrize("name", ["qwen3_5", "qwen3_5_moe"])
def test_unquantised_equals_mlx_lm(name: str, tmp_path: Path) -> None:
    """mlx-lm casts what is not bf16, but for the decays."""
    source = hub_form(name, tmp_path / "in")
    convert(source, tmp_path / "out", dtype="bfloat16", mtp=False, progress=False)
    assert differing(contents(tmp_path / "out"), contents(FAMILIES / f"{name}-mlx")) == []
    assert config_of(tmp_path / "out") == config_of(FAMILIES / f"{name}-mlx")


def test_without_bits_weights_keep_their_dtype(tmp_path: Path) -> None:
    convert(FAMILIES / "qwen3_5_moe-hub", tmp_path / "out", mtp=False, progress=False)
    ours, cast = contents(tmp_path / "out"), contents(FAMILIES / "qwen3_5_moe-mlx")
    wide = [name for name in ours if ours[name] != cast[name]]
    assert wide
    assert all(name.endswith("linear_attn.norm.weight") for name in wide)
    assert {ours[name][0] for name in wide} == {"F32"}
    assert "quantization" not in config_of(tmp_path / "out")


def test_towers_are_dropped(tmp_path: Path) -> None:
    source = write(
        tmp_path / "in",
        families.gemma4(),
        families.gemma_tensors(prefix="model.language_model.")
        | {"model.vision_tower.x.weight": (4, 4), "model.audio_tower.y.weight": (4,)},
    )
    convert(source, tmp_path / "out", bits=4, progress=False)
    assert all(name.startswith("language_model.model.") for name in contents(tmp_path / "out"))
    assert "vision_config" not in config_of(tmp_path / "out")


# --- multi-token prediction ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["qwen3_5", "qwen3_5_moe", "qwen3_5_moe-hub"])
def test_multi_token_prediction_is_kept(name: str, tmp_path: Path) -> None:
    source = FAMILIES / name
    convert(source, tmp_path / "out", progress=False)
    convert(source, tmp_path / "bare", mtp=False, progress=False)
    stored, ours = contents(source), contents(tmp_path / "out")
    added = sorted(set(ours) - set(contents(tmp_path / "bare")))
    assert differing({k: v for k, v in ours.items() if k not in added}, contents(tmp_path / "bare")) == []
    assert all(name.startswith("language_model.mtp.") for name in added)
    before, after = load(source, mtp=True), load(tmp_path / "out", mtp=True)
    apart = {
        role.replace("experts_gate_up", part) for role in before for part in ("experts_gate", "experts_up")
    }
    assert set(after) == apart
    for role, tensor in after.items():
        assert not tensor.plus_one
        if not role.startswith("mtp.") or role not in before or "experts" in role:
            continue
        own, mine = stored[_stored_name(before[role])], ours[_stored_name(tensor)]
        if before[role].plus_one:
            one_added = to_float32(np.frombuffer(own[2], "<u2"), "BF16") + np.float32(1)
            assert mine == (own[0], own[1], from_float32(one_added, "BF16").tobytes()), role
        else:
            assert mine == own, role


def _stored_name(tensor: BoundTensor) -> str:
    return f"{tensor.name}.weight" if len(tensor.shape) == 2 else tensor.name


def test_experts_of_the_prediction_are_stacked(tmp_path: Path) -> None:
    """One by one in the one file, gate and up of all in the other."""
    for name in ("qwen3_5_moe", "qwen3_5_moe-hub"):
        convert(FAMILIES / name, tmp_path / name, progress=False)
    left, right = contents(tmp_path / "qwen3_5_moe"), contents(tmp_path / "qwen3_5_moe-hub")
    stacked = [name for name in left if "mtp." in name and "switch_mlp" in name]
    assert len(stacked) == 3
    assert [name for name in stacked if left[name] != right[name]] == []
    source = contents(FAMILIES / "qwen3_5_moe")
    up = b"".join(source[f"mtp.layers.0.mlp.experts.{i}.up_proj.weight"][2] for i in range(5))
    assert left["language_model.mtp.layers.0.mlp.switch_mlp.up_proj.weight"][2] == up


def test_prediction_is_quantised_but_for_its_first_projection(tmp_path: Path) -> None:
    convert(FAMILIES / "qwen3_5_moe", tmp_path / "out", bits=4, progress=False)
    bound = load(tmp_path / "out", mtp=True)
    assert bound["mtp.fc"].kind == "dense"
    assert (bound["mtp.layers.0.q"].bits, bound["mtp.layers.0.router"].bits) == (4, 8)
    gate = config_of(tmp_path / "out")["quantization"]["language_model.mtp.layers.0.mlp.gate"]
    assert gate == {"group_size": 64, "bits": 8}


def test_prediction_that_the_config_denies_is_dropped(tmp_path: Path) -> None:
    source = shutil.copytree(FAMILIES / "qwen3_5", tmp_path / "in")
    config = config_of(source)
    config["text_config"]["mtp_num_hidden_layers"] = 0
    (source / "config.json").write_text(json.dumps(config))
    convert(source, tmp_path / "out", bits=4, group_size=32, progress=False)
    assert not [name for name in contents(tmp_path / "out") if "mtp." in name]


def test_qwen3_next_keeps_its_prediction_beside_the_model(tmp_path: Path) -> None:
    shapes = families.qwen_tensors("qwen3_next", "single", mtp="mtp.")
    source = write(tmp_path / "in", families.qwen3_next(), shapes)
    convert(source, tmp_path / "out", bits=4, progress=False)
    assert "mtp.fc.weight" in contents(tmp_path / "out")
    assert load(tmp_path / "out", mtp=True)["mtp.layers.0.experts_up"].bits == 4


# --- overrides ------------------------------------------------------------------------------------------


def moe(folder: Path, **changes: Any) -> Path:
    return write(folder, families.qwen3_moe(**changes), families.qwen_tensors("qwen3_moe", "single"))


def test_overrides_by_name(tmp_path: Path) -> None:
    """The last one counts; experts answer to MLX's name and to the plain one."""
    convert(
        moe(tmp_path / "in"),
        tmp_path / "out",
        bits=4,
        group_size=64,
        overrides=(
            "*=6",
            "layers.*=4",
            "lm_head=8:32",
            "*.mlp.experts.down_proj=8:32",
            "layers.0.mlp.switch_mlp.up_proj=6",
            "*.mlp.gate=float",
        ),
        progress=False,
    )
    bound = load(tmp_path / "out")
    found = {role: (tensor.bits, tensor.group_size) for role, tensor in bound.items()}
    assert found["embed"] == (6, 64)
    assert found["head"] == (8, 32)
    assert found["layers.2.q"] == (4, 64)
    assert found["layers.0.experts_down"] == (8, 32)
    assert found["layers.0.experts_up"] == (6, 64)
    assert found["layers.2.experts_up"] == (4, 64)
    assert found["layers.0.router"] == (0, 0)
    config = config_of(tmp_path / "out")
    assert config["quantization"] == config["quantization_config"]
    assert config["quantization"] == {
        "group_size": 64,
        "bits": 4,
        "mode": "affine",
        "model.embed_tokens": {"group_size": 64, "bits": 6},
        "lm_head": {"group_size": 32, "bits": 8},
        "model.layers.0.mlp.switch_mlp.down_proj": {"group_size": 32, "bits": 8},
        "model.layers.2.mlp.switch_mlp.down_proj": {"group_size": 32, "bits": 8},
        "model.layers.0.mlp.switch_mlp.up_proj": {"group_size": 64, "bits": 6},
    }


def test_routers_and_overrides_stay_affine_beside_small_floats(tmp_path: Path) -> None:
    """An entry without a mode is affine, as mlx reads it; groups are 64 where none is said."""
    convert(moe(tmp_path / "in"), tmp_path / "out", mode="mxfp4", overrides=["lm_head=6"], progress=False)
    bound = load(tmp_path / "out")
    found = {role: (tensor.kind, tensor.bits, tensor.group_size) for role, tensor in bound.items()}
    assert found["layers.0.experts_down"] == ("mxfp4", 4, 32)
    assert found["layers.0.router"] == ("affine", 8, 64)
    assert found["head"] == ("affine", 6, 64)
    block = config_of(tmp_path / "out")["quantization"]
    assert (block["mode"], block["lm_head"]) == ("mxfp4", {"group_size": 64, "bits": 6})


def test_rows_that_do_not_divide_are_told(tmp_path: Path) -> None:
    """Experts' down has rows of 32; an override with a smaller group takes them."""
    source = moe(tmp_path / "in")
    report = convert(source, tmp_path / "out", bits=4, group_size=64, progress=False)
    down = [f"model.layers.{i}.mlp.switch_mlp.down_proj" for i in (0, 2)]
    assert report.skipped == tuple(down)
    report = convert(
        source,
        tmp_path / "mixed",
        bits=4,
        group_size=64,
        overrides=["*.switch_mlp.down_proj=4:32"],
        progress=False,
    )
    assert report.skipped == ()
    assert load(tmp_path / "mixed")["layers.0.experts_down"].group_size == 32


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["lm_head"], r"override 'lm_head' is not understood"),
        (["=8"], r"override '=8' is not understood"),
        (["lm_head=8:"], r"override 'lm_head=8:' is not understood"),
        (["lm_head=7"], r"override 'lm_head=7': bits 7 is not supported"),
        (["lm_head=8:48"], r"override 'lm_head=8:48': group size 48 is not supported"),
        (["lm_heads=8"], r"override 'lm_heads=8': no module of the model has such a name"),
        (
            ["lm_head=8:128"],
            r"override 'lm_head=8:128' quantises nothing: the group size 128 divides no rows",
        ),
        (["lm_head=8", "*=6"], r"override 'lm_head=8' quantises nothing: .* or a later override counts"),
        (["*=float"], r"the overrides \*=float leave every module as float"),
        (["*=float", "lm_head=float"], r"the overrides \*=float, lm_head=float leave every module as float"),
    ],
)
def test_wrong_overrides(tmp_path: Path, overrides: list[str], message: str) -> None:
    source = moe(tmp_path / "in")
    with pytest.raises(UsageError, match=message):
        convert(source, tmp_path / "out", bits=4, overrides=overrides, progress=False)
    assert not (tmp_path / "out").exists()


def test_overrides_need_bits(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="overrides have no effect without bits"):
        convert(moe(tmp_path / "in"), tmp_path / "out", overrides=["lm_head=8"], progress=False)


def test_the_head_of_a_tied_model_is_its_embedding(tmp_path: Path) -> None:
    shapes = families.qwen_tensors("qwen3_moe", "single", head=None)
    source = write(tmp_path / "in", families.qwen3_moe(tie_word_embeddings=True), shapes)
    with pytest.raises(UsageError, match="no module of the model") as caught:
        convert(source, tmp_path / "out", bits=4, overrides=["lm_head=8"], progress=False)
    assert "embed_tokens" in str(caught.value.cure)


# --- memory and bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["single", "fused"])
def test_experts_are_read_one_at_a_time(form: str, tmp_path: Path) -> None:
    source = write(tmp_path / "in", families.qwen3_moe(), families.qwen_tensors("qwen3_moe", form))
    index = SafetensorsIndex.open(source)
    spec = load_spec(source, index)
    stacks = [target for target in targets(spec, bind(spec, index)) if "switch_mlp" in target.name]
    assert len(stacks) == 6
    for target in stacks:
        chunks = [array.shape for (array,) in copy_job(target, "BF16").chunks()]
        assert chunks == [target.shape[1:]] * target.shape[0]


def spoil(folder: Path, name: str, change: Callable[[Contents], None]) -> None:
    tensors = contents(folder)
    assert name in tensors
    change(tensors)
    tiny.write_safetensors(folder / "model.safetensors", tensors)


def test_an_expert_that_is_not_finite_leaves_nothing(tmp_path: Path) -> None:
    source = moe(tmp_path / "in")
    name = "model.layers.2.mlp.experts.4.up_proj.weight"

    def change(tensors: Contents) -> None:
        dtype, shape, data = tensors[name]
        tensors[name] = dtype, shape, data[:-2] + b"\x80\x7f"

    spoil(source, name, change)
    message = r"tensor model.layers.2.mlp.switch_mlp.up_proj.weight holds a value that is not finite"
    with pytest.raises(ConvertError, match=message):
        convert(source, tmp_path / "out", bits=4, progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_an_expert_that_is_missing_is_found_before_anything_is_written(tmp_path: Path) -> None:
    source = moe(tmp_path / "in")
    name = "model.layers.2.mlp.experts.4.up_proj.weight"
    spoil(source, name, lambda tensors: tensors.pop(name) and None)
    with pytest.raises(WeightsError, match="the config has 5 experts, 4 are there"):
        convert(source, tmp_path / "out", bits=4, progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
