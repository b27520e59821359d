"""Checkpoints of zeros for the Metal counters: a config.json and a sparse safetensors file in mlx-lm's form.

Nothing lies on the disk, every byte reads as zero, and only what a kernel touches takes memory. A router of
zeros chooses the first experts.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from saragossa.models import read_architecture
from saragossa.models.spec import ModelSpec, TensorSpec

GROUP = 64
BITS = 4
ROUTERS = ("mlp.gate", "shared_expert_gate", "router.proj")  # 8 bits, as mlx-lm quantises them
ROUTER_BITS = 8


class _Entry(NamedTuple):
    shape: tuple[int, ...]


def text_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The text part of a multimodal config."""
    text: Mapping[str, Any] = config.get("text_config", config)
    return text


def write_zeros(folder: Path, config: Mapping[str, Any]) -> ModelSpec:
    """A checkpoint of `config` in 4 bits, all zeros; returns its spec."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    index = _names(config)
    spec = read_architecture(folder).spec(index)
    # Under one name where several tensors have rows of it.
    stored = {item.name: item for item in spec.tensors}
    block: dict[str, Any] = {"group_size": GROUP, "bits": BITS, "mode": "affine"}
    for name, item in stored.items():
        if item.module and bits_of(name) != BITS:
            block[name] = {"group_size": GROUP, "bits": bits_of(name)}
    text = {"eos_token_id": 1, "bos_token_id": 0, "quantization": block, "quantization_config": block}
    (folder / "config.json").write_text(json.dumps({**config, **text}))
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    at = 0
    for name, dtype, shape, nbytes in _stored(stored):
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + nbytes]}
        at += nbytes
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        file.truncate(8 + len(encoded) + at)
    return spec


def bits_of(module: str) -> int:
    return ROUTER_BITS if module.endswith(ROUTERS) else BITS


def _names(config: Mapping[str, Any]) -> dict[str, _Entry]:
    """What tells a model file the form: prefix of the decoder, experts apart."""
    text = text_of(config)
    prefix = "language_model.model." if "text_config" in config else "model."
    names = {f"{prefix}embed_tokens.weight": _Entry(())}
    if text.get("num_experts"):
        switch = "experts.switch_glu" if "top_k_experts" in text else "mlp.switch_mlp"
        for i in range(text["num_hidden_layers"]):
            for part in ("gate", "up", "down"):
                names[f"{prefix}layers.{i}.{switch}.{part}_proj.weight"] = _Entry(())
    return names


def _shape(item: TensorSpec) -> tuple[int, ...]:
    return item.stored or ((item.stored_rows, *item.shape[1:]) if item.rows else item.shape)


def _stored(tensors: Mapping[str, TensorSpec]) -> Iterator[tuple[str, str, list[int], int]]:
    """Name, dtype, shape and bytes of each stored tensor, the widest elements first."""
    modules = {name: _shape(item) for name, item in tensors.items() if item.module}
    for name, (*rows, width) in modules.items():
        yield _tensor(f"{name}.weight", "U32", [*rows, width * bits_of(name) // 32])
    for name, (*rows, width) in modules.items():
        for part in ("scales", "biases"):
            yield _tensor(f"{name}.{part}", "BF16", [*rows, width // GROUP])
    for name, item in tensors.items():
        if not item.module:
            yield _tensor(name, "BF16", list(_shape(item)))


def _tensor(name: str, dtype: str, shape: list[int]) -> tuple[str, str, list[int], int]:
    nbytes = 4 if dtype == "U32" else 2
    for n in shape:
        nbytes *= n
    return name, dtype, shape, nbytes
