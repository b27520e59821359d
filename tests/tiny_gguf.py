"""Tiny GGUF files for tests, written with the gguf package from weights in Hugging Face's form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUFWriter
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType
from gguf.quants import quantize

Kind = GGMLQuantizationType
Weights = dict[str, npt.NDArray[np.float32]]

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS = 256, 512, 2, 4, 2
EXPERTS, EXPERTS_USED, EXPERT_INNER = 3, 2, 256
BYTES = [chr(c) for c in [*range(33, 127), *range(161, 173), *range(174, 256)]]
BYTES += [chr(256 + i) for i in range(256 - len(BYTES))]  # GPT-2's printable stand-ins of all bytes
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w"]
TOKENS = [*BYTES, *(merge.replace(" ", "") for merge in MERGES), *CONTROL]

_LINEARS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_EXPERTS = {
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.switch_mlp.gate_proj",
    "ffn_up_exps": "mlp.switch_mlp.up_proj",
    "ffn_down_exps": "mlp.switch_mlp.down_proj",
}
_NORMS = {
    "llama": {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"},
    "gemma3": {
        "attn_norm": "input_layernorm",
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    },
}
_HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}


def weights_of(arch: str, *, head_dim: int = 64, tied: bool = True, seed: int = 0) -> Weights:
    """Random weights by Hugging Face names; norms of gemma3 as Hugging Face has them (1 + w is used).

    Of qwen3moe the experts by MLX's names, in three dimensions.
    """
    rng = np.random.default_rng(seed)

    def matrix(*shape: int) -> npt.NDArray[np.float32]:
        return (rng.standard_normal(shape) * 0.1).astype(np.float32)

    def vector(size: int) -> npt.NDArray[np.float32]:
        # multiples of 2^-10: adding one and taking it away again loses nothing in float32
        return (np.rint(rng.standard_normal(size) * 200) / 1024).astype(np.float32)

    rows = {"attn_q": HEADS * head_dim, "attn_k": KV_HEADS * head_dim, "attn_v": KV_HEADS * head_dim}
    rows |= {"attn_output": HIDDEN, "ffn_gate": INNER, "ffn_up": INNER, "ffn_down": HIDDEN}
    cols = {"attn_output": HEADS * head_dim, "ffn_down": INNER}
    out = {"model.embed_tokens.weight": matrix(len(TOKENS), HIDDEN), "model.norm.weight": vector(HIDDEN)}
    for i in range(LAYERS):
        prefix = f"model.layers.{i}."
        for short, name in _LINEARS.items():
            if arch == "qwen3moe" and short.startswith("ffn_"):
                continue
            out[f"{prefix}{name}.weight"] = matrix(rows[short], cols.get(short, HIDDEN))
            if arch == "qwen2" and short in ("attn_q", "attn_k", "attn_v"):
                out[f"{prefix}{name}.bias"] = vector(rows[short])
        if arch == "qwen3moe":
            out[f"{prefix}mlp.gate.weight"] = matrix(EXPERTS, HIDDEN)
            for part in ("gate", "up"):
                out[f"{prefix}mlp.switch_mlp.{part}_proj.weight"] = matrix(EXPERTS, EXPERT_INNER, HIDDEN)
            out[f"{prefix}mlp.switch_mlp.down_proj.weight"] = matrix(EXPERTS, HIDDEN, EXPERT_INNER)
        for name in _NORMS.get(arch, _NORMS["llama"]).values():
            out[f"{prefix}{name}.weight"] = vector(HIDDEN)
        if arch in ("qwen3", "qwen3moe", "gemma3"):
            for name in _HEAD_NORMS.values():
                out[f"{prefix}{name}.weight"] = vector(head_dim)
    if not tied:
        out["lm_head.weight"] = matrix(len(TOKENS), HIDDEN)
    return out


def interleave(weight: npt.NDArray[Any], heads: int) -> npt.NDArray[Any]:
    """Rows of q or k as Llama's GGUF files hold them: channels i and i + half become neighbours."""
    halves = weight.reshape(heads, 2, -1, *weight.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(weight.shape)


def to_gguf(arch: str, weights: Mapping[str, npt.NDArray[np.float32]]) -> dict[str, npt.NDArray[np.float32]]:
    """The same weights under GGUF's names and in its conventions."""
    modules = _LINEARS | _EXPERTS | _NORMS.get(arch, _NORMS["llama"]) | _HEAD_NORMS
    short_of = {name: short for short, name in modules.items()}
    top = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}
    out = {}
    for name, value in weights.items():
        module, _, suffix = name.removeprefix("model.").rpartition(".")
        if module.startswith("layers."):
            _, index, inner = module.split(".", 2)
            stem = f"blk.{index}.{short_of[inner]}"
        else:
            stem = top[module]
        if arch == "llama" and stem.endswith(("attn_q", "attn_k")):
            value = interleave(value, HEADS if stem.endswith("q") else KV_HEADS)
        if arch == "gemma3" and stem.endswith("norm"):
            value = value + np.float32(1)
        out[f"{stem}.{suffix}"] = value
    return out


def metadata_of(arch: str, *, head_dim: int = 64) -> dict[str, Any]:
    """Metadata of a model of these sizes; ints become uint32, floats float32."""
    keys: dict[str, Any] = {
        "block_count": LAYERS,
        "context_length": 512,
        "embedding_length": HIDDEN,
        "feed_forward_length": INNER,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 1e5,
    }
    if arch in ("qwen3", "qwen3moe", "gemma3"):
        keys |= {"attention.key_length": head_dim, "attention.value_length": head_dim}
    if arch == "qwen3moe":
        keys |= {"expert_count": EXPERTS, "expert_used_count": EXPERTS_USED}
        keys |= {"expert_feed_forward_length": EXPERT_INNER}
    if arch == "gemma3":
        keys |= {"attention.sliding_window": 128}
    return {f"{arch}.{key}": value for key, value in keys.items()} | tokenizer_metadata()


def tokenizer_metadata() -> dict[str, Any]:
    """A small byte-level BPE with three control tokens at its end."""
    end = len(TOKENS) - len(CONTROL)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": [1] * end + [3] * len(CONTROL),
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": end,
        "tokenizer.ggml.eos_token_id": end + 2,
        "tokenizer.ggml.padding_token_id": end,
        "tokenizer.chat_template": "{{ messages[0].content }}",
    }


def random_blocks(kind: Kind, rows: int, cols: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    """Rows of random blocks of a quantised kind; their f16 factors are of ordinary size."""
    rng = np.random.default_rng(seed)
    block, size = GGML_QUANT_SIZES[kind]
    raw = rng.integers(0, 256, (rows * cols // block, size), dtype=np.uint8)
    for at in FACTORS[kind]:
        factor = rng.uniform(0.001, 0.01, len(raw)) * rng.choice([-1, 1], len(raw))
        raw[:, at : at + 2] = factor.astype("<f2")[:, None].view(np.uint8)
    return raw.reshape(rows, -1)


# Where each block type keeps its f16 factors (ggml-common.h).
FACTORS: dict[Kind, tuple[int, ...]] = {
    Kind.Q4_0: (0,),
    Kind.Q4_1: (0, 2),
    Kind.Q5_0: (0,),
    Kind.Q5_1: (0, 2),
    Kind.Q8_0: (0,),
    Kind.Q2_K: (80, 82),
    Kind.Q3_K: (108,),
    Kind.Q4_K: (0, 2),
    Kind.Q5_K: (0, 2),
    Kind.Q6_K: (208,),
}
_SAME = (Kind.F32, Kind.F16)


def write_gguf(
    path: Path,
    arch: str,
    weights: Mapping[str, npt.NDArray[np.float32]],
    *,
    kind: Kind = Kind.F32,
    kinds: Mapping[str, Kind] | None = None,
    changes: Mapping[str, Any] | None = None,
    extra: Mapping[str, npt.NDArray[Any]] | None = None,
    head_dim: int = 64,
) -> dict[str, npt.NDArray[Any]]:
    """Writes the file; returns what each GGUF tensor holds (quantised ones as stored rows).

    kind: of all matrices; kinds: of single ones by GGUF name; changes: of the metadata, None removes a
    key; extra: further float32 tensors, or others in place of the usual ones.
    """
    metadata = metadata_of(arch, head_dim=head_dim) | dict(changes or {})
    writer = GGUFWriter(path, arch)
    for key, value in metadata.items():
        if value is not None:
            add_value(writer, key, value)
    stored: dict[str, npt.NDArray[Any]] = {}
    for name, value in {**to_gguf(arch, weights), **dict(extra or {})}.items():
        this = (kinds or {}).get(name, kind if value.ndim >= 2 else Kind.F32)
        stored[name] = _encode(value, this)
        writer.add_tensor(name, stored[name], raw_dtype=None if this in _SAME else this)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return stored


def add_value(writer: GGUFWriter, key: str, value: Any) -> None:
    """Adds a metadata value in the type that real files have."""
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif value and isinstance(value[0], int):
        writer.add_key_value(key, value, GGUFValueType.ARRAY, sub_type=GGUFValueType.INT32)
    else:
        writer.add_array(key, value)


def _encode(value: npt.NDArray[np.float32], kind: Kind) -> npt.NDArray[Any]:
    if kind == Kind.F32:
        return value
    if kind == Kind.F16:
        return value.astype(np.float16)
    if kind in FACTORS and kind.name.endswith("_K"):  # the package has no quantiser for these
        *outer, cols = value.shape
        return random_blocks(kind, math.prod(outer), cols, seed=len(value)).reshape(*outer, -1)
    encoded: npt.NDArray[Any] = quantize(value, kind)
    return encoded
