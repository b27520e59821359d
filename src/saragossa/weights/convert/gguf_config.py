"""config.json and generation_config.json from a GGUF file's metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from saragossa.errors import ConvertError

from .floats import F32Array
from .gguf_reader import GgufFile
from .gguf_rope import llama3_scaling

# GGUF architecture -> model_type, transformers class
ARCHITECTURES = {
    "llama": ("llama", "LlamaForCausalLM"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "qwen3": ("qwen3", "Qwen3ForCausalLM"),
    "qwen3moe": ("qwen3_moe", "Qwen3MoeForCausalLM"),
    "gemma3": ("gemma3_text", "Gemma3ForCausalLM"),
}
# Models that we run, whose GGUF files are not imported.
_FROM_HUGGING_FACE = ("qwen3next", "qwen35", "qwen35moe", "gemma4")
_MAX_LAYERS = 4096
_MAX_EXPERTS = 4096
_SOFTMAX = 1  # llama.cpp's number of it
_GEMMA3_PATTERN = 6  # every sixth layer is global
_GEMMA3_LOCAL_BASE = 10000.0
_GEMMA3_27B_LAYERS = 62  # this size alone scales attention by hidden / heads
# Keys that say how a file was made, or restate its tensors' shapes.
_HARMLESS = {"vocab_size", "rope.scaling.finetuned", "tensor_data_layout", "attention.causal"}


class Hyperparameters:
    """The metadata under one architecture's prefix; remembers what was read."""

    def __init__(self, file: GgufFile, arch: str) -> None:
        self._file = file
        self._prefix = arch + "."
        self._unread = {
            key.removeprefix(self._prefix): value
            for key, value in file.metadata.items()
            if key.startswith(self._prefix)
        }

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._take(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
            raise self.error(key, value, "a whole number")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
            raise self.error(key, value, "a number")
        return float(str(np.float32(value)))  # 1e-05, not 9.999999747378752e-06

    def text(self, key: str, default: str) -> str:
        value = self._take(key, default)
        if not isinstance(value, str):
            raise self.error(key, value, "a string")
        return value

    def flag(self, key: str) -> bool:
        value = self._take(key, None)
        if not isinstance(value, bool):
            raise self.error(key, value, "true or false")
        return value

    def has(self, key: str) -> bool:
        return key in self._unread

    def error(self, key: str, found: object, accepted: str) -> ConvertError:
        return ConvertError(
            f"{self._file.path}: {self._prefix}{key} is {_brief(found)}; {accepted} is supported"
        )

    def finish(self) -> None:
        """Raises ConvertError on a key that nobody read: it may change the model's meaning."""
        if unread := sorted(set(self._unread) - _HARMLESS):
            raise ConvertError(
                f"{self._file.path}: the metadata key {self._prefix}{unread[0]} is not supported "
                f"(it is {_brief(self._unread[unread[0]])})"
            )

    def _take(self, key: str, default: object) -> Any:
        value = self._unread.pop(key, default)
        if value is None:
            raise ConvertError(f"{self._file.path} lacks the metadata key {self._prefix}{key}")
        return value


def architecture(file: GgufFile) -> str:
    """The file's architecture; raises ConvertError for one that is not supported."""
    arch = file.metadata.get("general.architecture")
    if arch in _FROM_HUGGING_FACE:
        raise ConvertError(
            f"{file.path}: GGUF files of the architecture {_brief(arch)} are not imported",
            cure="take the model from Hugging Face: saragossa pull REPO, then saragossa convert its folder",
        )
    if arch not in ARCHITECTURES:
        raise ConvertError(
            f"{file.path}: the GGUF architecture {_brief(arch)} is not supported; "
            f"supported are {', '.join(ARCHITECTURES)}"
        )
    if (kind := file.metadata.get("general.type", "model")) != "model":
        raise ConvertError(f"{file.path} holds {_brief(kind)}, not a model")
    return str(arch)


def model_config(file: GgufFile, torch_dtype: str, rope_factors: F32Array | None) -> dict[str, Any]:
    """config.json with the Hub's keys, without the quantization block.

    rope_factors: the tensor rope_freqs.weight, if the file has it.
    """
    arch = architecture(file)
    model_type, class_name = ARCHITECTURES[arch]
    h = Hyperparameters(file, arch)
    layers, heads = h.integer("block_count"), h.integer("attention.head_count")
    hidden = h.integer("embedding_length")
    kv_heads = h.integer("attention.head_count_kv", heads)
    if not 1 <= layers <= _MAX_LAYERS:
        raise h.error("block_count", layers, f"1 to {_MAX_LAYERS}")
    if heads < 1 or kv_heads < 1 or heads % kv_heads:
        raise h.error("attention.head_count_kv", kv_heads, f"a divisor of head_count {heads}")
    head_dim = h.integer("attention.key_length", hidden // heads)
    if (value_dim := h.integer("attention.value_length", head_dim)) != head_dim:
        raise h.error("attention.value_length", value_dim, f"the key length, {head_dim},")
    if (rotary := h.integer("rope.dimension_count", head_dim)) != head_dim:
        raise h.error("rope.dimension_count", rotary, f"the head's size, {head_dim},")
    experts = _experts(h) if arch == "qwen3moe" else _no_experts(h)
    theta = h.number("rope.freq_base", 10000.0)
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ConvertError(f"{file.path} has no tensor token_embd.weight [vocabulary, hidden]")
    config: dict[str, Any] = {
        "architectures": [class_name],
        "attention_dropout": 0.0,
        "hidden_size": hidden,
        "intermediate_size": h.integer("feed_forward_length"),
        "max_position_embeddings": h.integer("context_length"),
        "model_type": model_type,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": kv_heads,
        "rms_norm_eps": h.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": theta,
        "rope_scaling": _rope_scaling(h),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "torch_dtype": torch_dtype,
        "use_cache": True,
        "vocab_size": embedding.shape[0],
    }
    if rope_factors is not None:
        if arch != "llama" or config["rope_scaling"] is not None:
            raise ConvertError(f"{file.path}: the tensor rope_freqs.weight is not supported here")
        config["rope_scaling"] = llama3_scaling(rope_factors, theta, head_dim, str(file.path))
    if arch == "llama":
        _llama(h, config, file, head_dim)
    elif arch == "gemma3":
        _gemma3(h, config, head_dim, layers, hidden // heads)
    else:
        _qwen(h, config, arch, head_dim, layers)
    config |= experts
    h.finish()
    return config


def _llama(h: Hyperparameters, config: dict[str, Any], file: GgufFile, head_dim: int) -> None:
    config |= {
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "mlp_bias": "blk.0.ffn_gate.bias" in file.tensors,
    }
    if window := h.integer("attention.sliding_window", 0):
        if config["attention_bias"] or config["mlp_bias"]:
            raise h.error("attention.sliding_window", window, "a model without biases")
        del config["attention_bias"], config["mlp_bias"]
        config |= {
            "model_type": "mistral",
            "architectures": ["MistralForCausalLM"],
            "sliding_window": window,
        }


def _qwen(h: Hyperparameters, config: dict[str, Any], arch: str, head_dim: int, layers: int) -> None:
    config |= {
        "hidden_act": "silu",
        "max_window_layers": layers,
        "sliding_window": None,
        "use_sliding_window": False,
    }
    if arch in ("qwen3", "qwen3moe"):
        config |= {"attention_bias": False, "head_dim": head_dim}
    elif head_dim * config["num_attention_heads"] != config["hidden_size"]:
        raise h.error("attention.key_length", head_dim, "the hidden size by the number of heads")


def _no_experts(h: Hyperparameters) -> dict[str, Any]:
    if experts := h.integer("expert_count", 0):
        raise h.error("expert_count", experts, "a dense model (0)")
    h.integer("expert_used_count", 0)
    return {}


def _experts(h: Hyperparameters) -> dict[str, Any]:
    """Of qwen3moe, in every layer; llama.cpp always makes the weights of those chosen sum to one."""
    if h.has("expert_weights_norm") and not h.flag("expert_weights_norm"):
        raise h.error("expert_weights_norm", False, "True")
    if (gating := h.integer("expert_gating_func", _SOFTMAX)) != _SOFTMAX:
        raise h.error("expert_gating_func", gating, f"{_SOFTMAX} (softmax)")
    experts, used = h.integer("expert_count"), h.integer("expert_used_count")
    if not 1 <= experts <= _MAX_EXPERTS:
        raise h.error("expert_count", experts, f"1 to {_MAX_EXPERTS}")
    if not 1 <= used <= experts:
        raise h.error("expert_used_count", used, f"1 to {experts}, the number of experts,")
    return {
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "moe_intermediate_size": h.integer("expert_feed_forward_length"),
        "norm_topk_prob": True,
        "num_experts": experts,
        "num_experts_per_tok": used,
    }


def _gemma3(h: Hyperparameters, config: dict[str, Any], head_dim: int, layers: int, split: int) -> None:
    pattern = h.integer("attention.sliding_window_pattern", _GEMMA3_PATTERN)
    if pattern < 1:
        raise h.error("attention.sliding_window_pattern", pattern, "1 or more")
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        config[key] = h.number(key, 0.0) or None
    config |= {
        "attention_bias": False,
        "head_dim": head_dim,
        "hidden_activation": "gelu_pytorch_tanh",
        "layer_types": [
            "sliding_attention" if (i + 1) % pattern else "full_attention" for i in range(layers)
        ],
        "query_pre_attn_scalar": split if layers == _GEMMA3_27B_LAYERS else head_dim,
        "rope_local_base_freq": h.number("rope.freq_base_swa", _GEMMA3_LOCAL_BASE),
        "sliding_window": h.integer("attention.sliding_window"),
        "sliding_window_pattern": pattern,
    }


def _rope_scaling(h: Hyperparameters) -> dict[str, Any] | None:
    factor = h.number("rope.scale_linear", 1.0)
    kind = h.text("rope.scaling.type", "linear" if factor != 1.0 else "none")
    factor = h.number("rope.scaling.factor", factor)
    original = h.integer("rope.scaling.original_context_length", 0)
    scale = h.number("rope.scaling.attn_factor", 1.0)
    if scale != 1.0:
        raise h.error("rope.scaling.attn_factor", scale, "1")
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return None
    if factor <= 0:
        raise h.error("rope.scaling.factor", factor, "a positive number")
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind != "yarn":
        raise h.error("rope.scaling.type", kind, "none, linear or yarn")
    if not original:
        raise h.error("rope.scaling.original_context_length", original, "a positive number")
    scaling = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
    for key in ("beta_fast", "beta_slow"):
        if h.has(f"rope.scaling.yarn_{key}"):
            scaling[key] = h.number(f"rope.scaling.yarn_{key}")
    return scaling


# GGUF's recommended sampling -> generation_config.json
_SAMPLING = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}


def generation_config(
    metadata: Mapping[str, Any], ids: Mapping[str, int], eos: Sequence[int]
) -> dict[str, Any]:
    """End tokens, and the sampling defaults that newer GGUF files carry.

    ids: bos_token_id and pad_token_id where known; eos: all tokens that end a generation.
    """
    config: dict[str, Any] = dict(ids)
    if eos:
        config["eos_token_id"] = eos[0] if len(eos) == 1 else list(eos)
    for key, name in _SAMPLING.items():
        value = metadata.get(f"general.sampling.{key}")
        if isinstance(value, int | float) and np.isfinite(value):
            config |= {name: value if isinstance(value, int) else float(str(np.float32(value)))}
            config["do_sample"] = True
    return config


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
