"""Plans the conversion of a Hugging Face folder: quantised as mlx-lm does it, or copied.

The rule of mlx-lm 0.32: weights are first cast to `torch_dtype`, then every linear, embedding and expert
whose rows the group size divides is quantised, routers to 8 bits (schemes.py); the others stay as they are
without a word in config.json. A head that is tied to the embedding is dropped, and so are vision and audio
towers. Multi-token prediction, which mlx-lm drops, is kept where it is not unwanted.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from saragossa.errors import ConvertError, SaragossaError
from saragossa.files import read_object
from saragossa.models import read_architecture, read_config_json
from saragossa.models.mtp import prefix_of as mtp_prefix_of
from saragossa.models.spec import ModelSpec
from saragossa.weights.bind import bind
from saragossa.weights.quantization import Format
from saragossa.weights.safetensors import SafetensorsIndex

from .floats import TORCH
from .layout import QWEN3_5, copy_job, targets
from .modules import quantized_job
from .plan import Plan
from .schemes import Schemes
from .writer import Job

# Taken over beside the weights, where the folder has them.
_COPIED = (
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "additional_chat_templates/*.jinja",
    "chat_template.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "LICENSE",
    "LICENSE.txt",
    "LICENSE.md",
    "NOTICE",
)
_GENERATION = "generation_config.json"
_MAX_GENERATION = 1 << 20
# Keys that say how many layers the multi-token prediction has.
_MTP_LAYERS = ("mtp_num_hidden_layers", "num_nextn_predict_layers")


def plan_hf(
    src: Path,
    wanted: Format | None,
    dtype: str | None,
    overrides: Sequence[str] = (),
    *,
    mtp: bool = True,
) -> Plan:
    """The folder that `src` becomes; wanted: how it is to be quantised; dtype: torch's name.

    overrides: of the quantisation, see schemes.py. mtp: keep the multi-token prediction if there is one.
    Raises ModelError, ConfigError or WeightsError as loading would, ConvertError for a model that is
    quantised already or has no module that the group size divides, UsageError for a wrong override.
    """
    config = _config(src)
    architecture = read_architecture(src)
    index = SafetensorsIndex.open(src)
    spec = architecture.spec(index, mtp=mtp and _has_mtp(config, index))
    tensors = bind(spec, index)
    if any(tensor.kind != "dense" for tensor in tensors):
        raise _quantised(src, "its weights are packed")
    schemes = Schemes(wanted, overrides) if wanted else None
    target_dtype = dtype or (_config_dtype(config) if wanted else None)
    jobs: list[Job] = []
    for target in targets(spec, tensors):
        cast = target_dtype is not None and not _keeps_dtype(spec, target.role)
        job = copy_job(target, TORCH[target_dtype] if cast and target_dtype else target.dtype)
        if schemes and target.module:
            scheme = schemes.choose(target.role, target.name.removesuffix(".weight"), target.columns)
            if scheme is not None:
                job = quantized_job(job, scheme)
        jobs.append(job)
    if schemes:
        block = schemes.block(src, tied=spec.decoder.tied)
        config |= {"quantization": block, "quantization_config": block}
    if dtype:
        _set_dtype(config, dtype)
    return Plan(
        jobs=jobs,
        json_files={"config.json": _output_config(src, config)},
        copies={
            path.relative_to(src).as_posix(): path
            for pattern in _COPIED
            for path in sorted(src.glob(pattern))
            if path.is_file()
        },
        skipped=tuple(schemes.skipped) if schemes else (),
    )


def _has_mtp(config: Mapping[str, Any], index: SafetensorsIndex) -> bool:
    """Whether there is a multi-token prediction, which the config does not deny."""
    text = config.get("text_config")
    levels = (config, text) if isinstance(text, dict) else (config,)
    denied = any(level.get(key) == 0 for level in levels for key in _MTP_LAYERS)
    return mtp_prefix_of(index) is not None and not denied


def _keeps_dtype(spec: ModelSpec, role: str) -> bool:
    """mlx-lm does not cast the decays of Qwen3.5 (of Qwen3-Next it does)."""
    return spec.model_type in QWEN3_5 and role.endswith(".delta_a_log")


def _output_config(src: Path, config: dict[str, Any]) -> dict[str, Any]:
    """config.json as mlx-lm leaves it: it knows no `_text` types, and takes end tokens from beside it."""
    config = copy.deepcopy(config)
    for key in ("_name_or_path", "vision_config"):
        config.pop(key, None)
    if config["model_type"] in QWEN3_5:
        config["model_type"] = config["model_type"].removesuffix("_text")
        ropes = config.get("text_config", config).get("rope_parameters")
        if isinstance(ropes, dict) and "type" not in ropes and "rope_type" in ropes:
            ropes["type"] = ropes.pop("rope_type")
    if (src / _GENERATION).is_file():
        try:
            generation = read_object(src / _GENERATION, limit=_MAX_GENERATION, error=ConvertError)
        except SaragossaError:
            generation = {}  # whoever reads it will complain
        if ends := generation.get("eos_token_id"):
            config["eos_token_id"] = ends
    return dict(sorted(config.items()))


def _config(src: Path) -> dict[str, Any]:
    """config.json; raises ConvertError if it says that the weights are quantised."""
    config = read_config_json(src)
    for level in (config, config.get("text_config")):
        for key in ("quantization", "quantization_config"):
            block = level.get(key) if isinstance(level, dict) else None
            if isinstance(block, dict):
                method = block.get("quant_method") or f"{block.get('bits')} bits"
                raise _quantised(src, f"{key} in config.json says {method!s:.40}")
    return config


def _quantised(src: Path, why: str) -> ConvertError:
    return ConvertError(
        f"{src} is quantised already: {why}", cure="convert the original model in bf16, f16 or f32"
    )


def _config_dtype(config: Mapping[str, Any]) -> str | None:
    """The dtype to which mlx-lm casts before it quantises; None: the stored one."""
    text = config.get("text_config")
    dtype = config.get("torch_dtype") or (text.get("dtype") if isinstance(text, dict) else None)
    return dtype if dtype in TORCH else None


def _set_dtype(config: dict[str, Any], dtype: str) -> None:
    """Says `dtype` wherever config.json says one, at least once."""
    levels = [config, *(level for level in [config.get("text_config")] if isinstance(level, dict))]
    found = [(level, key) for level in levels for key in ("torch_dtype", "dtype") if key in level]
    for level, key in found or [(config, "torch_dtype")]:
        level[key] = dtype
