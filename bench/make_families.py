"""Make the checkpoints that families.py measures: parts of large models at their shapes, random weights.

    peers/bin/python bench/make_families.py a3b-slice models/a3b-slice
    peers/bin/python bench/make_families.py delta-stack models/delta-stack

    a3b-slice    four layers of Qwen3.6-35B-A3B (three gated delta nets, one attention; 256 experts of which a
                 token takes 8, and the shared one), with a small vocabulary: layers are what is measured
    delta-stack  eight layers of the same with dense MLPs (six gated delta nets, two attentions), for prefill

The environment is that of make_models.py. Both leave bf16/ (transformers), mlx4/ (4 bits, groups of 64) and
q4_0.gguf with weights of the same sizes; what the weights say does not change the work.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers

VOCAB = 8192
SHAPE: dict[str, Any] = {  # Qwen3.6-35B-A3B
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "max_position_embeddings": 262144,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCAB,
    "tie_word_embeddings": False,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10_000_000.0,
        "partial_rotary_factor": 0.25,
        "mrope_section": [11, 11, 10],
        "mrope_interleaved": True,
    },
}
EXPERTS: dict[str, Any] = {
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
}
DELTA, ATTENTION = "linear_attention", "full_attention"
PERIOD = [DELTA, DELTA, DELTA, ATTENTION]
MODELS = {
    "a3b-slice": ("Qwen3_5MoeForCausalLM", "Qwen3_5MoeTextConfig", PERIOD, EXPERTS),
    "delta-stack": ("Qwen3_5ForCausalLM", "Qwen3_5TextConfig", PERIOD * 2, {"intermediate_size": 6144}),
}


def make_bf16(name: str, folder: Path) -> Any:
    """transformers' own random initialisation, and weights of the norms that leave values of size one."""
    model_name, config_name, layers, more = MODELS[name]
    config = getattr(transformers, config_name)(
        **SHAPE, **more, layer_types=layers, num_hidden_layers=len(layers)
    )
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    model = getattr(transformers, model_name)(config)
    model.save_pretrained(folder, max_shard_size="20GB")
    _tokenizer(folder)
    return config


def _tokenizer(folder: Path) -> None:
    """A byte-level vocabulary of the right size."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: i for i, letter in enumerate(letters)}
    vocab |= {f"unused{i}": i for i in range(len(letters), VOCAB - 1)} | {"<|im_end|>": VOCAB - 1}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>")
    fast.save_pretrained(folder)


def make_mlx4(config: Any, source: Path, target: Path) -> None:
    """Random codes in MLX's layout, as mlx-lm names and shapes the tensors of this architecture."""
    from safetensors.torch import save_file

    target.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    tensors: dict[str, Any] = {}
    overrides: dict[str, Any] = {}
    outer = "language_model."

    def matrix(name: str, *shape: int, bits: int = 4, group: int = 64) -> None:
        words = random.integers(0, 1 << 32, (*shape[:-1], shape[-1] * bits // 32), dtype=np.uint32)
        size = 0.02 * (2 if bits == 4 else 0.125)
        scales = torch.full((*shape[:-1], shape[-1] // group), size / 8, dtype=torch.bfloat16)
        module = f"{outer}{name}"
        tensors[f"{module}.weight"] = torch.from_numpy(words.view(np.int32)).view(torch.uint32)
        tensors[f"{module}.scales"] = scales
        tensors[f"{module}.biases"] = scales * -(2 ** (bits - 1) - 0.5)
        if bits != 4:
            overrides[module] = {"group_size": group, "bits": bits}

    def vector(name: str, *shape: int, value: float = 1.0) -> None:
        tensors[f"{outer}{name}"] = torch.full(shape, value, dtype=torch.bfloat16)

    for part in layers_of(config):
        part.write(matrix, vector)
    hidden = config.hidden_size
    matrix("model.embed_tokens", VOCAB, hidden)
    matrix("lm_head", VOCAB, hidden)
    vector("model.norm.weight", hidden)
    save_file(tensors, target / "model.safetensors", metadata={"format": "mlx"})
    for file in source.iterdir():
        if file.suffix == ".json" and "safetensors" not in file.name:
            shutil.copy(file, target / file.name)
    said = json.loads((source / "config.json").read_text())
    block = {"group_size": 64, "bits": 4, "mode": "affine", **overrides}
    said |= {"quantization": block, "quantization_config": block}
    (target / "config.json").write_text(json.dumps(said, indent=1))


@dataclass(frozen=True)
class Layer:
    """One decoder layer under mlx-lm's names."""

    config: Any
    index: int

    def write(self, matrix: Callable[..., None], vector: Callable[..., None]) -> None:
        c, at, hidden = self.config, f"model.layers.{self.index}.", self.config.hidden_size
        vector(f"{at}input_layernorm.weight", hidden)
        vector(f"{at}post_attention_layernorm.weight", hidden)
        if c.layer_types[self.index] == ATTENTION:
            q, kv = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
            matrix(f"{at}self_attn.q_proj", 2 * q, hidden)
            matrix(f"{at}self_attn.k_proj", kv, hidden)
            matrix(f"{at}self_attn.v_proj", kv, hidden)
            matrix(f"{at}self_attn.o_proj", hidden, q)
            vector(f"{at}self_attn.q_norm.weight", c.head_dim)
            vector(f"{at}self_attn.k_norm.weight", c.head_dim)
        else:
            heads, inner = c.linear_num_value_heads, c.linear_num_value_heads * c.linear_value_head_dim
            channels = 2 * c.linear_num_key_heads * c.linear_key_head_dim + inner
            matrix(f"{at}linear_attn.in_proj_qkv", channels, hidden)
            matrix(f"{at}linear_attn.in_proj_z", inner, hidden)
            matrix(f"{at}linear_attn.in_proj_b", heads, hidden)
            matrix(f"{at}linear_attn.in_proj_a", heads, hidden)
            matrix(f"{at}linear_attn.out_proj", hidden, inner)
            vector(f"{at}linear_attn.conv1d.weight", channels, c.linear_conv_kernel_dim, 1, value=0.25)
            vector(f"{at}linear_attn.A_log", heads, value=0.0)
            vector(f"{at}linear_attn.dt_bias", heads)
            vector(f"{at}linear_attn.norm.weight", c.linear_value_head_dim)
        if not hasattr(c, "num_experts"):
            matrix(f"{at}mlp.gate_proj", c.intermediate_size, hidden)
            matrix(f"{at}mlp.up_proj", c.intermediate_size, hidden)
            matrix(f"{at}mlp.down_proj", hidden, c.intermediate_size)
            return
        count, each, shared = c.num_experts, c.moe_intermediate_size, c.shared_expert_intermediate_size
        matrix(f"{at}mlp.gate", count, hidden, bits=8)
        matrix(f"{at}mlp.shared_expert_gate", 1, hidden, bits=8)
        matrix(f"{at}mlp.switch_mlp.gate_proj", count, each, hidden)
        matrix(f"{at}mlp.switch_mlp.up_proj", count, each, hidden)
        matrix(f"{at}mlp.switch_mlp.down_proj", count, hidden, each)
        matrix(f"{at}mlp.shared_expert.gate_proj", shared, hidden)
        matrix(f"{at}mlp.shared_expert.up_proj", shared, hidden)
        matrix(f"{at}mlp.shared_expert.down_proj", hidden, shared)


def layers_of(config: Any) -> list[Layer]:
    return [Layer(config, i) for i in range(len(config.layer_types))]


def make_gguf(config: Any, target: Path) -> None:
    """Random Q4_0 blocks under llama.cpp's names of this architecture."""
    moe = hasattr(config, "num_experts")
    writer = gguf.GGUFWriter(target, "qwen35moe" if moe else "qwen35")
    _write_facts(writer, config, moe)
    random = np.random.default_rng(0)
    hidden, inner = config.hidden_size, config.linear_num_value_heads * config.linear_value_head_dim
    channels = 2 * config.linear_num_key_heads * config.linear_key_head_dim + inner
    q, kv = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim

    def matrix(name: str, *shape: int) -> None:
        blocks = random.integers(0, 256, (int(np.prod(shape)) // 32, 18), dtype=np.uint8)
        blocks[:, :2] = np.frombuffer(np.float16(0.003).tobytes(), np.uint8)
        data = blocks.reshape(*shape[:-1], shape[-1] // 32 * 18)
        writer.add_tensor(f"{name}.weight", data, raw_dtype=gguf.GGMLQuantizationType.Q4_0)

    def vector(name: str, *shape: int, value: float = 1.0) -> None:
        writer.add_tensor(name, np.full(shape, value, np.float32))

    matrix("token_embd", VOCAB, hidden)
    matrix("output", VOCAB, hidden)
    vector("output_norm.weight", hidden)
    for i, kind in enumerate(config.layer_types):
        at = f"blk.{i}."
        vector(f"{at}attn_norm.weight", hidden)
        vector(f"{at}post_attention_norm.weight", hidden)
        if kind == ATTENTION:
            matrix(f"{at}attn_q", 2 * q, hidden)
            matrix(f"{at}attn_k", kv, hidden)
            matrix(f"{at}attn_v", kv, hidden)
            matrix(f"{at}attn_output", hidden, q)
            vector(f"{at}attn_q_norm.weight", config.head_dim)
            vector(f"{at}attn_k_norm.weight", config.head_dim)
        else:
            heads = config.linear_num_value_heads
            matrix(f"{at}attn_qkv", channels, hidden)
            matrix(f"{at}attn_gate", inner, hidden)
            matrix(f"{at}ssm_beta", heads, hidden)
            matrix(f"{at}ssm_alpha", heads, hidden)
            matrix(f"{at}ssm_out", hidden, inner)
            vector(f"{at}ssm_conv1d.weight", channels, config.linear_conv_kernel_dim, value=0.25)
            vector(f"{at}ssm_dt.bias", heads)
            vector(f"{at}ssm_a", heads, value=-1.0)
            vector(f"{at}ssm_norm.weight", config.linear_value_head_dim)
        if not moe:
            matrix(f"{at}ffn_gate", config.intermediate_size, hidden)
            matrix(f"{at}ffn_up", config.intermediate_size, hidden)
            matrix(f"{at}ffn_down", hidden, config.intermediate_size)
            continue
        count, each, shared = (
            config.num_experts,
            config.moe_intermediate_size,
            config.shared_expert_intermediate_size,
        )
        router = (random.standard_normal((count, hidden)) / hidden**0.5).astype(np.float32)
        writer.add_tensor(f"{at}ffn_gate_inp.weight", router)
        vector(f"{at}ffn_gate_inp_shexp.weight", hidden, value=0.01)
        matrix(f"{at}ffn_gate_exps", count, each, hidden)
        matrix(f"{at}ffn_up_exps", count, each, hidden)
        matrix(f"{at}ffn_down_exps", count, hidden, each)
        matrix(f"{at}ffn_gate_shexp", shared, hidden)
        matrix(f"{at}ffn_up_shexp", shared, hidden)
        matrix(f"{at}ffn_down_shexp", hidden, shared)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_facts(writer: Any, config: Any, moe: bool) -> None:
    arch = writer.arch
    writer.add_name("bench")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(len(config.layer_types))
    writer.add_feed_forward_length(getattr(config, "intermediate_size", None) or 512)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim // 4)
    writer.add_rope_dimension_sections([11, 11, 10, 0])
    writer.add_rope_freq_base(1e7)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_uint32(f"{arch}.ssm.conv_kernel", config.linear_conv_kernel_dim)
    writer.add_uint32(f"{arch}.ssm.state_size", config.linear_key_head_dim)
    writer.add_uint32(f"{arch}.ssm.group_count", config.linear_num_key_heads)
    writer.add_uint32(f"{arch}.ssm.time_step_rank", config.linear_num_value_heads)
    writer.add_uint32(f"{arch}.ssm.inner_size", config.linear_num_value_heads * config.linear_value_head_dim)
    writer.add_uint32(f"{arch}.full_attention_interval", 4)
    if moe:
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    writer.add_vocab_size(VOCAB)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([f"t{i}" for i in range(VOCAB)])
    writer.add_token_types([gguf.TokenType.NORMAL] * VOCAB)
    writer.add_token_merges(["t 0"])
    writer.add_eos_token_id(VOCAB - 1)
    writer.add_bos_token_id(VOCAB - 1)
    writer.add_add_bos_token(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("target", type=Path)
    args = parser.parse_args()
    args.target.mkdir(parents=True, exist_ok=True)
    config = make_bf16(args.model, args.target / "bf16")
    make_mlx4(config, args.target / "bf16", args.target / "mlx4")
    make_gguf(config, args.target / "q4_0.gguf")


if __name__ == "__main__":
    main()
