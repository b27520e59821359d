"""bind: specs against stored tensors, before a weight is read."""

import logging
from pathlib import Path
from typing import Any

import pytest

from saragossa.errors import WeightsError
from saragossa.models import gemma3, llama
from saragossa.models.spec import ModelSpec
from saragossa.weights.bind import BoundTensor, bind, total_bytes
from saragossa.weights.checkpoint import load_spec
from saragossa.weights.safetensors import SafetensorsIndex
from tiny_checkpoints import Stored, affine, config, dense, microscaled, stored, write_model

Q4 = {"bits": 4, "group_size": 64}


def spec_of(**changes: Any) -> ModelSpec:
    return llama.build(config("llama", **changes), {})


def tensors(**changes: Any) -> dict[str, Stored]:
    return dense(spec_of(**changes))


def quantised(spec: ModelSpec, bits: int = 4, group_size: int = 64) -> dict[str, Stored]:
    result = dense(spec)
    for item in spec.tensors:
        if item.module:
            del result[f"{item.name}.weight"]
            result |= affine(item.name, item.shape, bits, group_size)
    return result


def bound(folder: Path, held: dict[str, Stored], **changes: Any) -> dict[str, BoundTensor]:
    write_model(folder, config("llama", **changes), held)
    index = SafetensorsIndex.open(folder)
    return {item.role: item for item in bind(load_spec(folder, index), index)}


def refused(folder: Path, held: dict[str, Stored], **changes: Any) -> str:
    with pytest.raises(WeightsError) as error:
        bound(folder, held, **changes)
    return error.value.message


def test_dense(tmp_path: Path) -> None:
    found = bound(tmp_path, tensors())
    assert list(found) == [item.role for item in spec_of().tensors]
    q = found["layers.0.q"]
    assert (q.kind, q.dtype, q.shape, q.bits, q.group_size, q.plus_one) == (
        "dense",
        "BF16",
        (64, 64),
        0,
        0,
        False,
    )
    index = SafetensorsIndex.open(tmp_path)
    entry = index["model.layers.0.self_attn.q_proj.weight"]
    assert q.parts == ((str(entry.file), entry.offset, 64 * 64 * 2, "BF16"),)
    assert q.parts[0].file == str(tmp_path / "model.safetensors")
    assert total_bytes(found.values()) == sum(entry.nbytes for entry in index.values())


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_any_float_type_per_tensor(tmp_path: Path, dtype: str) -> None:
    held = tensors() | {"model.norm.weight": stored(dtype, 64)}
    assert bound(tmp_path, held)["norm"].dtype == dtype


def test_gemma_norms_are_plus_one(tmp_path: Path) -> None:
    raw = config("gemma3")
    held = dense(gemma3.build(raw, {"language_model.model.embed_tokens.weight": None}))
    held |= {"vision_tower.encoder.weight": stored("F32", 3), "multi_modal_projector.x": stored("F32", 3)}
    write_model(tmp_path, raw, held)
    index = SafetensorsIndex.open(tmp_path)
    found = {item.role: item for item in bind(load_spec(tmp_path, index), index)}
    assert found["norm"].plus_one
    assert found["layers.0.q_norm"].plus_one
    assert not found["embed"].plus_one
    assert found["embed"].name == "language_model.model.embed_tokens"


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("group_size", [32, 64])
def test_affine(tmp_path: Path, bits: int, group_size: int) -> None:
    block = {"bits": bits, "group_size": group_size}
    found = bound(tmp_path, quantised(spec_of(), bits, group_size), quantization=block)
    down = found["layers.1.down"]
    assert (down.kind, down.dtype, down.shape, down.bits, down.group_size) == (
        "affine", "BF16", (64, 128), bits, group_size,
    )  # fmt: skip
    weight, scales, biases = down.parts
    assert (weight.dtype, weight.nbytes) == ("U32", 64 * 128 * bits // 8)
    assert (scales.dtype, scales.nbytes, biases.nbytes) == ("BF16", 64 * 128 // group_size * 2, scales.nbytes)
    index = SafetensorsIndex.open(tmp_path)
    assert scales.offset == index["model.layers.1.mlp.down_proj.scales"].offset
    assert biases.offset == index["model.layers.1.mlp.down_proj.biases"].offset
    assert found["norm"].kind == "dense"
    assert down.nbytes == weight.nbytes + 2 * scales.nbytes


@pytest.mark.parametrize("prefix", ["model.", "language_model.model.", ""])
def test_mixed_bits(tmp_path: Path, prefix: str, caplog: pytest.LogCaptureFixture) -> None:
    """Default 4 bits, layers of 6 and 8, one left as float, a 6-bit embedding; keys in each spelling."""
    held = quantised(spec_of())
    for name, bits, group_size in (
        ("model.layers.0.mlp.down_proj", 6, 64),
        ("model.layers.1.self_attn.q_proj", 8, 32),
        ("model.embed_tokens", 6, 64),
    ):
        shape = next(item.shape for item in spec_of().tensors if item.name == name)
        held |= affine(name, shape, bits, group_size)
    for part in ("scales", "biases"):
        del held[f"model.layers.2.self_attn.k_proj.{part}"]
    held["model.layers.2.self_attn.k_proj.weight"] = stored("BF16", 32, 64)
    block = {
        **Q4,
        f"{prefix}layers.0.mlp.down_proj": {"bits": 6, "group_size": 64},
        f"{prefix}layers.1.self_attn.q_proj": {"bits": 8, "group_size": 32},
        f"{prefix}layers.2.self_attn.k_proj": False,
        f"{prefix}embed_tokens": {"bits": 6, "group_size": 64},
        f"{prefix}layers.7.self_attn.k_proj": False,
    }
    with caplog.at_level(logging.WARNING, logger="saragossa"):
        found = bound(tmp_path, held, quantization=block)
    formats = [
        (found[role].bits, found[role].group_size) for role in ("layers.0.down", "layers.1.q", "embed")
    ]
    assert formats == [(6, 64), (8, 32), (6, 64)]
    assert found["layers.2.k"].kind == "dense"
    assert (found["layers.2.q"].bits, found["layers.2.q"].group_size) == (4, 64)
    assert f"no module has the name {prefix}layers.7.self_attn.k_proj" in caplog.text


@pytest.mark.parametrize(("mode", "bits"), [("mxfp4", 4), ("mxfp8", 8)])
def test_microscaled(tmp_path: Path, mode: str, bits: int) -> None:
    held = dense(spec_of())
    for item in spec_of().tensors:
        if item.module:
            del held[f"{item.name}.weight"]
            held |= microscaled(item.name, item.shape, bits)
    block = {"bits": bits, "group_size": 32, "mode": mode}
    down = bound(tmp_path, held, quantization=block)["layers.1.down"]
    assert (down.kind, down.dtype, down.shape, down.bits, down.group_size) == (
        mode,
        "U8",
        (64, 128),
        bits,
        32,
    )
    assert [(part.dtype, part.nbytes) for part in down.parts] == [
        ("U32", 64 * 128 * bits // 8),
        ("U8", 64 * 4),
    ]
    other = {"bits": 12 - bits, "group_size": 32, "mode": f"mxfp{12 - bits}"}
    message = refused(tmp_path / "other", held, quantization=other)
    assert f"is stored as {mode}, the config's quantization says mxfp{12 - bits}" in message
    message = refused(tmp_path / "affine", held, quantization={"bits": bits, "group_size": 32})
    assert f"is stored as {mode}, the config's quantization says {bits}-bit, group size 32" in message


def test_an_oq_file(tmp_path: Path) -> None:
    """oMLX's: 8 bits in groups of 64; groups of 128, other modes and plain floats per module."""
    spec = spec_of()
    held = quantised(spec, 8, 64)
    shapes = {item.name: item.shape for item in spec.tensors}
    wide, four = "model.layers.0.mlp.down_proj", "model.layers.1.mlp.up_proj"
    held |= affine(wide, shapes[wide], 8, 128)
    del held[f"{four}.biases"]
    held |= microscaled(four, shapes[four], 4)
    plain = "model.layers.0.self_attn.k_proj"
    for part in ("scales", "biases"):
        del held[f"{plain}.{part}"]
    held[f"{plain}.weight"] = stored("BF16", *shapes[plain])
    block = {
        "group_size": 64,
        "bits": 8,
        "mode": "affine",
        wide: {"bits": 8, "group_size": 128, "mode": "affine"},
        four: {"bits": 4, "group_size": 32, "mode": "mxfp4"},
        plain: False,
    }
    found = bound(tmp_path, held, quantization=block)
    formats = {
        role: (found[role].kind, found[role].bits, found[role].group_size)
        for role in ("layers.0.down", "layers.1.up", "layers.0.k", "layers.0.q")
    }
    assert formats == {
        "layers.0.down": ("affine", 8, 128),
        "layers.1.up": ("mxfp4", 4, 32),
        "layers.0.k": ("dense", 0, 0),
        "layers.0.q": ("affine", 8, 64),
    }
    message = refused(tmp_path / "unnamed", held, quantization={k: v for k, v in block.items() if k != wide})
    assert f"{wide} is stored as 8-bit, group size 128, the config's quantization says 8-bit" in message
    message = refused(tmp_path / "said", held, quantization={**block, four: {"bits": 4, "group_size": 32}})
    assert f"{four} is stored as mxfp4, the config's quantization says 4-bit, group size 32" in message


def test_unnamed_modules_may_stay_float(tmp_path: Path) -> None:
    """MLX leaves out what does not divide by the group size, without saying so."""
    held = quantised(spec_of()) | {"lm_head.weight": stored("F16", 96, 64)}
    del held["lm_head.scales"], held["lm_head.biases"]
    assert bound(tmp_path, held, quantization=Q4)["head"].dtype == "F16"


def test_packed_shape_against_the_config(tmp_path: Path) -> None:
    held = quantised(spec_of()) | affine("lm_head", (96, 64), 6, 64)
    message = refused(tmp_path, held, quantization=Q4)
    assert (
        "lm_head is stored as 6-bit, group size 64, the config's quantization says 4-bit, group size 64"
        in message
    )


def test_override_against_float_tensor(tmp_path: Path) -> None:
    held = quantised(spec_of()) | {"lm_head.weight": stored("BF16", 96, 64)}
    del held["lm_head.scales"], held["lm_head.biases"]
    message = refused(tmp_path, held, quantization={**Q4, "lm_head": {"bits": 8, "group_size": 64}})
    assert "lm_head.weight is BF16, the config's quantization says 8-bit, group size 64" in message


def test_false_against_packed_tensor(tmp_path: Path) -> None:
    message = refused(tmp_path, quantised(spec_of()), quantization={**Q4, "lm_head": False})
    assert "lm_head is stored as 4-bit, group size 64, the config's quantization says float" in message


def test_packed_without_a_block(tmp_path: Path) -> None:
    message = refused(tmp_path, quantised(spec_of()))
    assert "says nothing (it has no quantization block)" in message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lm_head.scales": ...}, "missing lm_head.scales"),
        ({"lm_head.biases": ...}, "missing lm_head.biases"),
        ({"lm_head.weight": stored("U32", 96, 9)}, r"lm_head is packed as [96, 9] with scales [96, 1]"),
        ({"lm_head.scales": stored("BF16", 96, 3)}, "no format of 2/3/4/5/6/8 bits and group size 32/64/128"),
        ({"lm_head.biases": stored("BF16", 96, 2)}, "no format of"),
        ({"lm_head.biases": stored("F16", 96, 1)}, "scales are BF16, biases F16"),
        ({"lm_head.scales": stored("U8", 96, 1)}, "scales are U8"),
        ({"lm_head.scales": stored("U8", 96, 4), "lm_head.biases": ...}, "neither mxfp4 nor mxfp8"),
        (
            {"lm_head.weight": stored("F32", 96, 8)},
            "lm_head.weight is F32, a tensor with scales is packed as U32",
        ),
        ({"lm_head.weight": stored("U32", 95, 8)}, "lm_head is packed as [95, 8]"),
    ],
)
def test_broken_triples(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    held = {name: item for name, item in {**quantised(spec_of()), **change}.items() if item is not ...}
    assert message in refused(tmp_path, held, quantization=Q4)


# --- what does not fit ---


def test_missing_extra_and_misshapen_in_one_message(tmp_path: Path) -> None:
    held = tensors()
    del held["model.layers.1.mlp.up_proj.weight"]
    held["model.layers.0.mlp.up_proj.weight"] = stored("BF16", 64, 128)
    held["model.norm.weight"] = stored("I64", 64)
    held["model.layers.0.mlp.router.weight"] = stored("BF16", 8, 64)
    message = refused(tmp_path, held)
    assert "missing model.layers.1.mlp.up_proj.weight" in message
    assert "model.layers.0.mlp.up_proj.weight has shape [64, 128], the config says [128, 64]" in message
    assert "model.norm.weight is I64, supported are F32, F16, BF16" in message
    assert "not part of a llama model: model.layers.0.mlp.router.weight" in message


def test_long_lists_are_counted(tmp_path: Path) -> None:
    held = {name: item for name, item in tensors().items() if "mlp" not in name}
    message = refused(tmp_path, held)
    assert message.count("_proj.weight") == 5
    assert "and 4 more" in message


def test_a_bias_that_the_config_denies(tmp_path: Path) -> None:
    name = "model.layers.0.self_attn.q_proj.bias"
    assert name in refused(tmp_path, tensors() | {name: stored("BF16", 64)})
    held = tensors(attention_bias=True)
    del held[name]
    assert f"missing {name}" in refused(tmp_path, held, attention_bias=True)


def test_rotary_buffers_are_ignored(tmp_path: Path) -> None:
    held = tensors() | {"model.layers.1.self_attn.rotary_emb.inv_freq": stored("F32", 8)}
    assert len(bound(tmp_path, held)) == len(spec_of().tensors)
    held = tensors() | {"model.layers.9.self_attn.rotary_emb.inv_freq": stored("F32", 8)}
    assert "model.layers.9" in refused(tmp_path, held)


# --- tied embeddings ---

TIED = {"tie_word_embeddings": True}


def test_tied_without_a_head(tmp_path: Path) -> None:
    found = bound(tmp_path, tensors(**TIED), **TIED)
    assert "head" not in found


@pytest.mark.parametrize(("fill", "warned"), [(0, False), (1, True)], ids=["equal", "different"])
def test_tied_with_a_head(tmp_path: Path, fill: int, warned: bool, caplog: pytest.LogCaptureFixture) -> None:
    held = tensors(**TIED) | {"lm_head.weight": stored("BF16", 96, 64, fill=fill)}
    with caplog.at_level(logging.WARNING, logger="saragossa"):
        found = bound(tmp_path, held, **TIED)
    assert "head" not in found
    assert ("tie_word_embeddings is true" in caplog.text) == warned


def test_tied_with_a_head_of_another_type(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="saragossa"):
        bound(tmp_path, tensors(**TIED) | {"lm_head.weight": stored("F16", 96, 64)}, **TIED)
    assert "tie_word_embeddings is true" in caplog.text


def test_tied_and_quantised_with_a_head(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    held = quantised(spec_of(**TIED)) | affine("lm_head", (96, 64), 4, 64)
    with caplog.at_level(logging.WARNING, logger="saragossa"):
        bound(tmp_path / "equal", held, quantization=Q4, **TIED)
        assert not caplog.text
        held["lm_head.biases"] = stored("BF16", 96, 1, fill=1)
        bound(tmp_path / "different", held, quantization=Q4, **TIED)
    assert "tie_word_embeddings is true" in caplog.text


def test_untied_with_a_head(tmp_path: Path) -> None:
    assert bound(tmp_path, tensors())["head"].name == "lm_head"


def test_untied_without_a_head_names_tensor_and_key(tmp_path: Path) -> None:
    message = refused(tmp_path, tensors(**TIED))
    assert "missing lm_head.weight (tie_word_embeddings is false" in message
