"""Tiny configs of the newer families in each form, and the tensors of each form, written out by hand."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tiny_checkpoints import NOISE, SIZES, Stored, stored

FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Entry:
    """What a model file asks of a stored tensor."""

    shape: tuple[int, ...]


LINEAR_SIZES: dict[str, Any] = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_conv_kernel_dim": 3,
}
CHANNELS, VALUES = 2 * 2 * 8 + 6 * 12, 6 * 12
EXPERTS: dict[str, Any] = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
MROPE = {"mrope_section": [2, 1, 1], "mrope_interleaved": True}


def qwen3_moe(**changes: Any) -> dict[str, Any]:
    """As transformers 5 writes it; the layer in the middle has an MLP."""
    raw = {**SIZES, **NOISE, **EXPERTS, "model_type": "qwen3_moe", "dtype": "bfloat16", "head_dim": 32}
    raw |= {"hidden_act": "silu", "attention_bias": False, "decoder_sparse_step": 1, "mlp_only_layers": [1]}
    raw |= {"norm_topk_prob": True, "output_router_logits": False, "router_aux_loss_coef": 0.001}
    raw |= {"sliding_window": None, "use_sliding_window": False}
    raw |= {"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}
    raw["num_local_experts"] = raw.pop("num_experts")
    return changed(raw, changes)


def qwen3_next(**changes: Any) -> dict[str, Any]:
    raw = {**SIZES, **NOISE, **EXPERTS, **LINEAR_SIZES, "model_type": "qwen3_next", "dtype": "bfloat16"}
    raw |= {"head_dim": 32, "hidden_act": "silu", "attention_bias": False, "norm_topk_prob": True}
    raw |= {"num_hidden_layers": 4, "layer_types": [LINEAR, LINEAR, LINEAR, FULL], "mlp_only_layers": []}
    raw |= {"decoder_sparse_step": 1, "shared_expert_intermediate_size": 48}
    raw |= {"rope_parameters": {"rope_theta": 1e7, "rope_type": "default", "partial_rotary_factor": 0.25}}
    return changed(raw, changes)


def qwen3_5_text(*, moe: bool = False, **changes: Any) -> dict[str, Any]:
    raw = qwen3_next(mlp_only_layers=..., decoder_sparse_step=..., norm_topk_prob=...)
    raw |= {"model_type": f"qwen3_5{'_moe' if moe else ''}_text", "attn_output_gate": True}
    raw |= {"mamba_ssm_dtype": "float32", "output_gate_type": "swish", "mtp_num_hidden_layers": 1}
    raw |= {"mtp_use_dedicated_embeddings": False}
    raw["rope_parameters"] |= MROPE
    drop = ("intermediate_size",) if moe else (*EXPERTS, "shared_expert_intermediate_size")
    for key in drop:
        del raw[key]
    return changed(raw, changes)


def qwen3_5(*, moe: bool = False, **changes: Any) -> dict[str, Any]:
    """The multimodal config; `changes` are of the outer keys."""
    text = {key: value for key, value in qwen3_5_text(moe=moe).items() if key not in NOISE}
    raw = {**NOISE, "model_type": f"qwen3_5{'_moe' if moe else ''}", "text_config": text}
    raw |= {"vision_config": {"depth": 1}, "image_token_id": 5, "video_token_id": 6}
    raw |= {"vision_start_token_id": 7, "vision_end_token_id": 8, "tie_word_embeddings": False}
    return changed(raw, changes)


def gemma4_text(**changes: Any) -> dict[str, Any]:
    """As transformers 5 writes a dense one: six layers, the odd ones full."""
    raw = {**SIZES, **NOISE, "model_type": "gemma4_text", "dtype": "bfloat16", "head_dim": 32}
    raw |= {"hidden_activation": "gelu_pytorch_tanh", "attention_bias": False, "num_hidden_layers": 6}
    raw |= {"attention_k_eq_v": False, "enable_moe_block": False, "final_logit_softcapping": 30.0}
    raw |= {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 96, "num_kv_shared_layers": 0}
    raw |= {"layer_types": [SLIDING, FULL] * 3, "num_experts": None, "top_k_experts": None}
    raw |= {"moe_intermediate_size": None, "sliding_window": 16, "tie_word_embeddings": True}
    raw |= {"use_bidirectional_attention": None, "use_double_wide_mlp": False}
    raw |= {"per_layer_config": {str(i): {"head_dim": 48} for i in (1, 3, 5)}}
    raw["rope_parameters"] = {
        FULL: {"partial_rotary_factor": 0.25, "rope_theta": 1e6, "rope_type": "proportional"},
        SLIDING: {"rope_theta": 1e4, "rope_type": "default"},
    }
    return changed(raw, changes)


K_EQ_V: dict[str, Any] = {
    "attention_k_eq_v": True,
    "per_layer_config": {str(i): {"head_dim": 48, "num_key_value_heads": 1} for i in (1, 3, 5)},
}
GEMMA_MOE: dict[str, Any] = {
    "enable_moe_block": True,
    "num_experts": 5,
    "top_k_experts": 2,
    "moe_intermediate_size": 32,
}
GEMMA_SMALL: dict[str, Any] = {
    "hidden_size_per_layer_input": 16,
    "num_kv_shared_layers": 2,
    "use_double_wide_mlp": True,
}


def gemma4(text: dict[str, Any] | None = None, model_type: str = "gemma4", **changes: Any) -> dict[str, Any]:
    inner = {key: value for key, value in gemma4_text(**(text or {})).items() if key not in NOISE}
    inner["model_type"] = f"{model_type}_text"
    raw = {**NOISE, "model_type": model_type, "text_config": inner, "vision_config": None}
    raw |= {"audio_config": None, "boi_token_id": 5, "image_token_id": 6, "tie_word_embeddings": True}
    return changed(raw, changes)


def changed(raw: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """With `changes`, of which ... removes a key."""
    return {key: value for key, value in {**copy.deepcopy(raw), **changes}.items() if value is not ...}


# --- tensors --------------------------------------------------------------------------------------


def norms(layer: str, *names: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    return ((f"{layer}{name}.weight", (64,)) for name in names)


def attention(layer: str, head_dim: int, kv: int, *, gate: bool = False, v: bool = True) -> Shapes:
    a = f"{layer}self_attn."
    shapes: Shapes = {
        f"{a}q_proj.weight": (4 * head_dim * (2 if gate else 1), 64),
        f"{a}k_proj.weight": (kv * head_dim, 64),
        f"{a}o_proj.weight": (64, 4 * head_dim),
        f"{a}q_norm.weight": (head_dim,),
        f"{a}k_norm.weight": (head_dim,),
    }
    return shapes | ({f"{a}v_proj.weight": (kv * head_dim, 64)} if v else {})


def delta(layer: str, *, fused: bool, mlx: bool) -> Shapes:
    d = f"{layer}linear_attn."
    shapes: Shapes = {
        f"{d}A_log": (6,),
        f"{d}dt_bias": (6,),
        f"{d}norm.weight": (12,),
        f"{d}out_proj.weight": (64, VALUES),
        f"{d}conv1d.weight": (CHANNELS, 3, 1) if mlx else (CHANNELS, 1, 3),
    }
    if fused:
        return shapes | {
            f"{d}in_proj_qkvz.weight": (CHANNELS + VALUES, 64),
            f"{d}in_proj_ba.weight": (12, 64),
        }
    shapes |= {f"{d}in_proj_{part}.weight": (6, 64) for part in "ab"}
    return shapes | {f"{d}in_proj_qkv.weight": (CHANNELS, 64), f"{d}in_proj_z.weight": (VALUES, 64)}


def mlp(layer: str, width: int = 128, name: str = "mlp.") -> Shapes:
    return {
        f"{layer}{name}gate_proj.weight": (width, 64),
        f"{layer}{name}up_proj.weight": (width, 64),
        f"{layer}{name}down_proj.weight": (64, width),
    }


def experts(layer: str, form: str, *, gemma: bool = False, count: int = 5) -> Shapes:
    """form: fused, mlx or single."""
    base = f"{layer}experts" if gemma else f"{layer}mlp.experts"
    if form == "fused":
        return {f"{base}.gate_up_proj": (count, 64, 64), f"{base}.down_proj": (count, 64, 32)}
    if form == "mlx":
        switch = f"{base}.switch_glu" if gemma else f"{layer}mlp.switch_mlp"
        return {f"{switch}.{part}_proj.weight": (count, 32, 64) for part in ("gate", "up")} | {
            f"{switch}.down_proj.weight": (count, 64, 32)
        }
    shapes: Shapes = {}
    for i in range(count):
        shapes |= mlp(f"{base}.{i}.", 32, "")
    return shapes


def shared(layer: str) -> Shapes:
    return mlp(layer, 48, "mlp.shared_expert.") | {f"{layer}mlp.shared_expert_gate.weight": (1, 64)}


def top(prefix: str, head: str | None) -> Shapes:
    shapes: Shapes = {f"{prefix}embed_tokens.weight": (96, 64), f"{prefix}norm.weight": (64,)}
    return shapes | ({f"{head}.weight": (96, 64)} if head else {})


def qwen_tensors(
    model_type: str, form: str, prefix: str = "model.", head: str | None = "lm_head", mtp: str | None = None
) -> Shapes:
    """A Qwen family's tensors. form: how experts are stored; mlx: of the whole file."""
    shapes = top(prefix, head)
    moe = "moe" in model_type or "next" in model_type
    for i in range(3 if model_type == "qwen3_moe" else 4):
        layer = f"{prefix}layers.{i}."
        shapes |= dict(norms(layer, "input_layernorm", "post_attention_layernorm"))
        if model_type == "qwen3_moe":
            shapes |= attention(layer, 32, 2)
        elif i == 3:
            shapes |= attention(layer, 32, 2, gate=True)
        else:
            shapes |= delta(layer, fused="next" in model_type, mlx=form == "mlx")
        if moe and (model_type, i) != ("qwen3_moe", 1):
            shapes |= {f"{layer}mlp.gate.weight": (5, 64)} | experts(layer, form)
            shapes |= shared(layer) if model_type != "qwen3_moe" else {}
        else:
            shapes |= mlp(layer)
    if mtp is not None:
        layer = f"{mtp}layers.0."
        shapes |= {f"{mtp}fc.weight": (64, 128)} | attention(layer, 32, 2, gate=True)
        shapes |= dict(norms(mtp, "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"))
        shapes |= dict(norms(layer, "input_layernorm", "post_attention_layernorm"))
        if moe:
            shapes |= {f"{layer}mlp.gate.weight": (5, 64)} | experts(layer, "single") | shared(layer)
        else:
            shapes |= mlp(layer)
    return shapes


def gemma_tensors(
    prefix: str,
    *,
    k_eq_v: bool = False,
    moe: str | None = None,
    small: bool = False,
    shared_keys: bool = False,
) -> Shapes:
    """Gemma 4's tensors. moe: how experts are stored; shared_keys: also those that sharing layers ignore."""
    shapes = top(prefix, None)
    if small:
        shapes |= {f"{prefix}embed_tokens_per_layer.weight": (96, 96)}
        shapes |= {f"{prefix}per_layer_model_projection.weight": (96, 64)}
        shapes |= {f"{prefix}per_layer_projection_norm.weight": (16,)}
    for i in range(6):
        layer, full = f"{prefix}layers.{i}.", i % 2 == 1
        head_dim, kv = (48, 1 if k_eq_v else 2) if full else (32, 2)
        own = attention(layer, head_dim, kv, v=not (full and k_eq_v))
        if small and i >= 4 and not shared_keys:
            own = {name: shape for name, shape in own.items() if ".k_" not in name and ".v_" not in name}
        shapes |= own | mlp(layer, 256 if small and i >= 4 else 128) | {f"{layer}layer_scalar": (1,)}
        shapes |= dict(norms(layer, "input_layernorm", "post_attention_layernorm"))
        shapes |= dict(norms(layer, "pre_feedforward_layernorm", "post_feedforward_layernorm"))
        if small:
            shapes |= {f"{layer}per_layer_input_gate.weight": (16, 64)}
            shapes |= {f"{layer}per_layer_projection.weight": (64, 16)}
            shapes |= dict(norms(layer, "post_per_layer_input_norm"))
        if moe:
            shapes |= experts(layer, moe, gemma=True) | {f"{layer}router.proj.weight": (5, 64)}
            shapes |= {f"{layer}router.scale": (64,), f"{layer}router.per_expert_scale": (5,)}
            shapes |= dict(norms(layer, "post_feedforward_layernorm_1", "post_feedforward_layernorm_2"))
            shapes |= dict(norms(layer, "pre_feedforward_layernorm_2"))
    return shapes


def index_of(shapes: Shapes) -> dict[str, Entry]:
    return {name: Entry(shape) for name, shape in shapes.items()}


def floats(shapes: Shapes, dtype: str = "BF16") -> dict[str, Stored]:
    return {name: stored(dtype, *shape) for name, shape in shapes.items()}


def packed(shapes: Shapes, bits: int = 4, group_size: int = 32) -> dict[str, Stored]:
    """As mlx-lm quantises: all linears and embeddings that the group size divides; routers in 8 bits."""
    result: dict[str, Stored] = {}
    for name, shape in shapes.items():
        module = name.removesuffix(".weight")
        router = module.endswith(("mlp.gate", "shared_expert_gate", "router.proj"))
        width, group = (8, 64) if router else (bits, group_size)
        if len(shape) < 2 or module == name or "conv1d" in name or shape[-1] % group:
            result[name] = stored("BF16", *shape)
            continue
        *rows, columns = shape
        result[name] = stored("U32", *rows, columns * width // 32)
        for part in ("scales", "biases"):
            result[f"{module}.{part}"] = stored("BF16", *rows, columns // group)
    return result


def routers(shapes: Shapes, prefix: str = "") -> dict[str, Any]:
    """The quantization block's overrides of `packed`."""
    found = (name.removesuffix(".weight") for name in shapes)
    ends = ("mlp.gate", "shared_expert_gate", "router.proj")
    return {f"{prefix}{name}": {"bits": 8, "group_size": 64} for name in found if name.endswith(ends)}


def qwen() -> dict[str, dict[str, Any]]:
    """A config of each of Qwen's newer families."""
    return {
        "qwen3_moe": qwen3_moe(),
        "qwen3_next": qwen3_next(),
        "qwen3_5_text": qwen3_5_text(),
        "qwen3_5_moe_text": qwen3_5_text(moe=True),
        "qwen3_5": qwen3_5(),
        "qwen3_5_moe": qwen3_5(moe=True),
    }
