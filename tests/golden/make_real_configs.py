"""Make real_configs.json: shapes and parameter counts of published models, from transformers on meta devices.

The configs are those of the Hub's repositories, without most of what inference does not need. No weight is
made or read. Run with transformers and torch at hand (they are no dependency of the tests):

    python tests/golden/make_real_configs.py
"""

import json
import math
import re
from pathlib import Path
from typing import Any

import torch
import transformers

OUT = Path(__file__).parent / "real_configs.json"
SLIDING, FULL, LINEAR = "sliding_attention", "full_attention", "linear_attention"

QWEN3_30B: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "attention_bias": False,
    "decoder_sparse_step": 1,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "max_position_embeddings": 40960,
    "max_window_layers": 48,
    "mlp_only_layers": [],
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "output_router_logits": False,
    "rms_norm_eps": 1e-6,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
    "router_aux_loss_coef": 0.001,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
LINEAR_KEYS: dict[str, Any] = {
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_value_head_dim": 128,
}
QWEN3_NEXT: dict[str, Any] = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "attention_bias": False,
    "decoder_sparse_step": 1,
    "head_dim": 256,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 5120,
    **LINEAR_KEYS,
    "linear_num_value_heads": 32,
    "max_position_embeddings": 262144,
    "mlp_only_layers": [],
    "moe_intermediate_size": 512,
    "norm_topk_prob": True,
    "num_attention_heads": 16,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "num_hidden_layers": 48,
    "num_key_value_heads": 2,
    "output_router_logits": False,
    "partial_rotary_factor": 0.25,
    "rms_norm_eps": 1e-6,
    "rope_scaling": None,
    "rope_theta": 10000000,
    "router_aux_loss_coef": 0.001,
    "shared_expert_intermediate_size": 512,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
QWEN35_KEYS: dict[str, Any] = {
    "attention_bias": False,
    "attn_output_gate": True,
    "dtype": "bfloat16",
    "head_dim": 256,
    "hidden_act": "silu",
    **LINEAR_KEYS,
    "mamba_ssm_dtype": "float32",
    "max_position_embeddings": 262144,
    "mtp_num_hidden_layers": 1,
    "mtp_use_dedicated_embeddings": False,
    "partial_rotary_factor": 0.25,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {
        "mrope_interleaved": True,
        "mrope_section": [11, 11, 10],
        "partial_rotary_factor": 0.25,
        "rope_theta": 10000000,
        "rope_type": "default",
    },
    "tie_word_embeddings": False,
    "use_cache": True,
    "vocab_size": 248320,
}


def qwen35(model_type: str, text: dict[str, Any]) -> dict[str, Any]:
    kinds = ([LINEAR] * 3 + [FULL]) * (text["num_hidden_layers"] // 4)
    return {
        "architectures": [f"Qwen3_5{'Moe' if 'moe' in model_type else ''}ForConditionalGeneration"],
        "model_type": model_type,
        "image_token_id": 248056,
        "language_model_only": False,
        "text_config": {**QWEN35_KEYS, **text, "layer_types": kinds, "model_type": f"{model_type}_text"},
        "tie_word_embeddings": False,
        "video_token_id": 248057,
        "vision_config": {"model_type": f"{model_type}_vision", "out_hidden_size": text["hidden_size"]},
        "vision_end_token_id": 248054,
        "vision_start_token_id": 248053,
    }


def gemma4(text: dict[str, Any], pattern: int, model_type: str = "gemma4") -> dict[str, Any]:
    """pattern: every so many layers one is full."""
    kinds = ([SLIDING] * (pattern - 1) + [FULL]) * (text["num_hidden_layers"] // pattern)
    common = {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "dtype": "bfloat16",
        "enable_moe_block": False,
        "final_logit_softcapping": 30.0,
        "global_head_dim": 512,
        "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size_per_layer_input": 0,
        "layer_types": kinds,
        "max_position_embeddings": 262144,
        "model_type": f"{model_type}_text",
        "moe_intermediate_size": None,
        "num_experts": None,
        "num_kv_shared_layers": 0,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            FULL: {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
            SLIDING: {"rope_theta": 10000.0, "rope_type": "default"},
        },
        "sliding_window": 1024,
        "tie_word_embeddings": True,
        "top_k_experts": None,
        "use_bidirectional_attention": "vision",
        "use_cache": True,
        "use_double_wide_mlp": False,
        "vocab_size": 262144,
        "vocab_size_per_layer_input": 262144,
    }
    unified = model_type == "gemma4_unified"
    return {
        "architectures": [f"Gemma4{'Unified' if unified else ''}ForConditionalGeneration"],
        "audio_config": None,
        "boi_token_id": 255999,
        "eoi_token_id": 258882,
        "image_token_id": 258880,
        "model_type": model_type,
        "text_config": {**common, **text},
        "tie_word_embeddings": True,
        "vision_config": {"model_type": f"{model_type}_vision"},
        "vision_soft_tokens_per_image": 280,
    }


SMALL = {  # E2B and E4B
    "attention_k_eq_v": False,
    "hidden_size_per_layer_input": 256,
    "max_position_embeddings": 131072,
    "num_attention_heads": 8,
    "num_global_key_value_heads": None,
    "sliding_window": 512,
    "use_bidirectional_attention": None,
}
MODELS: dict[str, dict[str, Any]] = {
    "Qwen3-30B-A3B": QWEN3_30B,
    "Qwen3-Next-80B-A3B": QWEN3_NEXT,
    "Qwen3.6-27B": qwen35(
        "qwen3_5",
        {
            "hidden_size": 5120,
            "intermediate_size": 17408,
            "linear_num_value_heads": 48,
            "num_attention_heads": 24,
            "num_hidden_layers": 64,
            "num_key_value_heads": 4,
            "output_gate_type": "swish",
        },
    ),
    "Qwen3.6-35B-A3B": qwen35(
        "qwen3_5_moe",
        {
            "hidden_size": 2048,
            "linear_num_value_heads": 32,
            "moe_intermediate_size": 512,
            "num_attention_heads": 16,
            "num_experts": 256,
            "num_experts_per_tok": 8,
            "num_hidden_layers": 40,
            "num_key_value_heads": 2,
            "output_router_logits": False,
            "router_aux_loss_coef": 0.001,
            "shared_expert_intermediate_size": 512,
        },
    ),
    "Gemma-4-26B-A4B": gemma4(
        {
            "attention_k_eq_v": True,
            "enable_moe_block": True,
            "hidden_size": 2816,
            "intermediate_size": 2112,
            "moe_intermediate_size": 704,
            "num_attention_heads": 16,
            "num_experts": 128,
            "num_global_key_value_heads": 2,
            "num_hidden_layers": 30,
            "num_key_value_heads": 8,
            "top_k_experts": 8,
        },
        6,
    ),
    "Gemma-4-31B": gemma4(
        {
            "attention_k_eq_v": True,
            "hidden_size": 5376,
            "intermediate_size": 21504,
            "num_attention_heads": 32,
            "num_global_key_value_heads": 4,
            "num_hidden_layers": 60,
            "num_key_value_heads": 16,
        },
        6,
    ),
    "Gemma-4-12B": gemma4(
        {
            "attention_k_eq_v": True,
            "hidden_size": 3840,
            "intermediate_size": 15360,
            "num_attention_heads": 16,
            "num_global_key_value_heads": 1,
            "num_hidden_layers": 48,
            "num_key_value_heads": 8,
        },
        6,
        "gemma4_unified",
    ),
    "Gemma-4-E2B": gemma4(
        {
            **SMALL,
            "hidden_size": 1536,
            "intermediate_size": 6144,
            "num_hidden_layers": 35,
            "num_key_value_heads": 1,
            "num_kv_shared_layers": 20,
            "use_double_wide_mlp": True,
        },
        5,
    ),
    "Gemma-4-E4B": gemma4(
        {
            **SMALL,
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "num_hidden_layers": 42,
            "num_key_value_heads": 2,
            "num_kv_shared_layers": 18,
        },
        6,
    ),
}
MEDIA = re.compile(r"(visual|vision_tower|embed_vision|vision_embedder|audio_tower|embed_audio)\.")


def shapes(config: dict[str, Any]) -> tuple[int, dict[str, list[list[Any]]]]:
    """Parameters of the text model, and name with * for the layer -> [shape, layers] pairs."""
    loaded = transformers.AutoConfig.for_model(**json.loads(json.dumps(config)))
    kind = getattr(transformers, config["architectures"][0])
    with torch.device("meta"):
        model = kind(loaded)
    tensors = {name: list(t.shape) for name, t in model.state_dict().items() if not MEDIA.search(name)}
    if config["tie_word_embeddings"]:
        del tensors["lm_head.weight"]
    found: dict[str, list[list[Any]]] = {}
    for name, shape in tensors.items():
        match = re.search(r"\.layers\.(\d+)\.", name)
        pattern = name.replace(match[0], ".layers.*.", 1) if match else name
        entry = next((pair for pair in found.setdefault(pattern, []) if pair[0] == shape), None)
        if entry is None:
            entry = [shape, []]
            found[pattern].append(entry)
        if match:
            entry[1].append(int(match[1]))
    return sum(math.prod(shape) for shape in tensors.values()), found


def main() -> None:
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    lines = ["{", f'"versions": {json.dumps(versions)},', '"models": {']
    for i, (name, config) in enumerate(MODELS.items()):
        count, tensors = shapes(config)
        print(f"{name}: {count:,}")
        lines += [
            f'"{name}": {{',
            f'"config": {json.dumps(config)},',
            f'"parameters": {count},',
            '"tensors": {',
        ]
        rows = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(tensors.items())]
        lines += [",\n".join(rows), "}", "}" + ("," if i + 1 < len(MODELS) else "")]
    lines += ["}", "}"]
    OUT.write_text("\n".join(lines) + "\n")
    json.loads(OUT.read_text())


if __name__ == "__main__":
    main()
