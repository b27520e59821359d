"""The quantization block: defaults, overrides in every spelling, and what is refused."""

import logging
from typing import Any

import pytest

from saragossa.errors import ConfigError
from saragossa.models.config_base import config_block
from saragossa.weights.quantization import BITS, Format, QuantizationConfig, canonical

BLOCK = {"bits": 4, "group_size": 64, "mode": "affine"}


def parse(**more: Any) -> QuantizationConfig:
    result = QuantizationConfig.parse({**BLOCK, **more})
    assert result is not None
    return result


def test_no_block() -> None:
    assert config_block({"hidden_size": 3}) is None
    assert QuantizationConfig.parse(None) is None


def test_default_for_every_module() -> None:
    config = parse()
    assert config.for_module("model.layers.0.mlp.up_proj") == Format(4, 64)
    assert str(config) == "4-bit, group size 64"


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("group_size", [32, 64, 128])
def test_all_formats(bits: int, group_size: int) -> None:
    assert parse(bits=bits, group_size=group_size).default == Format(bits, group_size)


@pytest.mark.parametrize(
    "prefix", ["", "model.", "language_model.", "language_model.model.", "model.language_model."]
)
def test_overrides_in_every_spelling(prefix: str) -> None:
    config = parse(
        **{
            f"{prefix}layers.0.mlp.down_proj": {"bits": 6, "group_size": 64},
            f"{prefix}layers.1.self_attn.q_proj": {"bits": 8, "group_size": 32, "mode": "affine"},
            f"{prefix}layers.2.self_attn.k_proj": False,
            f"{prefix}layers.3.self_attn.k_proj": True,
            f"{prefix}embed_tokens": {"bits": 6},
        }
    )
    for wanted in ("", "model.", "language_model.model.", "model.language_model."):
        assert config.for_module(f"{wanted}layers.0.mlp.down_proj") == Format(6, 64)
        assert config.for_module(f"{wanted}layers.1.self_attn.q_proj") == Format(8, 32)
        assert config.for_module(f"{wanted}layers.2.self_attn.k_proj") is None
        assert config.for_module(f"{wanted}layers.3.self_attn.k_proj") == Format(4, 64)
        assert config.for_module(f"{wanted}embed_tokens") == Format(6, 64)
        assert config.for_module(f"{wanted}layers.4.mlp.down_proj") == Format(4, 64)
    assert str(config).endswith(", mixed")


def test_the_head_in_both_spellings() -> None:
    config = parse(**{"language_model.lm_head": {"bits": 8, "group_size": 64}})
    assert config.for_module("lm_head") == config.for_module("language_model.lm_head") == Format(8, 64)


def test_canonical_takes_one_prefix_only() -> None:
    assert canonical("model.model.x") == "model.x"
    assert canonical("layers.0.model.x") == "layers.0.model.x"


def test_overrides_that_match_nothing_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    config = parse(
        **{
            "model.layers.0.mlp.up_proj": {"bits": 6},
            "model.layers.9.mlp.up_proj": {"bits": 6},
            "vision_tower.blocks.0": False,
        }
    )
    modules = ["language_model.model.layers.0.mlp.up_proj"]
    with caplog.at_level(logging.WARNING, logger="saragossa"):
        assert config.report_unmatched(modules, ("vision_tower.",)) == ["model.layers.9.mlp.up_proj"]
    assert "no module has the name model.layers.9.mlp.up_proj" in caplog.text
    assert "vision_tower" not in caplog.text


def test_modes_of_the_file_and_of_modules() -> None:
    config = QuantizationConfig.parse(
        {
            "group_size": 32,
            "bits": 4,
            "mode": "mxfp4",
            "model.layers.0.mlp.gate": {"group_size": 64, "bits": 8},
            "model.layers.0.mlp.up_proj": {"mode": "mxfp8"},
            "model.layers.0.mlp.down_proj": {"group_size": 128},
            "model.layers.1.mlp.gate": True,
            "lm_head": False,
        }
    )
    assert config is not None
    assert config.default == Format(4, 32, "mxfp4")
    assert config.for_module("layers.0.mlp.gate") == Format(8, 64), "without a mode affine, as mlx has it"
    assert config.for_module("layers.0.mlp.up_proj") == Format(8, 32, "mxfp8")
    assert config.for_module("layers.0.mlp.down_proj") == Format(4, 128)
    assert config.for_module("layers.1.mlp.gate") == Format(4, 32, "mxfp4")
    assert config.for_module("lm_head") is None
    assert str(config) == "mxfp4, mixed"
    mixed = parse(lm_head={"mode": "mxfp4"})
    assert mixed.for_module("lm_head") == Format(4, 32, "mxfp4")
    assert str(mixed) == "4-bit, group size 64, mixed"


def test_both_blocks_must_agree() -> None:
    assert config_block({"quantization": BLOCK, "quantization_config": dict(BLOCK)}) == BLOCK
    assert config_block({"quantization": None, "quantization_config": BLOCK}) == BLOCK
    assert config_block({}, {"quantization": BLOCK}) == BLOCK
    with pytest.raises(ConfigError, match="quantization and quantization_config differ"):
        config_block({"quantization": BLOCK, "quantization_config": {**BLOCK, "bits": 8}})


@pytest.mark.parametrize("method", ["gptq", "awq", "bitsandbytes", "fp8", "compressed-tensors", "mxfp4"])
def test_foreign_schemes_are_named(method: str) -> None:
    with pytest.raises(ConfigError, match=f"quant_method '{method}' is not supported"):
        config_block({"quantization_config": {"quant_method": method, "bits": 4}})
    with pytest.raises(ConfigError, match=f"quant_method '{method}' is not supported"):
        config_block({"quantization": BLOCK, "quantization_config": {"quant_method": method}})


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"mode": "nvfp4"}, "quantization.mode 'nvfp4' is not supported; supported: affine, mxfp4, mxfp8"),
        ({"mode": ["mxfp4"]}, r"quantization.mode \['mxfp4'\] is not supported"),
        ({"mode": "mxfp4"}, "quantization.group_size: 64, not supported; supported: 32"),
        ({"mode": "mxfp8", "group_size": 32}, "quantization.bits: 4, not supported; supported: 8"),
        ({"bits": 7}, "quantization.bits: 7, not supported; supported: 2, 3, 4, 5, 6, 8"),
        ({"bits": True}, "quantization.bits: True"),
        ({"bits": 4.0}, r"quantization.bits: 4.0"),
        ({"bits": None}, "quantization.bits: missing"),
        ({"group_size": 16}, "quantization.group_size: 16, not supported; supported: 32, 64, 128"),
        ({"lm_head": {"bits": 7}}, "quantization.lm_head.bits: 7"),
        ({"lm_head": {"mode": "nvfp4"}}, "quantization.lm_head.mode 'nvfp4'"),
        ({"lm_head": {"mode": "mxfp8", "bits": 4}}, "quantization.lm_head.bits: 4, not supported"),
        ({"lm_head": {"bits": 8, "foo": 1}}, "quantization.lm_head: unknown key 'foo'"),
        ({"lm_head": 8}, "quantization.lm_head: an object or false is wanted, found 8"),
        (
            {"lm_head": {"bits": 8}, "language_model.lm_head": False},
            "lm_head and language_model.lm_head name one",
        ),
    ],
)
def test_what_is_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(**more)


def test_block_of_the_wrong_type() -> None:
    with pytest.raises(ConfigError, match="quantization: an object is wanted, found '4bit'"):
        config_block({"quantization": "4bit"})
