"""config.json of the dense architectures, in both forms, to specs."""

import copy
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from saragossa.errors import ConfigError
from saragossa.models import supported
from saragossa.models.config_base import IGNORED
from saragossa.models.spec import LayerSpec, ModelSpec
from tiny_checkpoints import NOISE, config

ALL = ("gemma3", "gemma3_text", "llama", "mistral", "qwen2", "qwen3")
FAMILIES = (  # test_families.py
    "gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text", "qwen3_5", "qwen3_5_moe",
    "qwen3_5_moe_text", "qwen3_5_text", "qwen3_moe", "qwen3_next",
)  # fmt: skip


def build(model_type: str, /, *names: str, **changes: Any) -> ModelSpec:
    spec: ModelSpec = import_module(f"saragossa.models.{model_type}").build(
        config(model_type, **changes), dict.fromkeys(names)
    )
    return spec


def gemma3(text: dict[str, Any], **changes: Any) -> ModelSpec:
    raw = config("gemma3", **changes)
    raw["text_config"] = {key: v for key, v in {**raw["text_config"], **text}.items() if v is not ...}
    spec: ModelSpec = import_module("saragossa.models.gemma3").build(raw, {})
    return spec


def layer(spec: ModelSpec, i: int = 0) -> LayerSpec:
    return spec.decoder.layers[i]


def shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    return {item.role: item.shape for item in spec.tensors}


def older(raw: dict[str, Any]) -> dict[str, Any]:
    """The same config in the Hub's older keys."""
    raw = copy.deepcopy(raw)
    text = raw.get("text_config", raw)
    raw["torch_dtype"] = raw.pop("dtype")
    rope = text.pop("rope_parameters")
    text.pop("_sliding_window_pattern", None)
    if "full_attention" in rope:
        text["rope_theta"] = rope["full_attention"].pop("rope_theta")
        text["rope_scaling"] = rope["full_attention"]
        text["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        text["sliding_window_pattern"] = 2
    else:
        text["rope_theta"] = rope["rope_theta"]
        text["rope_scaling"] = None
    text.pop("layer_types", None)
    return raw


def test_the_list_of_architectures() -> None:
    assert supported() == sorted(ALL + FAMILIES)


@pytest.mark.parametrize("model_type", ALL)
def test_both_forms_give_one_spec(model_type: str) -> None:
    module = import_module(f"saragossa.models.{model_type}")
    raw = config(model_type)
    assert older(raw) != raw
    assert module.build(older(raw), {}) == module.build(raw, {})


@pytest.mark.parametrize("model_type", ALL)
def test_common_fields(model_type: str) -> None:
    spec = build(model_type)
    decoder = spec.decoder
    assert spec.model_type == model_type
    assert (decoder.vocab, decoder.hidden, len(decoder.layers)) == (96, 64, 3)
    assert (decoder.norm_eps, decoder.max_context) == (1e-5, 512)
    assert (layer(spec).attention.heads, layer(spec).attention.kv_heads) == (4, 2)
    assert layer(spec).mlp.intermediate == 128
    assert spec.dtype == "bfloat16"
    assert spec.quantization is None
    roles = [item.role for item in spec.tensors]
    assert len(set(roles)) == len(roles)
    assert len({item.name for item in spec.tensors}) == len(roles)
    assert ("head" in roles) != decoder.tied


def test_llama() -> None:
    spec = build("llama")
    attention = layer(spec).attention
    assert (attention.head_dim, attention.scale, attention.window) == (16, 0.25, 0)
    assert not any((attention.qkv_bias, attention.o_bias, attention.q_norm, layer(spec).mlp.bias))
    assert spec.tensors[0].name == "model.embed_tokens"
    assert shapes(spec)["layers.2.k"] == (32, 64)
    assert shapes(spec)["layers.0.down"] == (64, 128)
    assert shapes(spec)["head"] == (96, 64)
    assert not any(item.plus_one for item in spec.tensors)
    names = {item.role: item.name for item in spec.tensors}
    assert names["layers.1.mlp_norm"] == "model.layers.1.post_attention_layernorm.weight"
    assert names["layers.1.gate"] == "model.layers.1.mlp.gate_proj"
    assert names["norm"] == "model.norm.weight"


def test_llama_biases_and_head_dim() -> None:
    spec = build("llama", attention_bias=True, mlp_bias=True, head_dim=32)
    attention = layer(spec).attention
    assert attention.qkv_bias
    assert attention.o_bias
    assert layer(spec).mlp.bias
    assert attention.scale == 32**-0.5
    assert shapes(spec)["layers.0.q"] == (128, 64)
    assert shapes(spec)["layers.0.q.bias"] == (128,)
    assert shapes(spec)["layers.0.o.bias"] == (64,)
    assert shapes(spec)["layers.0.up.bias"] == (128,)
    names = {item.role: item.name for item in spec.tensors}
    assert names["layers.0.o.bias"] == "model.layers.0.self_attn.o_proj.bias"


def test_llama_without_kv_heads_has_one_for_each_head() -> None:
    assert layer(build("llama", num_key_value_heads=...)).attention.kv_heads == 4
    assert layer(build("llama", num_key_value_heads=None)).attention.kv_heads == 4


def test_smollm2_and_other_finds_on_the_hub() -> None:
    extra = {"is_llama_config": True, "rope_interleaved": False, "transformers.js_config": {"dtype": "q4"}}
    assert build("llama", **extra) == build("llama")
    assert build("qwen2", use_mrope=False) == build("qwen2")


@pytest.mark.parametrize(
    ("window", "expected"), [(None, 0), (16, 16), (..., 4096)], ids=["null", "number", "left out"]
)
def test_mistral_window(window: Any, expected: int) -> None:
    spec = build("mistral", sliding_window=window)
    assert {item.attention.window for item in spec.decoder.layers} == {expected}
    assert layer(spec).attention.head_dim == 32


def test_mistral_layer_types_must_agree_with_the_window() -> None:
    kinds = ["sliding_attention"] * 3
    assert layer(build("mistral", sliding_window=8, layer_types=kinds)).attention.window == 8
    with pytest.raises(ConfigError, match="layer_types and sliding_window contradict"):
        build("mistral", sliding_window=None, layer_types=kinds)
    with pytest.raises(ConfigError, match="layer_types and sliding_window contradict"):
        build("mistral", sliding_window=8, layer_types=["full_attention", *kinds[1:]])


def test_qwen2_has_biases_on_q_k_v_only() -> None:
    spec = build("qwen2")
    assert layer(spec).attention.qkv_bias
    assert not layer(spec).attention.o_bias
    assert shapes(spec)["layers.0.v.bias"] == (32,)
    assert "layers.0.o.bias" not in shapes(spec)
    assert build("qwen2", attention_bias=True) == spec
    with pytest.raises(ConfigError, match="attention_bias is False; only True"):
        build("qwen2", attention_bias=False)


def test_qwen_windows() -> None:
    def windows(**changes: Any) -> list[int]:
        return [item.attention.window for item in build("qwen2", **changes).decoder.layers]

    assert windows(use_sliding_window=False, sliding_window=8, layer_types=...) == [0, 0, 0]
    assert windows(use_sliding_window=True, sliding_window=8, layer_types=...) == [0, 0, 8]
    assert windows(use_sliding_window=True, sliding_window=None, layer_types=...) == [0, 0, 0]
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    assert windows(use_sliding_window=True, sliding_window=8, layer_types=kinds) == [8, 0, 8]
    with pytest.raises(ConfigError, match="use_sliding_window is false"):
        windows(use_sliding_window=False, sliding_window=8, layer_types=kinds)


def test_qwen3() -> None:
    spec = build("qwen3")
    attention = layer(spec).attention
    assert attention.q_norm
    assert attention.k_norm
    assert not attention.qkv_bias
    assert shapes(spec)["layers.0.q_norm"] == (32,)
    assert layer(build("qwen3", head_dim=...)).attention.head_dim == 128
    biased = layer(build("qwen3", attention_bias=True)).attention
    assert biased.qkv_bias
    assert biased.o_bias


def test_gemma3_text() -> None:
    spec = build("gemma3_text")
    decoder = spec.decoder
    assert decoder.embed_scale == 8.0
    assert decoder.tied
    assert [(item.attention.window, item.attention.rope) for item in decoder.layers] == [
        (16, 1),
        (0, 0),
        (16, 1),
    ]
    assert layer(spec).attention.scale == 0.125  # query_pre_attn_scalar 64, not head_dim 32
    assert layer(spec).mlp.activation == "gelu_tanh"
    assert layer(spec).post_norms
    full, sliding = decoder.ropes
    assert full.inv_freq[0] == 0.125  # linear scaling on the full layers alone
    assert sliding.inv_freq[0] == 1.0
    assert sliding.inv_freq[1] == pytest.approx(1e4 ** (-2 / 32), rel=1e-6)
    assert (decoder.final_softcap, layer(spec).attention.softcap) == (0.0, 0.0)
    for item in spec.tensors:
        assert item.plus_one == ("norm" in item.role), item.role
    names = {item.role: item.name for item in spec.tensors}
    assert names["layers.0.attn_post_norm"] == "model.layers.0.post_attention_layernorm.weight"
    assert names["layers.0.mlp_norm"] == "model.layers.0.pre_feedforward_layernorm.weight"
    assert names["layers.0.mlp_post_norm"] == "model.layers.0.post_feedforward_layernorm.weight"


def test_gemma3_softcaps_and_pattern() -> None:
    spec = build(
        "gemma3_text",
        layer_types=...,
        num_hidden_layers=7,
        final_logit_softcapping=30.0,
        attn_logit_softcapping=50.0,
    )
    assert [bool(item.attention.window) for item in spec.decoder.layers] == [True] * 5 + [False, True]
    assert spec.decoder.final_softcap == 30.0
    assert layer(spec).attention.softcap == 50.0


def test_gemma3_rope_defaults_and_contradictions() -> None:
    plain = build("gemma3_text", rope_parameters=...)
    assert plain.decoder.ropes[0].inv_freq[1] == pytest.approx(1e6 ** (-2 / 32), rel=1e-6)
    assert plain.decoder.ropes[1].inv_freq[1] == pytest.approx(1e4 ** (-2 / 32), rel=1e-6)
    with pytest.raises(ConfigError, match="full_attention and sliding_attention are wanted"):
        build("gemma3_text", rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    with pytest.raises(ConfigError, match=r"rope_theta is 5000\.0"):
        build("gemma3_text", rope_local_base_freq=5000.0)


def test_gemma3_multimodal_equals_its_text_model() -> None:
    spec = build("gemma3")
    assert spec.decoder == build("gemma3_text").decoder
    assert [item.role for item in spec.tensors] == [item.role for item in build("gemma3_text").tensors]


def test_gemma3_text_config_defaults_are_those_of_transformers() -> None:
    raw = config(
        "gemma3", text_config={"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34}
    )
    spec = import_module("saragossa.models.gemma3").build(raw, {})
    attention = spec.decoder.layers[0].attention
    assert (attention.heads, attention.kv_heads, attention.head_dim, attention.window) == (8, 4, 256, 4096)
    assert (spec.decoder.vocab, spec.decoder.layers[0].mlp.intermediate) == (262_208, 9216)
    assert spec.decoder.max_context == 131_072
    assert spec.decoder.layers[5].attention.window == 0


def test_gemma3_outer_keys() -> None:
    untied = gemma3({}, tie_word_embeddings=False)
    assert untied.tensors[-1].role == "head"
    assert gemma3({"vocab_size": ...}, vocab_size=96).decoder.vocab == 96
    with pytest.raises(ConfigError, match=r"vocab_size is 97, text_config.vocab_size 96"):
        gemma3({}, vocab_size=97)
    with pytest.raises(ConfigError, match=r"text_config.model_type is 'gemma2'"):
        gemma3({"model_type": "gemma2"})
    with pytest.raises(ConfigError, match=r"unknown key text_config.slidng_window; .* sliding_window"):
        gemma3({"slidng_window": 3})


@pytest.mark.parametrize(
    ("prefix", "head"),
    [
        ("model.", "lm_head"),
        ("model.language_model.", "lm_head"),
        ("language_model.model.", "language_model.lm_head"),
        ("", "lm_head"),
    ],
)
def test_prefix_follows_the_checkpoint(prefix: str, head: str) -> None:
    spec = build("gemma3", f"{prefix}embed_tokens.weight", tie_word_embeddings=False)
    assert spec.tensors[0].name == f"{prefix}embed_tokens"
    assert spec.tensors[1].name.startswith(f"{prefix}layers.0.")
    assert spec.tensors[-1].name == head


@pytest.mark.parametrize("model_type", ALL)
def test_tied_models_name_their_head(model_type: str) -> None:
    assert build(model_type, tie_word_embeddings=True).tied_head_name == "lm_head"
    assert build(model_type, tie_word_embeddings=False).tied_head_name is None


# --- strictness ---


@pytest.mark.parametrize("model_type", ALL)
def test_unknown_key_is_named_with_the_nearest(model_type: str) -> None:
    with pytest.raises(ConfigError, match=r"unknown key tie_word_embedings; .* tie_word_embeddings"):
        build(model_type, tie_word_embedings=True)
    with pytest.raises(ConfigError, match=r"unknown key num_experts \("):
        build(model_type, num_experts=4)


def test_every_noise_key_is_listed_as_ignored() -> None:
    assert set(NOISE) <= IGNORED


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": ...}, "hidden_size is missing"),
        ({"hidden_size": "64"}, "hidden_size is '64'"),
        ({"hidden_size": 0}, "hidden_size is 0"),
        ({"hidden_size": True}, "hidden_size is True"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu'; supported: silu, swish, gelu_pytorch_tanh"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"pretraining_tp": 2}, "pretraining_tp is 2; only 1 or None is supported"),
        ({"rope_interleaved": True}, "rope_interleaved is True"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder is True; only False"),
        ({"num_key_value_heads": 3}, "num_attention_heads 4 is no multiple of num_key_value_heads 3"),
        ({"hidden_size": 66}, "hidden_size 66 is no multiple of num_attention_heads 4"),
        ({"head_dim": 15}, "head_dim is 15"),
        ({"rms_norm_eps": 0}, "rms_norm_eps is 0"),
        ({"dtype": "float8_e4m3fn"}, "dtype is 'float8_e4m3fn'; supported: float32, float16, bfloat16"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes'"),
        ({"rope_parameters": [1]}, r"rope_parameters is \[1\]"),
    ],
)
def test_bad_values_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build("llama", **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_types": ["full_attention"] * 2}, "layer_types has 2 entries, num_hidden_layers is 3"),
        (
            {"layer_types": ["full_attention", "chunked_attention", "full_attention"]},
            "'chunked_attention'; supp",
        ),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention is True"),
        ({"hidden_activation": "gelu"}, "hidden_activation is 'gelu'"),
        ({"sliding_window": None}, "sliding_window is null"),
    ],
)
def test_bad_gemma3_values_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build("gemma3_text", **changes)


def test_dtype_in_all_its_spellings() -> None:
    assert build("llama", dtype=..., torch_dtype="float16").dtype == "float16"
    assert build("llama", dtype="torch.float32").dtype == "float32"
    assert build("llama", dtype=...).dtype == "bfloat16"
    assert build("llama", dtype="auto").dtype == "bfloat16"


def test_quantization_block_reaches_the_spec() -> None:
    block = {"bits": 4, "group_size": 64}
    assert build("llama", quantization=block).quantization == block
    assert build("llama", quantization_config=block).quantization == block
    assert gemma3({"quantization": block}).quantization == block
    assert build("gemma3", quantization=block).quantization == block


def test_spec_is_hashable_without_its_quantization() -> None:
    spec = build("llama", quantization={"bits": 4, "group_size": 64})
    assert hash(spec) == hash(replace(spec, quantization=None))
