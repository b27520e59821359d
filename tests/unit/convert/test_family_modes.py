"""Experts in mxfp4, mxfp8 and 3 bits: as `mlx_lm.convert` wrote them; overrides across modes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import families
from saragossa.errors import ConvertError, UsageError
from saragossa.weights.convert import convert
from saragossa.weights.convert.floats import to_float32
from saragossa.weights.convert.microscaling import quantize_mx
from saragossa.weights.convert.quantize import pack
from unit.convert.test_families import FAMILIES, Contents, config_of, contents, hub_form, load, moe, write

# tests/golden/make_conversions.py made it.
MLX: dict[str, Any] = json.loads((FAMILIES.parent / "conversions.json").read_text())
OPTIONS: dict[str, dict[str, Any]] = {
    "mxfp4": {"mode": "mxfp4"},
    "mxfp8": {"mode": "mxfp8"},
    "q3g32": {"bits": 3, "group_size": 32},
}
ROUTER = {"group_size": 64, "bits": 8}


def digest(tensors: Contents) -> str:
    total = hashlib.sha256()
    for name, (dtype, shape, data) in sorted(tensors.items()):
        total.update(f"{name} {dtype} {list(shape)}\n".encode())
        total.update(data)
    return total.hexdigest()


@pytest.mark.parametrize("name", MLX)
def test_equals_mlx_lm(name: str, tmp_path: Path) -> None:
    base, form = name.rsplit("-", 1)
    source = hub_form(base, tmp_path / "in")
    convert(source, tmp_path / "out", **OPTIONS[form], mtp=False, progress=False)
    assert config_of(tmp_path / "out")["quantization"] == MLX[name]["quantization"]
    assert digest(contents(tmp_path / "out")) == MLX[name]["digest"]
    bound = load(tmp_path / "out")
    wanted = "affine" if form == "q3g32" else form
    experts = {tensor.kind for role, tensor in bound.items() if "experts_" in role} - {"dense"}
    assert experts == {wanted}
    assert {tensor.kind for role, tensor in bound.items() if role.endswith("router")} == {"affine"}


@pytest.mark.parametrize("form", ["single", "fused"])
@pytest.mark.parametrize("mode", ["mxfp4", "mxfp8"])
def test_a_stack_is_its_experts_one_after_another(mode: str, form: str, tmp_path: Path) -> None:
    source = write(tmp_path / "in", families.qwen3_moe(), families.qwen_tensors("qwen3_moe", form))
    convert(source, tmp_path / "out", mode=mode, progress=False)
    stored, ours = contents(source), contents(tmp_path / "out")
    words, scales = b"", b""
    for expert in range(5):
        if form == "single":
            dtype, shape, data = stored[f"model.layers.2.mlp.experts.{expert}.down_proj.weight"]
            weights = np.frombuffer(data, "<u2").reshape(shape)
        else:
            dtype, stack, data = stored["model.layers.2.mlp.experts.down_proj"]
            weights = np.frombuffer(data, "<u2").reshape(stack)[expert]
        q = quantize_mx(to_float32(weights, dtype), mode, dtype)
        words += pack(q.codes, 4 if mode == "mxfp4" else 8).tobytes()
        scales += q.scales.tobytes()
    module = "model.layers.2.mlp.switch_mlp.down_proj"
    assert ours[f"{module}.weight"][2] == words
    assert (ours[f"{module}.scales"][0], ours[f"{module}.scales"][2]) == ("U8", scales)
    assert len(ours[f"{module}.weight"][1]) == len(ours[f"{module}.scales"][1]) == 3
    assert f"{module}.biases" not in ours


def test_overrides_beside_small_floats(tmp_path: Path) -> None:
    """Bits are affine, in groups of 64 where nothing is said."""
    convert(
        moe(tmp_path / "in"),
        tmp_path / "out",
        mode="mxfp4",
        overrides=("lm_head=6", "*.experts.down_proj=mxfp8", "*.up_proj=5:32", "embed_tokens=mxfp4"),
        progress=False,
    )
    found = {role: (t.kind, t.bits, t.group_size) for role, t in load(tmp_path / "out").items()}
    assert found["head"] == ("affine", 6, 64)
    assert found["embed"] == ("mxfp4", 4, 32)
    assert found["layers.0.experts_down"] == ("mxfp8", 8, 32)
    assert found["layers.0.experts_up"] == ("affine", 5, 32)
    assert found["layers.0.experts_gate"] == ("mxfp4", 4, 32)
    assert found["layers.0.router"] == ("affine", 8, 64)
    block = config_of(tmp_path / "out")["quantization"]
    expected: dict[str, Any] = {"group_size": 32, "bits": 4, "mode": "mxfp4"}
    expected["lm_head"] = {"group_size": 64, "bits": 6}
    for i in (0, 2):
        mlp = f"model.layers.{i}.mlp"
        expected[f"{mlp}.gate"] = ROUTER
        expected[f"{mlp}.switch_mlp.down_proj"] = {"group_size": 32, "bits": 8, "mode": "mxfp8"}
        expected[f"{mlp}.switch_mlp.up_proj"] = {"group_size": 32, "bits": 5}
    dense = [name for name in block if name.endswith(".mlp.up_proj")]
    assert {name: value for name, value in block.items() if name not in dense} == expected
    assert dense == ["model.layers.1.mlp.up_proj"]


def test_small_floats_beside_affine(tmp_path: Path) -> None:
    convert(
        moe(tmp_path / "in"),
        tmp_path / "out",
        bits=3,
        overrides=("*.switch_mlp.*=mxfp4", "*.mlp.gate=mxfp8"),
        progress=False,
    )
    found = {role: (t.kind, t.bits, t.group_size) for role, t in load(tmp_path / "out").items()}
    assert found["head"] == ("affine", 3, 64)
    assert found["layers.2.experts_down"] == ("mxfp4", 4, 32)
    assert found["layers.2.router"] == ("mxfp8", 8, 32)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("lm_head=mxfp6", r"override 'lm_head=mxfp6' is not understood"),
        ("lm_head=mxfp4:32", r"override 'lm_head=mxfp4:32' is not understood"),
        ("lm_head=affine", r"override 'lm_head=affine' is not understood"),
        ("*.experts.down_proj=8", r"quantises nothing: the group size 64 divides no rows"),
    ],
)
def test_wrong_overrides(override: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        convert(moe(tmp_path / "in"), tmp_path / "out", mode="mxfp8", overrides=[override], progress=False)
    assert not (tmp_path / "out").exists()


def test_an_expert_that_is_not_finite_leaves_nothing(tmp_path: Path) -> None:
    source = moe(tmp_path / "in")
    file = source / "model.safetensors"
    entry = contents(source)["model.layers.2.mlp.experts.4.up_proj.weight"]
    raw = file.read_bytes()
    assert raw.count(entry[2]) == 1
    file.write_bytes(raw.replace(entry[2], entry[2][:-2] + b"\x80\x7f"))
    with pytest.raises(ConvertError, match=r"tensor .*switch_mlp.up_proj.weight holds a value that is not"):
        convert(source, tmp_path / "out", mode="mxfp8", progress=False)
    assert not (tmp_path / "out").exists()
