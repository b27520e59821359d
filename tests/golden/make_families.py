"""Tiny seeded checkpoints of mixture of experts, gated delta nets, Gemma 4: configs in both forms, weights.

Used by make_family_checkpoints.py, which names the requirements. Every size differs from its neighbours and
the head counts, expert counts and convolution widths from one checkpoint to the next, so that a swapped index
shows up as a wrong number. Weights are damped where a random net would amplify noise (`_weight`), but every
part moves the logits; the generator measures how far and refuses a part that does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transformers
from make_architectures import BOS, END_OF_TURN, EOS, PAD, VOCAB, Architecture, Variant, _base, _rope, _shape

# The last ids are those of images and sounds: no prompt holds them.
FIRST_MEDIA_ID = VOCAB - 8
QWEN_MEDIA = {
    "image_token_id": VOCAB - 1,
    "video_token_id": VOCAB - 2,
    "vision_start_token_id": VOCAB - 3,
    "vision_end_token_id": VOCAB - 4,
}
GEMMA_MEDIA = {
    "image_token_id": VOCAB - 1,
    "video_token_id": VOCAB - 2,
    "boi_token_id": VOCAB - 3,
    "eoi_token_id": VOCAB - 4,
    "audio_token_id": VOCAB - 5,
    "boa_token_id": VOCAB - 6,
    "eoa_token_index": VOCAB - 7,
}
QWEN_VISION = {
    "depth": 1,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_heads": 1,
    "out_hidden_size": 32,
    "num_position_embeddings": 4,
    "patch_size": 2,
}
ROUTER_8 = {"mlp.gate": {"bits": 8, "group_size": 32}, "router.proj": {"bits": 8, "group_size": 32}}
SHARED_GATE_8 = {"shared_expert_gate": {"bits": 8, "group_size": 32}}


@dataclass(frozen=True)
class Quantised(Variant):
    """With `overrides` empty, mlx-lm's own predicate decides (routers: 8 bits, groups of 64)."""

    @property
    def suffix(self) -> str:
        return f"q{self.bits}g{self.group_size}"


@dataclass(frozen=True)
class Family(Architecture):
    """`forms`: further copies of the same values. `fused`: experts in one tensor each, as transformers holds
    them; `hub`: as the Hub has them (fused experts, float32 decays and gated norms); `mlx`: of mlx-lm.
    mtp: multi-token prediction tensors, which transformers and mlx-lm drop. positions: of the long prompt.
    """

    forms: tuple[str, ...] = ()
    mtp: bool = False
    positions: int = 0


def _experts(count: int, top: int, inter: int, shared: int | None = None) -> dict[str, Any]:
    sizes = {"num_experts": count, "num_experts_per_tok": top, "moe_intermediate_size": inter}
    return sizes if shared is None else sizes | {"shared_expert_intermediate_size": shared}


def _delta(key_heads: int, value_heads: int, key_dim: int, value_dim: int, width: int) -> dict[str, int]:
    return {
        "linear_num_key_heads": key_heads,
        "linear_num_value_heads": value_heads,
        "linear_key_head_dim": key_dim,
        "linear_value_head_dim": value_dim,
        "linear_conv_kernel_dim": width,
    }


def _mrope(theta: float, partial: float, sections: list[int]) -> dict[str, Any]:
    return _rope(theta, partial_rotary_factor=partial, mrope_section=sections, mrope_interleaved=True)


def _kinds(pattern: str) -> list[str]:
    names = {"L": "linear_attention", "F": "full_attention", "S": "sliding_attention"}
    return [names[kind] for kind in pattern]


def _without(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in keys}


GEMMA4_ROPES = {
    "sliding_attention": _rope(1e4),
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 1e6},
}
GEMMA4_OFF = {
    "hidden_size_per_layer_input": 0,
    "num_kv_shared_layers": 0,
    "enable_moe_block": False,
    "use_double_wide_mlp": False,
    "attention_k_eq_v": False,
    "num_global_key_value_heads": None,
    "vocab_size_per_layer_input": VOCAB,
}


def _gemma4(pattern: str, **changes: Any) -> dict[str, Any]:
    config = _base(
        tie_word_embeddings=True,
        layer_types=_kinds(pattern),
        sliding_window=16,
        rope_parameters=GEMMA4_ROPES,
        final_logit_softcapping=6.0,
        hidden_activation="gelu_pytorch_tanh",
    )
    return config | GEMMA4_OFF | changes


def _gemma4_hub(**changes: Any) -> dict[str, Any]:
    return {"hidden_size_per_layer_input": 0, "num_global_key_value_heads": None} | changes


MTP = {"mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False}
QWEN_DENSE = _base(
    **_shape(32, 44, 6, 3, 1, 40),
    **_delta(3, 3, 8, 10, 4),
    layer_types=_kinds("LLFLLF"),
    rope_parameters=_mrope(1e7, 0.4, [3, 3, 2]),
    **MTP,
)
QWEN_EXPERTS = _without(
    _base(
        **_shape(64, 0, 4, 3, 1, 24),
        **_delta(1, 3, 12, 8, 5),
        **_experts(5, 3, 12, 20),
        layer_types=_kinds("LFLF"),
        rope_parameters=_mrope(1e6, 0.5, [2, 2, 2]),
        **MTP,
    ),
    "intermediate_size",
)

FAMILIES = (
    Family(
        "qwen3_moe",
        "Qwen3MoeForCausalLM",
        "Qwen3MoeConfig",
        _base(
            **_shape(32, 40, 4, 3, 1, 20),
            **_experts(7, 3, 24),
            norm_topk_prob=True,
            decoder_sparse_step=2,
            mlp_only_layers=[1],
            rope_parameters=_rope(3e5),
        ),
        {"rope_theta": 3e5, "rope_scaling": None, "num_experts": 7, "norm_topk_prob": True},
        variants=(Quantised(4, 32, ROUTER_8),),
        forms=("fused",),
        adds_bos=False,
    ),
    Family(
        "qwen3_moe-plain",
        "Qwen3MoeForCausalLM",
        "Qwen3MoeConfig",
        _base(
            **_shape(64, 40, 2, 4, 2, 12),
            **_experts(5, 2, 32),
            norm_topk_prob=False,
            tie_word_embeddings=True,
            rope_parameters=_rope(8e5),
        ),
        {"rope_theta": 8e5, "rope_scaling": None, "num_experts": 5, "norm_topk_prob": False},
        variants=(Quantised(4, 32),),
        adds_bos=False,
        branch_gain=0.9,
        embed_std=0.15,
    ),
    Family(
        "qwen3_next",
        "Qwen3NextForCausalLM",
        "Qwen3NextConfig",
        _base(
            **_shape(32, 40, 6, 3, 1, 24),
            **_delta(2, 4, 8, 12, 3),
            **_experts(5, 2, 16, 24),
            norm_topk_prob=True,
            decoder_sparse_step=1,
            mlp_only_layers=[1],
            layer_types=_kinds("LLFLLF"),
            rope_parameters=_rope(1e6, partial_rotary_factor=0.25),
        ),
        {
            "rope_theta": 1e6,
            "rope_scaling": None,
            "partial_rotary_factor": 0.25,
            "full_attention_interval": 3,
            "num_experts": 5,
            "norm_topk_prob": True,
        },
        variants=(Quantised(4, 32, ROUTER_8 | SHARED_GATE_8),),
        adds_bos=False,
        positions=150,
        branch_gain=0.3,
    ),
    Family(
        "qwen3_5",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5Config",
        {"text_config": QWEN_DENSE, "vision_config": QWEN_VISION, **QWEN_MEDIA},
        {"full_attention_interval": 3, "rope_parameters": QWEN_DENSE["rope_parameters"]} | MTP,
        variants=(Quantised(4, 32),),
        forms=("mlx",),
        adds_bos=False,
        positions=150,
        branch_gain=0.3,
        mtp=True,
    ),
    Family(
        "qwen3_5_text",
        "Qwen3_5ForCausalLM",
        "Qwen3_5TextConfig",
        _base(
            **_shape(64, 28, 3, 2, 2, 16),
            **_delta(2, 6, 8, 6, 2),
            layer_types=_kinds("LFL"),
            tie_word_embeddings=True,
            rope_parameters=_mrope(5e6, 0.25, [1, 1, 0]),
        ),
        {"full_attention_interval": 2, "rope_parameters": _mrope(5e6, 0.25, [1, 1, 0])},
        variants=(Quantised(8, 64),),
        adds_bos=False,
        dtype="float32",
        branch_gain=0.9,
        embed_std=0.15,
    ),
    Family(
        "qwen3_5_moe",
        "Qwen3_5MoeForConditionalGeneration",
        "Qwen3_5MoeConfig",
        {"text_config": QWEN_EXPERTS, "vision_config": QWEN_VISION | {"out_hidden_size": 64}, **QWEN_MEDIA},
        {"full_attention_interval": 2, "rope_parameters": QWEN_EXPERTS["rope_parameters"]} | MTP,
        variants=(Quantised(4, 64),),
        forms=("hub", "mlx"),
        adds_bos=False,
        positions=150,
        branch_gain=0.3,
        mtp=True,
    ),
    Family(
        "qwen3_5_moe_text",
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5MoeTextConfig",
        _without(
            _base(
                **_shape(32, 0, 3, 4, 2, 24),
                **_delta(2, 4, 6, 10, 4),
                **_experts(5, 2, 28, 12),
                layer_types=_kinds("LLF"),
                rope_parameters=_mrope(2e6, 0.25, [1, 1, 1]),
            ),
            "intermediate_size",
        ),
        {"full_attention_interval": 3, "rope_parameters": _mrope(2e6, 0.25, [1, 1, 1])},
        variants=(Quantised(8, 32, ROUTER_8 | SHARED_GATE_8),),
        branch_gain=0.3,
        adds_bos=False,
    ),
    Family(
        "gemma4-e2b",
        "Gemma4ForConditionalGeneration",
        "Gemma4Config",
        {
            "text_config": _gemma4(
                "SSFSFSSF",
                **_shape(32, 24, 8, 3, 1, 16),
                global_head_dim=24,
                hidden_size_per_layer_input=8,
                vocab_size_per_layer_input=VOCAB + 6,
                num_kv_shared_layers=3,
                use_double_wide_mlp=True,
            ),
            "vision_config": None,
            "audio_config": None,
            **GEMMA_MEDIA,
        },
        _gemma4_hub(global_head_dim=24, hidden_size_per_layer_input=8),
        variants=(Quantised(4, 32),),
        eos=[EOS, END_OF_TURN],
    ),
    Family(
        "gemma4-moe",
        "Gemma4ForConditionalGeneration",
        "Gemma4Config",
        {
            "text_config": _gemma4(
                "SSFSF",
                **_shape(32, 36, 5, 4, 2, 12),
                global_head_dim=20,
                num_global_key_value_heads=1,
                attention_k_eq_v=True,
                enable_moe_block=True,
                num_experts=5,
                top_k_experts=2,
                moe_intermediate_size=20,
            ),
            "vision_config": None,
            "audio_config": None,
            **GEMMA_MEDIA,
        },
        _gemma4_hub(global_head_dim=20, num_global_key_value_heads=1),
        variants=(Quantised(4, 32, ROUTER_8),),
        eos=[EOS, END_OF_TURN],
    ),
    Family(
        "gemma4_unified",
        "Gemma4UnifiedForConditionalGeneration",
        "Gemma4UnifiedConfig",
        {
            "text_config": _without(
                _gemma4(
                    "SSFSF",
                    **_shape(32, 48, 5, 6, 3, 8),
                    global_head_dim=16,
                    num_global_key_value_heads=2,
                    attention_k_eq_v=True,
                ),
                "hidden_size_per_layer_input",
                "vocab_size_per_layer_input",
                "enable_moe_block",
            ),
            "vision_config": None,
            "audio_config": None,
            **GEMMA_MEDIA,
        },
        _gemma4_hub(global_head_dim=16, num_global_key_value_heads=2),
        variants=(Quantised(6, 32),),
        eos=[EOS, END_OF_TURN],
    ),
)


def build_family(arch: Family) -> Any:
    """The model with seeded weights, already rounded to the dtype it will be stored in."""
    config = getattr(transformers, arch.config_class)(**arch.config)
    model = getattr(transformers, arch.model_class)(config).eval()
    rng = np.random.default_rng(sum(arch.name.encode()))
    scalars = [(n, b) for n, b in model.named_buffers() if n.endswith("layer_scalar")]
    with torch.no_grad():
        for name, parameter in sorted([*model.named_parameters(), *scalars]):
            parameter.copy_(torch.from_numpy(weight(name, tuple(parameter.shape), arch, rng)))
    model.tie_weights()
    model.generation_config = transformers.GenerationConfig(
        bos_token_id=BOS, eos_token_id=arch.eos, pad_token_id=PAD
    )
    return model.to(torch.bfloat16).to(getattr(torch, arch.dtype))


def weight(name: str, shape: tuple[int, ...], arch: Family, rng: Any) -> Any:
    """A weight by its name. Norms are multiples of 1/128: 1 + w, mlx-lm's form, is exact in bfloat16."""
    normal = rng.standard_normal(shape)
    gemma = arch.name.startswith("gemma")
    text = arch.config.get("text_config", arch.config)
    if name.endswith("A_log"):
        values = np.log(rng.uniform(0.03, 2.5, shape))  # memories from one token to a hundred
    elif name.endswith("dt_bias"):
        values = normal * 0.5
    elif name.endswith("layer_scalar"):
        values = rng.uniform(0.6, 1.1, shape)
    elif name.endswith("per_expert_scale"):
        values = rng.uniform(0.5, 1.5, shape)
    elif name.endswith("conv1d.weight"):
        values = normal * 0.6
    elif len(shape) == 1:
        values = np.clip(np.round((normal * 0.2 + _center(name, arch)) * 128) / 128, -0.9, 1.9)
    elif "embed_tokens_per_layer" in name:
        values = normal * 0.35
    elif "embed" in name and "vision" not in name and "visual" not in name:
        values = normal * (text["hidden_size"] ** -0.5 if gemma else arch.embed_std)
    else:
        values = normal * (_gain(name, arch) / shape[-1] ** 0.5)
        if name.endswith("router.proj.weight"):
            values *= shape[-1] ** 0.5  # its input is divided by that root
    return values.astype(np.float32)


def _center(name: str, arch: Family) -> float:
    """Mean of a norm's weight."""
    if not arch.name.startswith("gemma"):  # 1 + w, but for qwen3_moe and the norm of the delta rule
        return 1.0 if arch.name.startswith("qwen3_moe") or "linear_attn.norm" in name else 0.0
    if name.endswith(("post_attention_layernorm.weight", "post_feedforward_layernorm.weight")):
        return 0.6
    if name.endswith("post_per_layer_input_norm.weight"):
        return 0.5
    if name.endswith("q_norm.weight"):
        return 0.5  # scores are not divided by the root of the head's size
    return 1.2 if name.endswith("language_model.norm.weight") else 1.0


def _gain(name: str, arch: Family) -> float:
    if name.endswith(("mlp.gate.weight", "router.proj.weight")):
        return 4.0  # the best experts stand clear of the others
    damped = ("o_proj.weight", "out_proj.weight", "down_proj.weight", "experts.down_proj")
    return arch.branch_gain if name.endswith(damped) else 1.2
