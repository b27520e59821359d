"""Plans the conversion of a Hugging Face folder: quantised as mlx-lm does it, or copied.

The rule of mlx-lm 0.32: weights are first cast to `torch_dtype`, then every linear and embedding whose
rows the group size divides is quantised, the others stay as they are without a word in config.json.
A head that is tied to the embedding is dropped, and so are vision towers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from saragossa.errors import ConvertError
from saragossa.models import read_config_json
from saragossa.weights.bind import BoundTensor, bind
from saragossa.weights.checkpoint import load_spec
from saragossa.weights.quantization import Format, canonical
from saragossa.weights.safetensors import SafetensorsIndex

from .floats import STORAGE, TORCH, Array, cast
from .modules import quantized_job
from .plan import Plan, quantization_block
from .writer import Entry, Job, row_ranges

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
# What is written as mlx-lm writes it; the others rename, split and stack tensors, which is not done yet.
_WRITTEN = {"gemma3", "gemma3_text", "llama", "mistral", "qwen2", "qwen3"}
_WRAPPED = {"gemma3"}  # model types whose decoder mlx-lm keeps under language_model.


def plan_hf(src: Path, wanted: Format | None, dtype: str | None) -> Plan:
    """The folder that `src` becomes; wanted: how it is to be quantised; dtype: torch's name.

    Raises ModelError, ConfigError or WeightsError as loading would, ConvertError for a model that is
    quantised already, has no module that the group size divides, or is of a family not written yet.
    """
    config = _config(src)
    spec = load_spec(src)
    if spec.model_type not in _WRITTEN:
        raise ConvertError(
            f"{src}: {spec.model_type} models are not converted yet; supported: "
            f"{', '.join(sorted(_WRITTEN))}",
            cure="use a quantised one from the Hub, such as mlx-community's, or the model as it is",
        )
    tensors = bind(spec, SafetensorsIndex.open(src))
    if any(tensor.kind != "dense" for tensor in tensors):
        raise _quantised(src, "its weights are packed")
    target = dtype or (_config_dtype(config) if wanted else None)
    jobs: list[Job] = []
    skipped: list[str] = []
    for tensor in tensors:
        job = _copy_job(tensor, _name(spec.model_type, tensor), TORCH[target] if target else tensor.dtype)
        if wanted and len(tensor.shape) == 2:
            if tensor.shape[1] % wanted.group_size:
                skipped.append(job.outputs[0].name.removesuffix(".weight"))
            else:
                job = quantized_job(job, wanted)
        jobs.append(job)
    if wanted:
        if all(len(job.outputs) == 1 for job in jobs):
            raise ConvertError(
                f"{src}: the group size {wanted.group_size} divides the rows of none of its modules",
                cure="use a smaller --group-size" if wanted.group_size > 32 else None,
            )
        block = quantization_block(wanted)
        config |= {"quantization": block, "quantization_config": block}
    if dtype:
        _set_dtype(config, dtype)
    for key in ("_name_or_path", "vision_config"):
        config.pop(key, None)
    return Plan(
        jobs=jobs,
        json_files={"config.json": dict(sorted(config.items()))},
        copies={
            path.relative_to(src).as_posix(): path
            for pattern in _COPIED
            for path in sorted(src.glob(pattern))
            if path.is_file()
        },
        skipped=tuple(skipped),
    )


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


def _name(model_type: str, tensor: BoundTensor) -> str:
    """The tensor's name in mlx-lm's spelling of the prefixes."""
    stem = canonical(tensor.name)
    prefix = "" if tensor.role.startswith("head") else "model."
    outer = "language_model." if model_type in _WRAPPED else ""
    # A bound module is named without `.weight`, a vector with its own suffix.
    suffix = ".weight" if len(tensor.shape) == 2 else ""
    return f"{outer}{prefix}{stem}{suffix}"


def _copy_job(tensor: BoundTensor, name: str, dtype: str) -> Job:
    """The stored values as `dtype`, in row chunks."""
    part = tensor.parts[0]

    def chunks() -> Iterator[tuple[Array, ...]]:
        data: Array = np.memmap(part.file, STORAGE[part.dtype], "r", offset=part.offset, shape=tensor.shape)
        for rows in row_ranges(tensor.shape[0], math.prod(tensor.shape[1:])):
            yield (cast(np.asarray(data[rows]), part.dtype, dtype, name),)

    return Job((Entry(name, dtype, tensor.shape),), chunks, math.prod(tensor.shape))
