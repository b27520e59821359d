"""Import of whole GGUF files: weights back in Hugging Face's form, config that our models accept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf.quants import dequantize as reference

from saragossa.errors import ConvertError
from saragossa.weights.bind import BoundTensor, bind
from saragossa.weights.checkpoint import load_spec
from saragossa.weights.convert import convert
from saragossa.weights.convert.floats import to_float32
from saragossa.weights.convert.gguf_config import model_config
from saragossa.weights.convert.gguf_reader import GgufFile
from saragossa.weights.convert.gguf_rope import llama3_scaling
from saragossa.weights.safetensors import SafetensorsIndex
from tiny_gguf import HEADS, HIDDEN, KV_HEADS, Kind, to_gguf, weights_of, write_gguf

ARCHS = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3": "gemma3_text"}
EXACT = [Kind.F32, Kind.F16, Kind.BF16, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0]


def load(folder: Path) -> dict[str, BoundTensor]:
    """The folder as the engine binds it: a wrong config, name or shape raises here."""
    index = SafetensorsIndex.open(folder)
    return {tensor.name: tensor for tensor in bind(load_spec(folder, index), index)}


def read(tensor: BoundTensor) -> np.ndarray:
    """Values of a bound tensor in float32, dequantised by the definition of the layout."""
    parts = []
    for part in tensor.parts:
        raw = np.fromfile(part.file, np.uint8, part.nbytes, offset=part.offset)
        parts.append(raw.view({"F32": "<f4", "F16": "<f2", "BF16": "<u2", "U32": "<u4"}[part.dtype]))
    if tensor.kind == "dense":
        return to_float32(parts[0], tensor.dtype).reshape(tensor.shape)
    rows, cols = tensor.shape
    stream = np.unpackbits(parts[0].view(np.uint8).reshape(rows, -1), axis=1, bitorder="little")
    codes = (stream.reshape(rows, cols, tensor.bits) << np.arange(tensor.bits, dtype=np.uint8)).sum(2)
    scales, biases = (to_float32(p, tensor.dtype).reshape(rows, -1, 1) for p in parts[1:])
    groups = codes.reshape(rows, -1, tensor.group_size).astype(np.float32)
    return (groups * scales + biases).reshape(rows, cols)


def deinterleave(weight: np.ndarray, heads: int) -> np.ndarray:
    return weight.reshape(heads, -1, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def config_of(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return result


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("tied", [True, False])
def test_float_files_come_back_as_they_were(tmp_path: Path, arch: str, tied: bool) -> None:
    weights = weights_of(arch, tied=tied)
    write_gguf(tmp_path / "in.gguf", arch, weights)
    report = convert(tmp_path / "in.gguf", tmp_path / "out", progress=False)
    bound = load(tmp_path / "out")
    assert report.model_type == config_of(tmp_path / "out")["model_type"] == ARCHS[arch]
    assert config_of(tmp_path / "out")["tie_word_embeddings"] is tied
    found = {name + ".weight" if len(t.shape) == 2 else name: read(t) for name, t in bound.items()}
    assert set(found) == set(weights)
    for name, value in weights.items():
        assert np.array_equal(found[name], value), name


@pytest.mark.parametrize("kind", EXACT)
def test_lossless_kinds_keep_every_value(tmp_path: Path, kind: Kind) -> None:
    """Llama's q and k rows are permuted while packed: the result must still be the file's own values."""
    weights = weights_of("llama")
    stored = write_gguf(tmp_path / "in.gguf", "llama", weights, kind=kind)
    convert(tmp_path / "in.gguf", tmp_path / "out", progress=False)
    bound = load(tmp_path / "out")
    names = dict(zip(to_gguf("llama", weights), weights, strict=True))
    bits = {Kind.Q4_0: 4, Kind.Q4_1: 4, Kind.Q5_0: 6, Kind.Q5_1: 6, Kind.Q8_0: 8}.get(kind, 0)
    for gguf_name, name in names.items():
        if not gguf_name.endswith(".weight") or stored[gguf_name].ndim == 1:
            continue
        expected = reference(stored[gguf_name], kind)
        for part, heads in (("attn_q", HEADS), ("attn_k", KV_HEADS)):
            if part in gguf_name:
                expected = deinterleave(expected, heads)
        tensor = bound[name.removesuffix(".weight")]
        assert tensor.bits == bits
        assert np.array_equal(read(tensor), expected), name


def test_mixed_kinds_are_named_in_the_config(tmp_path: Path) -> None:
    kinds = {
        "token_embd.weight": Kind.Q8_0,
        "blk.0.attn_v.weight": Kind.Q5_0,
        "blk.1.ffn_down.weight": Kind.F16,
        "blk.1.attn_k.weight": Kind.Q6_K,
    }
    weights = weights_of("qwen3", tied=True)
    write_gguf(tmp_path / "in.gguf", "qwen3", weights, kind=Kind.Q4_0, kinds=kinds)
    convert(tmp_path / "in.gguf", tmp_path / "out", progress=False)
    config = config_of(tmp_path / "out")
    eight = {"group_size": 32, "bits": 8, "mode": "affine"}
    assert (
        config["quantization"]
        == config["quantization_config"]
        == {
            "group_size": 32,
            "bits": 4,
            "mode": "affine",
            "model.embed_tokens": eight,
            "model.layers.0.self_attn.v_proj": {**eight, "bits": 6},
            "model.layers.1.mlp.down_proj": False,
            "model.layers.1.self_attn.k_proj": eight,
        }
    )
    bound = load(tmp_path / "out")
    assert bound["model.layers.1.mlp.down_proj"].dtype == "F16"
    assert bound["model.layers.0.mlp.down_proj"].bits == 4


@pytest.mark.parametrize(
    ("kind", "bits", "limit"),
    [
        (Kind.Q4_K, 4, 1e-3),
        (Kind.Q5_K, 6, 1e-3),
        (Kind.Q6_K, 8, 5e-3),
        (Kind.Q3_K, 8, 5e-3),
        (Kind.Q2_K, 8, 5e-3),
    ],
)
def test_k_quants_are_close(tmp_path: Path, kind: Kind, bits: int, limit: float) -> None:
    """Relative error of the root mean square: f16 scales of Q4_K and Q5_K, 8 bits anew for the others."""
    weights = weights_of("gemma3")
    stored = write_gguf(tmp_path / "in.gguf", "gemma3", weights, kind=kind)
    convert(tmp_path / "in.gguf", tmp_path / "out", progress=False)
    tensor = load(tmp_path / "out")["model.layers.1.mlp.down_proj"]
    expected = reference(stored["blk.1.ffn_down.weight"], kind)
    error = np.sqrt(((read(tensor) - expected) ** 2).mean() / (expected**2).mean())
    assert (tensor.kind, tensor.bits, tensor.group_size, tensor.dtype) == ("affine", bits, 32, "F16")
    assert 0 < error < limit


def test_scales_beyond_f16_are_f32(tmp_path: Path) -> None:
    weights = weights_of("qwen3")
    weights["model.layers.0.mlp.up_proj.weight"] *= np.float32(1e6)
    stored = write_gguf(tmp_path / "in.gguf", "qwen3", weights, kind=Kind.Q8_0)
    convert(tmp_path / "in.gguf", tmp_path / "out", progress=False)
    bound = load(tmp_path / "out")
    tensor = bound["model.layers.0.mlp.up_proj"]
    assert tensor.dtype == "F32"
    assert bound["model.layers.1.mlp.up_proj"].dtype == "F16"
    assert np.array_equal(read(tensor), reference(stored["blk.0.ffn_up.weight"], Kind.Q8_0))


def test_bits_equal_the_two_steps(tmp_path: Path) -> None:
    write_gguf(tmp_path / "in.gguf", "llama", weights_of("llama"), kind=Kind.Q5_1)
    convert(tmp_path / "in.gguf", tmp_path / "bf16", dtype="bf16", progress=False)
    convert(tmp_path / "bf16", tmp_path / "two", bits=6, group_size=128, progress=False)
    convert(tmp_path / "in.gguf", tmp_path / "one", bits=6, group_size=128, progress=False)
    one, two = load(tmp_path / "one"), load(tmp_path / "two")
    for name, tensor in one.items():
        assert (tensor.kind, tensor.bits, tensor.group_size) == (
            two[name].kind,
            two[name].bits,
            two[name].group_size,
        )
        assert tensor.dtype == two[name].dtype == "BF16"
        assert np.array_equal(read(tensor), read(two[name]))
    assert config_of(tmp_path / "one") == config_of(tmp_path / "two")


@pytest.mark.parametrize(("dtype", "code"), [("bfloat16", "BF16"), ("f16", "F16"), ("float32", "F32")])
def test_dtype_dequantises(tmp_path: Path, dtype: str, code: str) -> None:
    write_gguf(tmp_path / "in.gguf", "gemma3", weights_of("gemma3"), kind=Kind.Q4_1)
    convert(tmp_path / "in.gguf", tmp_path / "out", dtype=dtype, progress=False)
    assert {tensor.dtype for tensor in load(tmp_path / "out").values()} == {code}
    assert "quantization" not in config_of(tmp_path / "out")


def test_head_dim_of_its_own(tmp_path: Path) -> None:
    weights = weights_of("qwen3", head_dim=96)
    write_gguf(tmp_path / "in.gguf", "qwen3", weights, head_dim=96)
    convert(tmp_path / "in.gguf", tmp_path / "out", progress=False)
    assert load(tmp_path / "out")["model.layers.0.self_attn.q_proj"].shape == (4 * 96, HIDDEN)


def test_config_has_the_file_s_numbers(tmp_path: Path) -> None:
    changes = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0, "llama.vocab_size": 264}
    write_gguf(tmp_path / "in.gguf", "llama", weights_of("llama"), changes=changes)
    convert(tmp_path / "in.gguf", tmp_path / "out", progress=False)
    config = config_of(tmp_path / "out")
    assert config["rms_norm_eps"] == 1e-5
    assert config["rope_theta"] == 1e5
    assert config["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}
    assert config["max_position_embeddings"] == 512


def test_yarn_and_window_and_sampling(tmp_path: Path) -> None:
    changes = {
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.factor": 2.0,
        "llama.rope.scaling.original_context_length": 256,
        "llama.attention.sliding_window": 64,
        "general.sampling.temp": 0.7,
        "general.sampling.top_k": 20,
    }
    write_gguf(tmp_path / "in.gguf", "llama", weights_of("llama"), changes=changes)
    convert(tmp_path / "in.gguf", tmp_path / "out", progress=False)
    spec = load_spec(tmp_path / "out")
    assert spec.model_type == "mistral"
    assert spec.decoder.layers[0].attention.window == 64
    assert config_of(tmp_path / "out")["rope_scaling"]["original_max_position_embeddings"] == 256
    generation = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert (generation["temperature"], generation["top_k"], generation["do_sample"]) == (0.7, 20, True)


def test_gemma3_layers(tmp_path: Path) -> None:
    write_gguf(
        tmp_path / "in.gguf",
        "gemma3",
        weights_of("gemma3"),
        changes={"gemma3.rope.scaling.type": "linear", "gemma3.rope.scaling.factor": 8.0},
    )
    convert(tmp_path / "in.gguf", tmp_path / "out", progress=False)
    spec = load_spec(tmp_path / "out")
    assert [layer.attention.window for layer in spec.decoder.layers] == [128, 128]
    assert spec.decoder.layers[0].attention.scale == 64**-0.5
    config = config_of(tmp_path / "out")
    assert (config["rope_theta"], config["rope_local_base_freq"]) == (1e5, 1e4)
    assert config["rope_scaling"] == {"rope_type": "linear", "factor": 8.0}


@pytest.mark.parametrize(("layers", "scalar"), [(62, 256 // 4), (48, 96)])
def test_gemma3_27b_alone_scales_attention_by_hidden_over_heads(
    tmp_path: Path, layers: int, scalar: int
) -> None:
    """The file does not say it; 62 layers tell the size, as in llama.cpp."""
    weights = weights_of("gemma3", head_dim=96)
    write_gguf(tmp_path / "in.gguf", "gemma3", weights, head_dim=96, changes={"gemma3.block_count": layers})
    config = model_config(GgufFile(tmp_path / "in.gguf"), "bfloat16", None)
    assert config["query_pre_attn_scalar"] == scalar
    assert config["layer_types"].count("full_attention") == layers // 6


@pytest.mark.parametrize(
    ("arch", "changes", "message"),
    [
        (
            "llama",
            {"general.architecture": "rwkv"},
            "architecture 'rwkv' is not supported; supported are llama,",
        ),
        ("llama", {"general.type": "adapter"}, "holds 'adapter', not a model"),
        ("llama", {"llama.block_count": None}, "lacks the metadata key llama.block_count"),
        ("llama", {"llama.block_count": "2"}, "llama.block_count is '2'; a whole number is supported"),
        ("llama", {"llama.block_count": 5000}, "llama.block_count is 5000; 1 to 4096 is supported"),
        ("llama", {"llama.block_count": 3}, "lacks the tensor blk.2.attn_norm.weight"),
        ("llama", {"llama.block_count": 1}, "the tensor blk.1.attn_k.weight belongs to no supported model"),
        ("llama", {"llama.expert_count": 8}, "llama.expert_count is 8; a dense model"),
        ("llama", {"llama.novelty": 1}, "metadata key llama.novelty is not supported"),
        ("llama", {"llama.rope.dimension_count": 32}, "rope.dimension_count is 32; the head's size, 64,"),
        ("llama", {"llama.attention.value_length": 32}, "attention.value_length is 32; the key length, 64,"),
        ("llama", {"llama.rope.scaling.type": "longrope"}, "rope.scaling.type is 'longrope'; none, linear"),
        ("llama", {"llama.rope.freq_base": float("nan")}, "rope.freq_base is nan; a number"),
        (
            "llama",
            {"llama.feed_forward_length": 500},
            r"has the shape \[512, 256\], its metadata asks for \[500",
        ),
        ("llama", {"llama.attention.head_count_kv": 3}, "head_count_kv is 3; a divisor of head_count 4"),
        ("qwen2", {"qwen2.attention.key_length": 32}, "qwen2.attention.key_length is 32; the hidden size by"),
        (
            "llama",
            {"tokenizer.ggml.model": "rwkv"},
            "the tokenizer 'rwkv' is not supported; gpt2 and llama are",
        ),
    ],
)
def test_refusals(tmp_path: Path, arch: str, changes: dict[str, Any], message: str) -> None:
    write_gguf(tmp_path / "in.gguf", arch, weights_of(arch), changes=changes)
    with pytest.raises(ConvertError, match=message) as caught:
        convert(tmp_path / "in.gguf", tmp_path / "out", progress=False)
    assert "in.gguf" in caught.value.message
    assert [path.name for path in tmp_path.iterdir()] == ["in.gguf"]


def test_unsupported_types_name_the_tensor(tmp_path: Path) -> None:
    weights = weights_of("llama")
    write_gguf(tmp_path / "in.gguf", "llama", weights, kinds={"blk.1.attn_v.weight": Kind.TQ1_0})
    with pytest.raises(
        ConvertError, match=r"tensor blk.1.attn_v.weight has the type TQ1_0; supported are F32"
    ):
        convert(tmp_path / "in.gguf", tmp_path / "out", progress=False)


def test_damaged_scales_name_the_tensor(tmp_path: Path) -> None:
    stored = write_gguf(tmp_path / "in.gguf", "llama", weights_of("llama"), kind=Kind.Q4_0)
    raw = (tmp_path / "in.gguf").read_bytes()
    block = stored["blk.1.ffn_up.weight"].tobytes()
    assert raw.count(block) == 1
    (tmp_path / "in.gguf").write_bytes(raw.replace(block, b"\x00\x7c" + block[2:]))
    with pytest.raises(ConvertError, match=r"tensor blk.1.ffn_up.weight has a scale that is not finite"):
        convert(tmp_path / "in.gguf", tmp_path / "out", progress=False)


def factors(factor: float, high: float, original: int, theta: float, head_dim: int) -> np.ndarray:
    """Llama 3's factors as converters write them (formula of the Llama 3.1 release)."""
    out = []
    for i in range(0, head_dim, 2):
        wavelength = 2 * np.pi * theta ** (i / head_dim)
        if wavelength < original / high:
            out.append(1.0)
        elif wavelength > original:
            out.append(factor)
        else:
            smooth = (original / wavelength - 1) / (high - 1)
            out.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(out, np.float32)


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize(
    ("factor", "high", "original"), [(8.0, 4.0, 8192), (32.0, 4.0, 8192), (8.0, 4.0, 4096), (16.0, 8.0, 2048)]
)
def test_llama3_rope_is_recovered(factor: float, high: float, original: int, head_dim: int) -> None:
    found = llama3_scaling(factors(factor, high, original, 5e5, head_dim), 5e5, head_dim, "x")
    assert found == {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": pytest.approx(high, rel=1e-4),
        "original_max_position_embeddings": original,
    }


def test_llama3_rope_in_a_file(tmp_path: Path) -> None:
    extra = {"rope_freqs.weight": factors(32.0, 4.0, 8192, 5e5, 64)}
    changes = {"llama.rope.freq_base": 5e5}
    write_gguf(tmp_path / "in.gguf", "llama", weights_of("llama"), extra=extra, changes=changes)
    convert(tmp_path / "in.gguf", tmp_path / "out", progress=False)
    scaling = config_of(tmp_path / "out")["rope_scaling"]
    assert (scaling["rope_type"], scaling["factor"]) == ("llama3", 32.0)
    plain = 5e5 ** (-np.arange(0, 64, 2) / 64)
    expected = plain / extra["rope_freqs.weight"]
    assert np.allclose(load_spec(tmp_path / "out").decoder.ropes[0].inv_freq, expected, rtol=1e-5)


def test_other_rope_factors_are_refused(tmp_path: Path) -> None:
    ones = np.ones(32, np.float32)
    assert llama3_scaling(ones, 5e5, 64, "x") is None
    for bad in (np.linspace(1, 8, 32, dtype=np.float32), ones[:5], ones * np.float32("nan"), ones * 0.5):
        with pytest.raises(ConvertError, match=r"rope_freqs\.weight"):
            llama3_scaling(bad, 5e5, 64, "x")
