"""Qwen3 MoE, Qwen3-Next and Qwen3.5 configs, in every form, to specs."""

from importlib import import_module
from typing import Any

import pytest

import families as f
from families import FULL, LINEAR
from saragossa.errors import ConfigError, WeightsError
from saragossa.models.spec import AttentionSpec, DeltaSpec, ModelSpec, TensorSpec

CONFIGS = f.qwen()
HYBRID = [name for name in CONFIGS if name != "qwen3_moe"]
MOE = [name for name in CONFIGS if "moe" in name or "next" in name]


def build(
    model_type: str, raw: dict[str, Any] | None = None, form: str = "single", mtp: bool = False, **more: Any
) -> ModelSpec:
    index = f.index_of(f.qwen_tensors(model_type, form, **more))
    options = {"mtp": True} if mtp else {}
    module = import_module(f"saragossa.models.{model_type}")
    spec: ModelSpec = module.build(CONFIGS[model_type] if raw is None else raw, index, **options)
    return spec


def text_changed(model_type: str, /, **changes: Any) -> dict[str, Any]:
    raw = CONFIGS[model_type]
    if "text_config" in raw:
        return {**raw, "text_config": f.changed(raw["text_config"], changes)}
    return f.changed(raw, changes)


def tensor(spec: ModelSpec, role: str) -> TensorSpec:
    return next(item for item in spec.tensors if item.role == role)


def older(model_type: str) -> dict[str, Any]:
    """The Hub's older keys."""
    raw = text_changed(model_type)
    text = raw.get("text_config", raw)
    rope = text.pop("rope_parameters")
    text["rope_theta"], text["rope_scaling"] = rope["rope_theta"], None
    if "partial_rotary_factor" in rope:
        text["partial_rotary_factor"] = rope["partial_rotary_factor"]
    if text.pop("layer_types", None):
        text["full_attention_interval"] = 4
    if "num_local_experts" in text:
        text["num_experts"] = text.pop("num_local_experts")
    text["torch_dtype"] = text.pop("dtype", "bfloat16")
    text |= {"mlp_only_layers": text.get("mlp_only_layers", [])}
    return raw


@pytest.mark.parametrize("model_type", CONFIGS)
def test_older_and_newer_keys_give_one_spec(model_type: str) -> None:
    assert build(model_type, older(model_type)) == build(model_type)


@pytest.mark.parametrize("model_type", CONFIGS)
def test_every_tensor_has_a_role_and_the_other_way_round(model_type: str) -> None:
    for form in ("single", "fused", "mlx"):
        spec = build(model_type, form=form)
        roles = [item.role for item in spec.tensors]
        assert len(set(roles)) == len(roles)
        held = f.qwen_tensors(model_type, form)
        asked = {
            f"{name}.weight" if item.module else name
            for item in spec.tensors
            for name in item.stack or (item.name,)
        }
        assert asked == set(held)


def test_qwen3_moe() -> None:
    spec = build("qwen3_moe")
    first, middle, _ = spec.decoder.layers
    moe = first.moe
    assert moe is not None
    assert (moe.experts, moe.top_k, moe.intermediate, moe.renormalize) == (5, 2, 32, True)
    assert (moe.shared_intermediate, moe.shared_gate, moe.fused_gate_up, moe.router_norm) == (
        0,
        False,
        False,
        False,
    )
    assert first.mlp is None
    assert middle.moe is None
    assert middle.mlp is not None
    assert middle.mlp.intermediate == 128
    assert isinstance(first.attention, AttentionSpec)
    assert first.attention.q_norm
    assert not first.attention.gate
    assert tensor(spec, "layers.0.router").name == "model.layers.0.mlp.gate"
    assert not any(item.plus_one for item in spec.tensors)


def test_qwen3_moe_sparse_layers() -> None:
    def sparse(**changes: Any) -> list[bool]:
        raw = text_changed("qwen3_moe", num_hidden_layers=6, **changes)
        module = import_module("saragossa.models.qwen3_moe")
        return [layer.moe is not None for layer in module.build(raw, {}).decoder.layers]

    assert sparse(mlp_only_layers=None) == [True] * 6
    assert sparse(mlp_only_layers=[], decoder_sparse_step=2) == [False, True] * 3
    assert sparse(mlp_only_layers=[3], decoder_sparse_step=2) == [False, True, False, False, False, True]
    with pytest.raises(ConfigError, match="mlp_only_layers has 6; layers are 0 to 5"):
        sparse(mlp_only_layers=[6])


def test_qwen3_moe_renormalises_only_when_told() -> None:
    for value, expected in ((..., False), (False, False), (True, True)):
        moe = build("qwen3_moe", text_changed("qwen3_moe", norm_topk_prob=value)).decoder.layers[0].moe
        assert moe is not None
        assert moe.renormalize is expected


@pytest.mark.parametrize("model_type", HYBRID)
def test_hybrid_layers(model_type: str) -> None:
    spec = build(model_type)
    delta, full = spec.decoder.layers[0], spec.decoder.layers[3]
    assert [layer.attention is None for layer in spec.decoder.layers] == [True, True, True, False]
    assert delta.delta == DeltaSpec(2, 6, 8, 12, conv_width=3)
    assert delta.delta is not None
    assert delta.delta.channels == f.CHANNELS
    assert full.delta is None
    attention = full.attention
    assert attention is not None
    assert (attention.heads, attention.kv_heads, attention.head_dim) == (4, 2, 32)
    assert attention.gate
    assert attention.q_norm
    assert attention.k_norm
    assert (delta.moe is not None) == (model_type in MOE)
    assert (delta.mlp is None) == (model_type in MOE)
    rope = spec.decoder.ropes[0]
    assert rope.dims == 8
    assert rope.inv_freq[1] == pytest.approx(1e7 ** (-2 / 8), rel=1e-6)


@pytest.mark.parametrize("model_type", [name for name in HYBRID if name in MOE])
def test_shared_expert(model_type: str) -> None:
    spec = build(model_type)
    moe = spec.decoder.layers[0].moe
    assert moe is not None
    assert (moe.shared_intermediate, moe.shared_gate, moe.renormalize) == (48, True, True)
    assert tensor(spec, "layers.0.shared_gate").shape == (1, 64)
    assert tensor(spec, "layers.2.shared_gate_proj").shape == (48, 64)
    assert tensor(spec, "layers.2.shared_down").shape == (64, 48)


@pytest.mark.parametrize("model_type", HYBRID)
def test_gate_rows_alternate_with_the_queries(model_type: str) -> None:
    spec = build(model_type)
    q, gate = tensor(spec, "layers.3.q"), tensor(spec, "layers.3.q_gate")
    assert q.name == gate.name
    assert q.shape == gate.shape == (128, 64)
    assert q.rows == ((0, 32), (64, 32), (128, 32), (192, 32))
    assert gate.rows == ((32, 32), (96, 32), (160, 32), (224, 32))
    assert q.stored_rows == gate.stored_rows == 256


def test_qwen3_next_projections_are_cut_by_key_head() -> None:
    spec = build("qwen3_next")
    # A key head: 8 of q, 8 of k, 3 x 12 of v, 3 x 12 of z.
    qkv, z = tensor(spec, "layers.0.delta_qkv"), tensor(spec, "layers.0.delta_z")
    assert qkv.rows == ((0, 8), (88, 8), (8, 8), (96, 8), (16, 36), (104, 36))
    assert z.rows == ((52, 36), (140, 36))
    assert qkv.stored_rows == z.stored_rows == 176
    assert (qkv.shape, z.shape) == ((f.CHANNELS, 64), (f.VALUES, 64))
    b, a = tensor(spec, "layers.0.delta_b"), tensor(spec, "layers.0.delta_a")
    assert b.rows == ((0, 3), (6, 3))
    assert a.rows == ((3, 3), (9, 3))
    taken = sorted(
        row for item in (qkv, z) for start, count in item.rows for row in range(start, start + count)
    )
    assert taken == list(range(176))


def test_one_key_head_needs_no_copy() -> None:
    sizes = {"linear_num_key_heads": 1, "linear_num_value_heads": 3}
    spec = import_module("saragossa.models.qwen3_next").build(text_changed("qwen3_next", **sizes), {})
    assert tensor(spec, "layers.0.delta_qkv").rows == ((0, 52),)


@pytest.mark.parametrize("model_type", HYBRID)
def test_norms_follow_the_layout_of_the_convolution(model_type: str) -> None:
    for form, plus_one in (("single", True), ("fused", True), ("mlx", False)):
        spec = build(model_type, form=form)
        for item in spec.tensors:
            is_norm = "norm" in item.role and not item.role.endswith("delta_norm")
            assert item.plus_one == (plus_one and is_norm), item.role
        conv = tensor(spec, "layers.0.delta_conv")
        assert conv.shape == (f.CHANNELS, 3)
        assert conv.stored == ((f.CHANNELS, 3, 1) if form == "mlx" else (f.CHANNELS, 1, 3))


def test_norms_without_a_convolution() -> None:
    """A model of full layers alone says nothing by its shapes: MLX's names and quantised files have w."""
    module = import_module("saragossa.models.qwen3_5_text")
    raw = text_changed("qwen3_5_text", layer_types=[FULL] * 4)

    def plus_one(raw: dict[str, Any], prefix: str) -> bool:
        spec = module.build(raw, {f"{prefix}embed_tokens.weight": f.Entry((96, 64))})
        return tensor(spec, "norm").plus_one

    assert plus_one(raw, "model.")
    assert plus_one(raw, "model.language_model.")
    assert not plus_one(raw, "language_model.model.")
    assert not plus_one({**raw, "quantization": {"bits": 4, "group_size": 32}}, "model.")


@pytest.mark.parametrize("model_type", MOE)
def test_forms_of_experts(model_type: str) -> None:
    single, fused, mlx = (build(model_type, form=form) for form in ("single", "fused", "mlx"))
    gate = tensor(single, "layers.0.experts_gate")
    assert gate.shape == (5 * 32, 64)
    assert gate.stack == tuple(f"model.layers.0.mlp.experts.{i}.gate_proj" for i in range(5))
    assert gate.module
    both = tensor(fused, "layers.0.experts_gate_up")
    assert (both.name, both.shape, both.stored) == (
        "model.layers.0.mlp.experts.gate_up_proj", (5 * 64, 64), (5, 64, 64),
    )  # fmt: skip
    assert not both.module
    moe = fused.decoder.layers[0].moe
    assert moe is not None
    assert moe.fused_gate_up
    down = tensor(mlx, "layers.0.experts_down")
    assert (down.name, down.shape, down.stored) == (
        "model.layers.0.mlp.switch_mlp.down_proj", (5 * 64, 32), (5, 64, 32),
    )  # fmt: skip
    assert down.module


@pytest.mark.parametrize("model_type", ["qwen3_5", "qwen3_5_moe"])
def test_multimodal(model_type: str) -> None:
    spec = build(model_type, prefix="model.language_model.")
    assert spec.decoder == build(f"{model_type}_text").decoder
    for name in ("model.visual.blocks.0.attn.qkv.weight", "vision_tower.x", "mtp.fc.weight"):
        assert name.startswith(spec.ignored_prefixes)
    assert not "model.language_model.layers.0".startswith(spec.ignored_prefixes)
    wrapped = build(model_type, prefix="language_model.model.", head="language_model.lm_head", form="mlx")
    assert tensor(wrapped, "head").name == "language_model.lm_head"
    flat = build(model_type, CONFIGS[f"{model_type}_text"])  # mlx-lm reads one without text_config
    assert flat.decoder == spec.decoder
    with pytest.raises(ConfigError, match=r"text_config.model_type is 'llama'"):
        build(model_type, text_changed(model_type, model_type="llama"))


@pytest.mark.parametrize(
    ("outer", "inner", "tied"),
    [(True, False, True), (False, True, False), (..., True, True), (..., False, False), (..., ..., False)],
)
def test_who_says_that_the_head_is_tied(outer: Any, inner: Any, tied: bool) -> None:
    raw = f.changed(text_changed("qwen3_5", tie_word_embeddings=inner), {"tie_word_embeddings": outer})
    assert build("qwen3_5", raw).decoder.tied is tied


# --- load-08: which channels rotate ---------------------------------------------------------------

WAYS: dict[str, dict[str, Any]] = {
    "in rope_parameters": {"rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25}},
    "at the top level": {"rope_parameters": {"rope_theta": 1e7}, "partial_rotary_factor": 0.25},
    "in both": {
        "rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25},
        "partial_rotary_factor": 0.25,
    },
    "in neither": {"rope_parameters": {"rope_theta": 1e7}},
    "in neither, older keys": {"rope_parameters": ..., "rope_theta": 1e7, "rope_scaling": None},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model_type", HYBRID)
def test_a_quarter_of_the_head_rotates(model_type: str, way: str) -> None:
    raw = text_changed(model_type, head_dim=256, **WAYS[way])
    rope = import_module(f"saragossa.models.{model_type}").build(raw, {}).decoder.ropes[0]
    assert rope.dims == 64
    assert len(rope.inv_freq) == 32
    assert rope.inv_freq[31] == pytest.approx(1e7 ** (-62 / 64), rel=1e-6)


def test_contradicting_partial_factors() -> None:
    raw = text_changed("qwen3_5", partial_rotary_factor=0.5)
    with pytest.raises(ConfigError, match=r"partial_rotary_factor is 0\.5 in the top level and 0\.25"):
        build("qwen3_5", raw)


@pytest.mark.parametrize("kind", ["default", "mrope"])
def test_mrope_of_text_is_plain_rope(kind: str) -> None:
    rope = {"rope_theta": 1e7, "partial_rotary_factor": 0.25, "rope_type": kind}
    plain = build(
        "qwen3_5_text", text_changed("qwen3_5_text", rope_parameters={**rope, "rope_type": "default"})
    )
    sections = {**rope, **f.MROPE}
    assert build("qwen3_5_text", text_changed("qwen3_5_text", rope_parameters=sections)) == plain


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ([2, 1, 2], r"mrope_section \[2, 1, 2\] sums to 5; 8 rotated channels need 4"),
        ([2, "1", 1], r"mrope_section is \[2, '1', 1\]; a list of sizes"),
        (7, "mrope_section is 7"),
        (True, "mrope_section is True"),
    ],
)
def test_bad_mrope(section: Any, message: str) -> None:
    rope = {"rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_section": section}
    with pytest.raises(ConfigError, match=message):
        build("qwen3_5_text", text_changed("qwen3_5_text", rope_parameters=rope))
    rope |= {"mrope_section": [2, 1, 1]}
    with pytest.raises(ConfigError, match="mrope_interleaved is"):
        build("qwen3_5_text", text_changed("qwen3_5_text", rope_parameters=rope | {"mrope_interleaved": 7}))
    with pytest.raises(ConfigError, match="rope parameter mrope_section is not known"):
        build("qwen3_moe", text_changed("qwen3_moe", rope_parameters={"mrope_section": [8, 4, 4]}))


# --- multi-token prediction -----------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["mtp.", "language_model.mtp.", "model.mtp."])
@pytest.mark.parametrize("model_type", HYBRID)
def test_mtp_is_bound_when_asked_for(model_type: str, prefix: str) -> None:
    spec = _with_mtp(model_type, prefix)
    mtp = spec.decoder.mtp
    assert mtp is not None
    (layer,) = mtp.layers
    assert layer.attention is not None
    assert layer.attention.gate
    assert (layer.moe is not None) == (model_type in MOE)
    assert tensor(spec, "mtp.fc").shape == (64, 128)
    assert tensor(spec, "mtp.fc").name == f"{prefix}fc"
    assert tensor(spec, "mtp.embed_norm").name == f"{prefix}pre_fc_norm_embedding.weight"
    assert tensor(spec, "mtp.hidden_norm").plus_one
    assert tensor(spec, "mtp.norm").name == f"{prefix}norm.weight"
    assert tensor(spec, "mtp.layers.0.q_gate").name == f"{prefix}layers.0.self_attn.q_proj"
    if model_type in MOE:  # one by one, whatever the layers have
        assert tensor(spec, "mtp.layers.0.experts_up").stack[4] == f"{prefix}layers.0.mlp.experts.4.up_proj"
    assert not f"{prefix}fc.weight".startswith(spec.ignored_prefixes)


def _with_mtp(model_type: str, prefix: str, **changes: Any) -> ModelSpec:
    index = f.index_of(f.qwen_tensors(model_type, "fused", mtp=prefix))
    raw = text_changed(model_type, **changes)
    spec: ModelSpec = import_module(f"saragossa.models.{model_type}").build(raw, index, mtp=True)
    return spec


@pytest.mark.parametrize("model_type", HYBRID)
def test_mtp_is_left_alone_otherwise(model_type: str) -> None:
    spec = build(model_type)
    assert spec.decoder.mtp is None
    assert not any(item.role.startswith("mtp") for item in spec.tensors)
    assert "mtp.layers.0.self_attn.q_proj.weight".startswith(spec.ignored_prefixes)


@pytest.mark.parametrize("model_type", HYBRID)
def test_absent_mtp_is_named(model_type: str) -> None:
    with pytest.raises(WeightsError, match=r"weights are absent: no mtp\.fc\.weight"):
        build(model_type, mtp=True)


def test_mtp_that_the_config_denies() -> None:
    with pytest.raises(ConfigError, match="mtp_num_hidden_layers is 0"):
        _with_mtp("qwen3_5", "mtp.", mtp_num_hidden_layers=0)
    with pytest.raises(ConfigError, match="mtp_use_dedicated_embeddings is true"):
        _with_mtp("qwen3_5", "mtp.", mtp_use_dedicated_embeddings=True)
    assert len(_with_mtp("qwen3_5", "mtp.", mtp_num_hidden_layers=...).tensors) > 0


# --- bad values -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model_type", "changes", "message"),
    [
        ("qwen3_next", {"layer_types": [LINEAR, LINEAR, "mamba", FULL]}, "'mamba'; supported: full_att"),
        ("qwen3_5", {"layer_types": [LINEAR] * 3}, "layer_types has 3 entries, num_hidden_layers is 4"),
        ("qwen3_5", {"full_attention_interval": 2}, "layer_types and full_attention_interval 2 contradict"),
        ("qwen3_next", {"linear_num_value_heads": 5}, "linear_num_value_heads 5 is no multiple of"),
        ("qwen3_next", {"linear_conv_kernel_dim": 1}, "linear_conv_kernel_dim is 1"),
        ("qwen3_next", {"num_experts_per_tok": 6}, "num_experts_per_tok is 6, there are 5 experts"),
        ("qwen3_moe", {"num_experts": 6}, "num_experts is 6 and num_local_experts 5"),
        ("qwen3_moe", {"num_local_experts": 0}, "num_local_experts is 0"),
        (
            "qwen3_moe",
            {"num_local_experts": 4096, "num_hidden_layers": 65},
            "65 layers of 4096 experts each; supported are 262144",
        ),
        ("qwen3_moe", {"use_sliding_window": True}, "use_sliding_window is True"),
        ("qwen3_moe", {"layer_types": ["sliding_attention"] * 3}, "layer_types has sliding_attention"),
        ("qwen3_moe", {"shared_expert_intermediate_size": 8}, "shared_expert_intermediate_size is 8"),
        ("qwen3_moe", {"hidden_act": "relu"}, "hidden_act is 'relu'"),
        ("qwen3_5", {"num_experts": 4}, "text_config.num_experts is 4; only 0 or None"),
        ("qwen3_5", {"attn_output_gate": False}, "text_config.attn_output_gate is False"),
        ("qwen3_5", {"output_gate_type": "sigmoid"}, "text_config.output_gate_type is 'sigmoid'"),
        ("qwen3_5_moe", {"attention_bias": True}, "text_config.attention_bias is True"),
        ("qwen3_5_moe", {"linear_num_keyheads": 4}, "unknown key text_config.linear_num_keyheads; the near"),
        ("qwen3_5_text", {"rope_parameters": {"rope_type": "spiral"}}, "rope_type 'spiral' is not supported"),
    ],
)
def test_bad_values_are_named(model_type: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(model_type, text_changed(model_type, **changes))
