"""Strict reading of config.json: what all architectures share.

Every key is read, fixed to the values that are implemented, or listed here as irrelevant to inference; any
other key is an error, so that nothing which changes the mathematics is silently ignored.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from saragossa.errors import ConfigError
from saragossa.models.spec import Activation

Size = Annotated[int, Field(gt=0, lt=1 << 31)]
Count = Annotated[int, Field(gt=0, le=4096)]  # layers, heads
# What float32 holds with room for the arithmetic of a forward.
SMALLEST, LARGEST = 1e-30, 1e30
Positive = Annotated[float, Field(ge=SMALLEST, le=LARGEST, allow_inf_nan=False)]
Eps = Annotated[float, Field(ge=SMALLEST, le=1.0, allow_inf_nan=False)]  # beside mean squares of about 1
# cap * tanh(x / cap) has an error of 1e-7 caps: a cap far above any logit would blur or zero them all.
Softcap = Annotated[float, Field(ge=1e-2, le=1e4, allow_inf_nan=False)]

# Training, generation and bookkeeping: no effect on the logits of one forward.
IGNORED: frozenset[str] = frozenset({
    "architectures", "model_type", "auto_map", "transformers_version", "transformers.js_config",
    "_name_or_path",
    "_attn_implementation", "_attn_implementation_autoset", "attn_implementation", "_commit_hash",
    "unsloth_fixed",
    "unsloth_version", "unsloth_version_fixed", "is_llama_config", "is_mistral_config",
    "initializer_range", "initializer_factor", "use_cache", "cache_implementation",
    "attention_dropout", "hidden_dropout", "hidden_dropout_prob", "embd_pdrop", "resid_pdrop", "attn_pdrop",
    "dropout",
    "gradient_checkpointing", "use_reentrant", "torchscript", "use_bfloat16", "use_flash_attention_2",
    "bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id", "cls_token_id",
    "mask_token_id",
    "decoder_start_token_id", "begin_suppress_tokens", "suppress_tokens", "forced_bos_token_id",
    "forced_eos_token_id",
    "bad_words_ids",
    "temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "length_penalty",
    "diversity_penalty", "do_sample",
    "num_beams", "num_beam_groups", "early_stopping", "max_length", "min_length", "max_new_tokens",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "num_return_sequences", "exponential_decay_length_penalty",
    "remove_invalid_values",
    "output_attentions", "output_hidden_states", "output_scores", "return_dict", "return_dict_in_generate",
    "task_specific_params", "problem_type", "id2label", "label2id", "num_labels", "finetuning_task",
    "prefix", "tokenizer_class",
    "tf_legacy_loss", "chunk_size_feed_forward", "is_decoder", "max_sequence_length",
    "quantization", "quantization_config",
})  # fmt: skip

# Known keys with the only values that are implemented.
FIXED: Mapping[str, tuple[object, ...]] = {
    "pretraining_tp": (1, None),
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "cross_attention_hidden_size": (None,),
    "tie_encoder_decoder": (False,),
    "pruned_heads": ({}, None),
    "rope_interleaved": (False,),
    "use_mrope": (False,),
    "use_bidirectional_attention": (False, None),
}

ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
}
_DTYPES = ("float32", "float16", "bfloat16")
_QUANTIZATION = ("quantization", "quantization_config")


class DecoderConfig(BaseModel):
    """Keys that every decoder has. Defaults are those of transformers where a config may leave a key out."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    vocab_size: Size
    hidden_size: Size
    intermediate_size: Size
    num_hidden_layers: Count
    num_attention_heads: Count
    max_position_embeddings: Size
    rms_norm_eps: Eps = 1e-6
    tie_word_embeddings: bool = False
    torch_dtype: str | None = None
    dtype: str | None = None
    rope_theta: Positive | None = None
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None
    partial_rotary_factor: float | None = None
    original_max_position_embeddings: Size | None = None


Config = TypeVar("Config", bound=BaseModel)


def read_config(
    model: type[Config],
    raw: Mapping[str, object],
    *,
    ignored: Collection[str] = (),
    fixed: Mapping[str, tuple[object, ...]] | None = None,
    where: str = "",
) -> Config:
    """Validate `raw` as `model`; `ignored` and `fixed` add to the shared lists, `where` prefixes key names.

    Raises ConfigError naming the key, what was found and what is accepted.
    """
    fields = model.model_fields
    only = {**FIXED, **(fixed or {})}
    values: dict[str, object] = {}
    for key, value in raw.items():
        if key in fields:
            values[key] = value
        elif key in only:
            if value not in only[key]:
                accepted = " or ".join(repr(item) for item in only[key])
                raise ConfigError(f"{where}{key} is {value!r:.100}; only {accepted} is supported")
        elif key not in IGNORED and key not in ignored:
            raise _unknown_key(key, {*fields, *only, *IGNORED, *ignored}, where)
    try:
        return model.model_validate(values)
    except ValidationError as exc:
        raise _config_error(exc, where) from None


def _unknown_key(key: str, known: Collection[str], where: str) -> ConfigError:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.8)
    hint = f"; the nearest known one is {near[0]}" if near else ""
    return ConfigError(
        f"unknown key {where}{key}{hint}",
        cure="a key that is not understood may change the model; remove it if it does not",
    )


def _config_error(exc: ValidationError, where: str) -> ConfigError:
    first = exc.errors(include_url=False)[0]
    key = where + ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return ConfigError(f"{key} is missing")
    return ConfigError(f"{key} is {first['input']!r:.100}: {first['msg']}")


def activation(name: str, key: str) -> Activation:
    """The core's name of an activation. Raises ConfigError for one that is not implemented."""
    if name not in ACTIVATIONS:
        raise ConfigError(f"{key} is {name!r:.50}; supported: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def storage_dtype(*values: str | None) -> str:
    """The config's dtype: the first one given (`dtype` before `torch_dtype`), bfloat16 where none is."""
    name = next((value for value in values if value not in (None, "auto")), "bfloat16")
    assert name is not None
    name = name.removeprefix("torch.")
    if name not in _DTYPES:
        raise ConfigError(f"dtype is {name!r:.50}; supported: {', '.join(_DTYPES)}")
    return name


def head_dim_of(hidden_size: int, heads: int, head_dim: int | None = None) -> int:
    """Channels of a head: the config's, else hidden_size / heads, which must divide."""
    if head_dim is None:
        if hidden_size % heads:
            raise ConfigError(
                f"hidden_size {hidden_size} is no multiple of num_attention_heads {heads}; set head_dim"
            )
        head_dim = hidden_size // heads
    if head_dim % 2:
        raise ConfigError(f"head_dim is {head_dim}; rotary embedding needs an even number")
    return head_dim


def kv_heads_of(heads: int, kv_heads: int | None) -> int:
    """Key/value heads: all heads where the config has null."""
    kv_heads = heads if kv_heads is None else kv_heads
    if heads % kv_heads:
        raise ConfigError(f"num_attention_heads {heads} is no multiple of num_key_value_heads {kv_heads}")
    return kv_heads


def sliding_layers(layer_types: list[str] | None, layers: int) -> list[bool] | None:
    """`layer_types` as booleans: whether a layer attends to a window. None where the config has none."""
    if layer_types is None:
        return None
    accepted = {"full_attention": False, "sliding_attention": True}
    for kind in layer_types:
        if kind not in accepted:
            raise ConfigError(f"layer_types has {kind!r:.50}; supported: {', '.join(accepted)}")
    if len(layer_types) != layers:
        raise ConfigError(f"layer_types has {len(layer_types)} entries, num_hidden_layers is {layers}")
    return [accepted[kind] for kind in layer_types]


def config_block(*configs: Mapping[str, object]) -> Mapping[str, object] | None:
    """The one quantization block of config.json (and of its text_config), None for an unquantised model.

    Raises ConfigError when two blocks disagree or one is no object.
    """
    found: list[tuple[str, Mapping[str, object]]] = []
    for config in configs:
        for key in _QUANTIZATION:
            block = config.get(key)
            if block is None:
                continue
            if not isinstance(block, Mapping):
                raise ConfigError(f"{key}: an object is wanted, found {block!r:.100}")
            found.append((key, block))
    if not found:
        return None
    for key, block in found:
        if "quant_method" in block:
            raise ConfigError(
                f"{key}: quant_method {block['quant_method']!r:.50} is not supported",
                cure="use the unquantised model (`saragossa convert` quantises it) or an MLX affine one",
            )
    for key, block in found[1:]:
        if dict(block) != dict(found[0][1]):
            raise ConfigError(f"{found[0][0]} and {key} differ; they must say the same")
    return found[0][1]
