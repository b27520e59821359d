"""Write an unquantised Hugging Face folder (Llama or Qwen3, tied) as an F16 GGUF file for llama.cpp.

Used by make_models.py only; the product imports GGUF, it does not write it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors import safe_open

LAYER_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
TOP_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
SPLITTER = {"qwen3": "qwen2", "llama": "smollm"}  # llama.cpp's name of the pre-tokenizer


def write_f16(folder: Path, target: Path) -> None:
    """Matrices in F16, vectors in F32, the tokenizer as a byte-level BPE."""
    config = json.loads((folder / "config.json").read_text())
    kind = config["model_type"]
    if kind not in SPLITTER:
        raise ValueError(f"{folder}: found model_type {kind!r}, accepted are {', '.join(SPLITTER)}")
    writer = gguf.GGUFWriter(target, kind)
    _write_config(writer, config)
    _write_tokenizer(writer, folder, config)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 (safe_open is no mapping)
                short = _gguf_name(name)
                array = tensors.get_tensor(name).to(torch.float32).numpy()
                part = short.split(".")[-2]
                if kind == "llama" and part in heads:
                    array = _interleave(array, heads[part])
                writer.add_tensor(short, array if array.ndim == 1 else array.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gguf_name(name: str) -> str:
    module = name.removesuffix(".weight")
    if module in TOP_NAMES:
        return f"{TOP_NAMES[module]}.weight"
    _, _, layer, part = module.split(".", 3)
    return f"blk.{layer}.{LAYER_NAMES[part]}.weight"


def _interleave(weight: Any, heads: int) -> Any:
    """Rows of half-split rotary pairs [heads, 2, half] to llama.cpp's neighbouring pairs [heads, half, 2]."""
    rows, columns = weight.shape
    split = weight.reshape(heads, 2, rows // heads // 2, columns)
    return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(rows, columns)


def _write_config(writer: Any, config: dict[str, Any]) -> None:
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer.add_name("bench")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(float(config["rope_theta"]))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(1)


def _write_tokenizer(writer: Any, folder: Path, config: dict[str, Any]) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    size = config["vocab_size"]
    tokens = [f"[PAD{i}]" for i in range(size)]
    types = [gguf.TokenType.UNUSED] * size
    for token, index in tokenizer["model"]["vocab"].items():
        tokens[index], types[index] = token, gguf.TokenType.NORMAL
    for added in tokenizer["added_tokens"]:
        tokens[added["id"]], types[added["id"]] = added["content"], gguf.TokenType.CONTROL
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(SPLITTER[config["model_type"]])
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_add_bos_token(False)
