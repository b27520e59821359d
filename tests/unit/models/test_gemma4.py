"""Gemma 4 configs, in every form, to specs."""

from importlib import import_module
from typing import Any

import pytest

import families as f
from families import FULL, GEMMA_MOE, GEMMA_SMALL, K_EQ_V, SLIDING
from saragossa.errors import ConfigError
from saragossa.models.spec import AttentionSpec, ModelSpec, TensorSpec


def build(raw: dict[str, Any], shapes: f.Shapes | None = None) -> ModelSpec:
    module = import_module(f"saragossa.models.{raw['model_type']}")
    spec: ModelSpec = module.build(raw, f.index_of(shapes or {}))
    return spec


def text(**changes: Any) -> ModelSpec:
    return build(f.gemma4_text(**changes))


def tensor(spec: ModelSpec, role: str) -> TensorSpec:
    return next(item for item in spec.tensors if item.role == role)


def roles(spec: ModelSpec) -> set[str]:
    return {item.role for item in spec.tensors}


def attention(spec: ModelSpec, i: int) -> AttentionSpec:
    found = spec.decoder.layers[i].attention
    assert found is not None
    return found


def older(raw: dict[str, Any]) -> dict[str, Any]:
    """The Hub's keys: sizes of the full layers beside those of the others."""
    inner = raw.get("text_config", raw)
    sizes = inner.pop("per_layer_config")["1"]
    inner["global_head_dim"] = sizes["head_dim"]
    inner["num_global_key_value_heads"] = sizes.get("num_key_value_heads")
    return raw


def test_layers_of_both_kinds() -> None:
    spec = text()
    sliding, full = attention(spec, 0), attention(spec, 1)
    assert (sliding.head_dim, sliding.window, sliding.kv_heads) == (32, 16, 2)
    assert (full.head_dim, full.window, full.kv_heads) == (48, 0, 2)
    for a in (sliding, full):
        assert (a.scale, a.q_norm, a.k_norm, a.v_norm, a.v_is_k, a.kv_from) == (
            1.0,
            True,
            True,
            True,
            False,
            None,
        )
    local, whole = spec.decoder.ropes[sliding.rope], spec.decoder.ropes[full.rope]
    assert (local.dims, local.inv_freq[1]) == (32, pytest.approx(1e4 ** (-2 / 32), rel=1e-6))
    # Over the whole head, zeros behind its first quarter.
    assert (whole.dims, len(whole.inv_freq)) == (48, 24)
    assert whole.inv_freq[5] == pytest.approx(1e6 ** (-10 / 48), rel=1e-6)
    assert whole.inv_freq[6:] == (0.0,) * 18
    layer = spec.decoder.layers[0]
    assert (layer.post_norms, layer.layer_scalar, layer.per_layer_input) == (True, True, 0)
    assert layer.mlp is not None
    assert layer.mlp.activation == "gelu_tanh"
    assert (spec.decoder.embed_scale, spec.decoder.final_softcap, spec.decoder.tied) == (8.0, 30.0, True)
    assert not any(item.plus_one for item in spec.tensors)
    assert tensor(spec, "layers.4.layer_scalar").name == "model.layers.4.layer_scalar"


@pytest.mark.parametrize(
    "raw",
    [
        f.gemma4_text(),
        f.gemma4_text(**K_EQ_V),
        f.gemma4(),
        f.gemma4({**K_EQ_V, **GEMMA_MOE}),
        f.gemma4(K_EQ_V, "gemma4_unified"),
        f.gemma4_text(**GEMMA_SMALL),
    ],
)
def test_older_and_newer_keys_give_one_spec(raw: dict[str, Any]) -> None:
    expected = build(raw)
    assert build(older(raw)) == expected


def test_overrides_by_kind_and_by_layer() -> None:
    by_layer = text(**K_EQ_V)
    kinds = {FULL: {"head_dim": 48, "num_key_value_heads": 1}}
    assert text(attention_k_eq_v=True, per_layer_config=kinds) == by_layer
    both = text(**K_EQ_V, global_head_dim=48, num_global_key_value_heads=1)
    assert both == by_layer
    assert attention(text(per_layer_config=...), 1).head_dim == 512  # transformers' default
    assert attention(text(per_layer_config=..., global_head_dim=None), 1).head_dim == 32


def test_values_that_are_the_keys() -> None:
    spec = text(**K_EQ_V)
    sliding, full = attention(spec, 0), attention(spec, 1)
    assert (sliding.v_is_k, sliding.kv_heads) == (False, 2)
    assert (full.v_is_k, full.v_norm, full.kv_heads) == (True, True, 1)
    assert "layers.0.v" in roles(spec)
    assert "layers.1.v" not in roles(spec)
    assert tensor(spec, "layers.1.k").shape == (48, 64)
    # The number of key heads of full layers counts only with attention_k_eq_v, as in transformers.
    plain = text(per_layer_config=..., global_head_dim=48, num_global_key_value_heads=1)
    assert attention(plain, 1).kv_heads == 2


def test_shared_keys() -> None:
    spec = text(**GEMMA_SMALL)
    assert [attention(spec, i).kv_from for i in range(6)] == [None, None, None, None, 2, 3]
    shared = attention(spec, 4)
    assert (shared.q_norm, shared.k_norm, shared.v_norm) == (True, False, False)
    assert {"layers.4.k", "layers.5.v", "layers.4.k_norm"}.isdisjoint(roles(spec))
    widths = [layer.mlp.intermediate for layer in spec.decoder.layers if layer.mlp]
    assert widths == [128] * 4 + [256] * 2
    for part in ("k_proj.weight", "v_proj.scales", "k_norm.weight"):
        assert f"model.layers.5.self_attn.{part}".startswith(spec.ignored_prefixes)
        assert not f"model.layers.3.self_attn.{part}".startswith(spec.ignored_prefixes)
    k_eq_v = text(**GEMMA_SMALL, **K_EQ_V)
    assert [attention(k_eq_v, i).v_is_k for i in (3, 5)] == [True, False]


def test_per_layer_inputs() -> None:
    spec = text(**GEMMA_SMALL)
    assert spec.decoder.per_layer_vocab == 96
    assert {layer.per_layer_input for layer in spec.decoder.layers} == {16}
    assert tensor(spec, "per_layer_embed").shape == (96, 6 * 16)
    assert tensor(spec, "per_layer_model_proj").shape == (6 * 16, 64)
    assert tensor(spec, "per_layer_model_norm").name == "model.per_layer_projection_norm.weight"
    assert tensor(spec, "layers.2.per_layer_gate").shape == (16, 64)
    assert tensor(spec, "layers.2.per_layer_proj").shape == (64, 16)
    assert tensor(spec, "layers.2.per_layer_norm").name == "model.layers.2.post_per_layer_input_norm.weight"
    without = text(hidden_size_per_layer_input=None)
    assert without.decoder.per_layer_vocab == 0
    assert not any("per_layer" in role for role in roles(without))


@pytest.mark.parametrize("form", ["single", "fused", "mlx"])
def test_experts_beside_the_mlp(form: str) -> None:
    raw = f.gemma4({**K_EQ_V, **GEMMA_MOE})
    prefix = "language_model.model." if form == "mlx" else "model.language_model."
    spec = build(raw, f.gemma_tensors(prefix, k_eq_v=True, moe=form))
    layer = spec.decoder.layers[0]
    moe = layer.moe
    assert moe is not None
    assert layer.mlp is not None
    assert (moe.experts, moe.top_k, moe.intermediate, moe.activation) == (5, 2, 32, "gelu_tanh")
    assert (moe.renormalize, moe.router_norm, moe.shared_intermediate) == (True, True, 0)
    assert moe.fused_gate_up == (form == "fused")
    norm = tensor(spec, "layers.0.router_norm")
    assert (norm.name, norm.shape, norm.factor) == (f"{prefix}layers.0.router.scale", (64,), 0.125)
    names = {
        "router": "router.proj",
        "router_scale": "router.per_expert_scale",
        "moe_norm": "pre_feedforward_layernorm_2.weight",
        "moe_post_norm": "post_feedforward_layernorm_2.weight",
        "dense_post_norm": "post_feedforward_layernorm_1.weight",
    }
    for role, name in names.items():
        assert tensor(spec, f"layers.0.{role}").name == f"{prefix}layers.0.{name}"
    down = tensor(spec, "layers.0.experts_down")
    expected = {"single": "experts.*", "fused": "experts", "mlx": "experts.switch_glu"}[form]
    assert down.name == f"{prefix}layers.0.{expected}.down_proj"
    assert down.shape == (5 * 64, 32)


def test_multimodal_and_unified() -> None:
    plain = text(**K_EQ_V).decoder
    assert build(f.gemma4(K_EQ_V)).decoder == plain
    assert build(f.gemma4(K_EQ_V, "gemma4_unified")).decoder == plain
    unified = build({**f.gemma4_text(**K_EQ_V), "model_type": "gemma4_unified_text"})
    assert (unified.decoder, unified.model_type) == (plain, "gemma4_unified_text")
    ignored = build(f.gemma4(model_type="gemma4_unified")).ignored_prefixes
    for name in ("model.vision_tower.x", "audio_tower.x", "model.embed_audio.x", "vision_embedder.x"):
        assert name.startswith(ignored)


def test_defaults_of_transformers() -> None:
    raw = {"model_type": "gemma4_text", "num_hidden_layers": 7}
    spec = build(raw)
    assert [attention(spec, i).window for i in range(7)] == [512] * 5 + [0, 0]  # the last one is full
    assert (spec.decoder.hidden, spec.decoder.vocab, attention(spec, 5).head_dim) == (2304, 262_144, 512)
    assert spec.decoder.layers[0].per_layer_input == 256
    unified = build({**raw, "model_type": "gemma4_unified_text"})
    assert (attention(unified, 0).window, unified.decoder.max_context) == (1024, 262_144)
    assert unified.decoder.layers[0].per_layer_input == 0
    pattern = build({**raw, "num_hidden_layers": 4, "sliding_window_pattern": 2})
    assert [bool(attention(pattern, i).window) for i in range(4)] == [True, False, True, False]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_types": [FULL, SLIDING] * 3}, "layer_types ends with sliding_attention"),
        ({"layer_types": [SLIDING, "linear_attention"] * 3}, "layer_types has 'linear_attention'; supported"),
        ({"layer_types": [FULL]}, "layer_types has 1 entries, num_hidden_layers is 6"),
        ({"per_layer_config": {"6": {}}}, "per_layer_config has '6'; a layer from 0 to 5"),
        ({"per_layer_config": {"1": {"heads": 3}}}, "per_layer_config.1 has 'heads'; supported: head_dim"),
        ({"per_layer_config": {"1": {"head_dim": "48"}}}, "per_layer_config.1.head_dim is '48'"),
        ({"per_layer_config": {"1": {"head_dim": 47}}}, "head_dim is 47"),
        ({"global_head_dim": 64}, "per_layer_config gives layer 1 head_dim 48, the global keys 64"),
        ({"num_kv_shared_layers": 6}, "num_kv_shared_layers is 6 of 6 layers"),
        ({"num_kv_shared_layers": 5}, "layer 1 shares keys of a full_attention layer, but none"),
        (
            {"num_kv_shared_layers": 2, "per_layer_config": {"5": {"head_dim": 64}}},
            r"layer 5 shares keys of layer 3, but its head_dim and num_key_value_heads are \(64, 2\)",
        ),
        ({**GEMMA_MOE, "num_experts": None}, "num_experts is missing, but enable_moe_block is true"),
        ({**GEMMA_MOE, "moe_intermediate_size": None}, "moe_intermediate_size is missing"),
        ({**GEMMA_MOE, "top_k_experts": 9}, "top_k_experts is 9, there are 5 experts"),
        ({**GEMMA_MOE, "num_local_experts": 4}, "num_experts is 5 and num_local_experts 4"),
        (
            {**GEMMA_MOE, "num_experts": 4096, "num_hidden_layers": 65, "layer_types": ...},
            "65 layers of 4096",
        ),
        ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention is 'all'"),
        ({"attention_bias": True}, "attention_bias is True; only False"),
        ({"hidden_activation": "gelu"}, "hidden_activation is 'gelu'"),
        (
            {"rope_parameters": {"rope_theta": 1e4}},
            r"rope_parameters has \['rope_theta'\]; full_attention and",
        ),
        ({"rope_parameters": {FULL: {"rope_theta": 1e6}}}, "rope_parameters has no sliding_attention"),
        (
            {"rope_parameters": {FULL: 3, SLIDING: {"rope_theta": 1e4}}},
            r"rope_parameters\.full_attention is 3",
        ),
        (
            {"rope_parameters": {FULL: {"rope_type": "wave"}, SLIDING: {"rope_theta": 1e4}}},
            "rope_type 'wave'",
        ),
        ({"rope_theta": 1e4}, "rope_theta and partial_rotary_factor belong into rope_parameters"),
        ({"slidng_window": 3}, "unknown key slidng_window; the nearest known one is sliding_window"),
    ],
)
def test_bad_values_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        text(**changes)


def test_unified_has_neither_experts_nor_per_layer_inputs() -> None:
    for changes, key in ((GEMMA_MOE, "enable_moe_block"), (GEMMA_SMALL, "hidden_size_per_layer_input")):
        with pytest.raises(ConfigError, match=f"text_config.{key}"):
            build(f.gemma4(changes, "gemma4_unified"))
