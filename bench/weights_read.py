"""How many bytes of weights one decoded token reads, from the headers of a safetensors folder."""

from __future__ import annotations

import json
import struct
from pathlib import Path

SKIPPED = ("vision_tower", "multi_modal_projector", "audio_tower")
EMBEDDING = "embed_tokens."


EXPERTS = (".switch_mlp.", ".experts.")


def bytes_per_token(folder: Path) -> int:
    """Weights, scales and biases of every tensor; of the embedding one row, unless it is the head as well.

    Of experts the share that a token uses.
    """
    tensors = _tensors(folder)
    config = json.loads((folder / "config.json").read_text())
    text = config.get("text_config", config)
    used = text.get("num_experts_per_tok") or text.get("top_k_experts") or 1
    tied = not any("lm_head." in name for name in tensors)
    total = 0
    for name, (shape, size) in tensors.items():
        if not tied and EMBEDDING in name:
            total += size // shape[0]
        elif any(part in name for part in EXPERTS) and len(shape) == 3:
            total += size // shape[0] * used
        else:
            total += size
    return total


def active_bytes(folder: Path, keys: int) -> int:
    """`bytes_per_token`, delta nets' states read and written once, `keys` keys and values in bfloat16."""
    config = json.loads((folder / "config.json").read_text())
    text = config.get("text_config", config)
    kinds = text["layer_types"]
    state = text["linear_num_value_heads"] * text["linear_value_head_dim"] * text["linear_key_head_dim"] * 4
    cache = 2 * 2 * text["num_key_value_heads"] * text["head_dim"] * keys
    delta, attention = kinds.count("linear_attention"), kinds.count("full_attention")
    return bytes_per_token(folder) + 2 * state * delta + cache * attention


def _tensors(folder: Path) -> dict[str, tuple[list[int], int]]:
    """Shape and bytes by name."""
    tensors: dict[str, tuple[list[int], int]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as stream:
            (size,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(size))
        for name, entry in header.items():
            if name != "__metadata__" and not any(part in name for part in SKIPPED):
                start, end = entry["data_offsets"]
                tensors[name] = (entry["shape"], end - start)
    if not tensors:
        raise FileNotFoundError(f"{folder}: no safetensors file")
    return tensors
