"""Tiny seeded checkpoints of every architecture: configs in both forms, weights, a byte-level tokenizer.

Used by make_checkpoints.py, which names the requirements. Shapes are odd on purpose: hidden, q, kv and
intermediate sizes differ, the vocabulary is prime, head_dim is not hidden / heads, one model divides by
32 only, so that a swapped index or a missing tail shows up as a wrong number and not as luck.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

VOCAB = 277
PAD, EOS, BOS, END_OF_TURN = 0, 1, 2, 3
SPECIALS = ("<pad>", "<eos>", "<bos>", "<|im_end|>")
MERGES = ("h e", "l l", "he ll", "hell o", "Ġ t", "i n", "e r", "Ġ a", "o n", "Ġt h")
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@dataclass(frozen=True)
class Variant:
    """One quantised copy: `overrides` maps a module path's ending to {bits, group_size}, to False (not
    quantised, and config.json says so) or to None (not quantised and not named there).
    """

    bits: int
    group_size: int
    overrides: dict[str, Any] = field(default_factory=dict)
    mode: str = "affine"

    @property
    def suffix(self) -> str:
        if self.mode != "affine":
            return self.mode
        return "mixed" if self.overrides else f"q{self.bits}g{self.group_size}"


@dataclass(frozen=True)
class Architecture:
    """One checkpoint. `hub` turns the text config of transformers 5 into the keys of the older form."""

    name: str
    model_class: str
    config_class: str
    config: dict[str, Any]
    hub: dict[str, Any]
    variants: tuple[Variant, ...] = (Variant(4, 64),)
    dtype: str = "bfloat16"
    shards: int = 1
    long: int = 0  # tokens of a second, long prompt
    adds_bos: bool = True
    eos: int | list[int] = EOS
    branch_gain: float = 0.5  # damping of the residual branches: bf16 noise must not grow layer by layer
    embed_std: float = 0.5
    qk_norm_shift: float = 0.0


def _base(**changes: Any) -> dict[str, Any]:
    config = {
        "vocab_size": VOCAB,
        "max_position_embeddings": 2048,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
        "tie_word_embeddings": False,
    }
    return config | changes


def _shape(hidden: int, inter: int, layers: int, heads: int, kv: int, head_dim: int | None) -> dict[str, Any]:
    shape = {
        "hidden_size": hidden,
        "intermediate_size": inter,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
    }
    return shape if head_dim is None else shape | {"head_dim": head_dim}


def _rope(theta: float, **scaling: Any) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": theta} | scaling


FULL_SET = (Variant(4, 64), Variant(6, 64), Variant(8, 32), Variant(4, 32))
OTHERS = (
    Variant(2, 64),
    Variant(3, 32),
    Variant(5, 64),
    Variant(4, 32, mode="mxfp4"),
    Variant(8, 32, mode="mxfp8"),
)
MIXED = Variant(
    4,
    64,
    {
        "layers.0.self_attn.v_proj": {"bits": 6, "group_size": 64},
        "layers.0.mlp.down_proj": {"bits": 8, "group_size": 32},
        "layers.1.self_attn.q_proj": False,
        "layers.1.self_attn.k_proj": None,
        "layers.2.mlp.gate_proj": {"bits": 4, "group_size": 32},
        "embed_tokens": {"bits": 8, "group_size": 64},
        "lm_head": {"bits": 6, "group_size": 32},
    },
)
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"factor": 4.0, "original_max_position_embeddings": 64}
GEMMA_ROPES = {"sliding_attention": _rope(1e4), "full_attention": _rope(1e6)}
GEMMA_HUB = {
    "rope_theta": 1e6,
    "rope_local_base_freq": 1e4,
    "rope_scaling": None,
    "cache_implementation": "hybrid",
}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}

ARCHITECTURES = (
    Architecture(
        "llama",
        "LlamaForCausalLM",
        "LlamaConfig",
        _base(**_shape(64, 320, 3, 4, 2, 48), rope_parameters=_rope(5e5)),
        {"rope_theta": 5e5, "rope_scaling": None, "pretraining_tp": 1},
        variants=(*FULL_SET, *OTHERS, MIXED),
        long=600,
    ),
    Architecture(
        "llama-llama3",
        "LlamaForCausalLM",
        "LlamaConfig",
        _base(
            **_shape(128, 128, 2, 4, 1, 64),
            tie_word_embeddings=True,
            rope_parameters=_rope(5e5) | {"rope_type": "llama3"} | LLAMA3,
        ),
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3"} | LLAMA3},
        variants=(Variant(4, 128),),
        dtype="float16",
        branch_gain=0.9,
        embed_std=0.12,
    ),
    Architecture(
        "llama-yarn",
        "LlamaForCausalLM",
        "LlamaConfig",
        _base(
            **_shape(96, 160, 2, 6, 3, 32),
            max_position_embeddings=256,
            rope_parameters=_rope(1e4) | {"rope_type": "yarn"} | YARN,
        ),
        {"rope_theta": 1e4, "rope_scaling": {"type": "yarn"} | YARN},
        variants=(Variant(4, 32),),
        long=240,  # far behind the original context of 64
    ),
    Architecture(
        "llama-linear-bias",
        "LlamaForCausalLM",
        "LlamaConfig",
        _base(
            **_shape(64, 96, 2, 2, 1, 80),
            attention_bias=True,
            mlp_bias=True,
            rope_parameters=_rope(1e4) | {"rope_type": "linear", "factor": 4.0},
        ),
        {"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 4.0}},
        variants=(Variant(4, 32),),
        dtype="float32",
    ),
    Architecture(
        "llama-sharded",
        "LlamaForCausalLM",
        "LlamaConfig",
        _base(**_shape(64, 160, 2, 4, 2, 24), rope_parameters=_rope(1e4)),
        {"rope_theta": 1e4, "rope_scaling": None},
        variants=(Variant(4, 32),),
        shards=2,
    ),
    Architecture(
        "mistral",
        "MistralForCausalLM",
        "MistralConfig",
        _base(**_shape(64, 192, 3, 3, 1, 128), sliding_window=16, rope_parameters=_rope(3e5)),
        {"rope_theta": 3e5},
    ),
    Architecture(
        "qwen2",
        "Qwen2ForCausalLM",
        "Qwen2Config",
        _base(**_shape(96, 160, 3, 6, 2, None), rope_parameters=_rope(7e5)),
        # A window that is switched off must stay off: the older files carry it all the same.
        {"rope_theta": 7e5, "use_sliding_window": False, "sliding_window": 16, "max_window_layers": 1},
        variants=(Variant(4, 32),),
        adds_bos=False,
    ),
    Architecture(
        "qwen3",
        "Qwen3ForCausalLM",
        "Qwen3Config",
        _base(**_shape(128, 192, 3, 4, 2, 16), tie_word_embeddings=True, rope_parameters=_rope(4e5)),
        {"rope_theta": 4e5, "rope_scaling": None, "use_sliding_window": False, "sliding_window": None}
        | {"max_window_layers": 3, "attention_bias": False},
        variants=FULL_SET,
        adds_bos=False,
        branch_gain=0.9,
        embed_std=0.1,
    ),
    Architecture(
        "gemma3_text",
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        _base(
            **_shape(64, 128, 6, 4, 2, 24),
            tie_word_embeddings=True,
            sliding_window=16,
            query_pre_attn_scalar=48,
            layer_types=["sliding_attention"] * 5 + ["full_attention"],
            rope_parameters=GEMMA_ROPES,
        ),
        GEMMA_HUB | {"sliding_window_pattern": 6},
        variants=(*FULL_SET, MIXED),
        long=600,
        eos=[EOS, END_OF_TURN],
        embed_std=0.03,
    ),
    Architecture(
        "gemma3",
        "Gemma3ForConditionalGeneration",
        "Gemma3Config",
        {
            "text_config": _base(
                **_shape(96, 160, 3, 6, 2, 32),
                tie_word_embeddings=True,
                sliding_window=16,
                query_pre_attn_scalar=256,
                layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                rope_parameters=GEMMA_ROPES
                | {"full_attention": _rope(1e6) | {"rope_type": "linear", "factor": 8.0}},
            ),
            "vision_config": VISION,
            "image_token_index": VOCAB - 1,
            "boi_token_index": VOCAB - 2,
            "eoi_token_index": VOCAB - 3,
            "mm_tokens_per_image": 4,
            "bos_token_id": BOS,
            "eos_token_id": EOS,
            "pad_token_id": PAD,
        },
        # As in the Hub's 4b file, what equals the default is left out (thetas, query_pre_attn_scalar).
        {"rope_scaling": {"rope_type": "linear", "factor": 8.0}, "sliding_window_pattern": 2},
        variants=(Variant(4, 32),),
        eos=[EOS, END_OF_TURN],
        embed_std=0.03,
        qk_norm_shift=1.0,  # query_pre_attn_scalar 256 on heads of 32: sharper norms keep attention in play
    ),
)


def build(arch: Architecture) -> Any:
    """The model in float32 with seeded weights, already rounded to the dtype it will be stored in."""
    config = getattr(transformers, arch.config_class)(**arch.config)
    model = getattr(transformers, arch.model_class)(config).eval()
    rng = np.random.default_rng(sum(arch.name.encode()))
    gemma = arch.name.startswith("gemma")
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            parameter.copy_(torch.from_numpy(_weight(name, tuple(parameter.shape), arch, rng, gemma)))
    model.tie_weights()
    model.generation_config = transformers.GenerationConfig(
        bos_token_id=BOS, eos_token_id=arch.eos, pad_token_id=PAD
    )
    return model.to(getattr(torch, arch.dtype))


def _weight(name: str, shape: tuple[int, ...], arch: Architecture, rng: Any, gemma: bool) -> Any:
    normal = rng.standard_normal(shape).astype(np.float32)
    if name.endswith("bias"):
        return normal * np.float32(0.3 if "_proj" in name and "mlp" not in name else 0.1)
    if "embed" in name:
        return normal * np.float32(arch.embed_std)
    if len(shape) == 1:
        center = 0.0 if gemma else 1.0
        if gemma and name.endswith(("post_attention_layernorm.weight", "post_feedforward_layernorm.weight")):
            center = -0.4  # 1 + w = 0.6: the damping of Gemma's branches
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            center += arch.qk_norm_shift
        if gemma and name.endswith(("model.norm.weight", "language_model.norm.weight")):
            center = 3.0  # a small embedding, scaled up again before the head
        return normal * np.float32(0.15) + np.float32(center)
    gain = arch.branch_gain if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.2
    return normal * np.float32(gain / shape[-1] ** 0.5)


def hub_config(config: dict[str, Any], arch: Architecture) -> dict[str, Any]:
    """The same model in the keys of the Hub's older files."""
    hub = json.loads(json.dumps(config))
    text = hub.get("text_config", hub)
    for key in ("rope_parameters", "layer_types", "use_bidirectional_attention"):
        text.pop(key, None)
    text.update(arch.hub)
    if text is not hub:
        for key in ("query_pre_attn_scalar", "rms_norm_eps", "attention_bias", "use_cache", "dtype"):
            text.pop(key, None)
        hub["vocab_size"] = VOCAB
    hub["torch_dtype"] = hub.pop("dtype", arch.dtype)
    hub["transformers_version"] = "4.51.0"
    return dict(sorted(hub.items()))


def save_tokenizer(folder: Path, adds_bos: bool) -> None:
    """A byte-level BPE of four specials, 256 bytes, ten merges; the last ids of the model have no token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*SPECIALS, *alphabet, *(m.replace(" ", "") for m in MERGES)]
    merges = [(m.split(" ")[0], m.split(" ")[1]) for m in MERGES]
    tokenizer = Tokenizer(models.BPE(vocab={p: i for i, p in enumerate(pieces)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(s, special=True) for s in SPECIALS])
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<bos> $A", pair="<bos> $A <bos> $B:1", special_tokens=[("<bos>", BOS)]
        )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>"
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(folder)
