"""How many bytes of weights one decoded token reads, from the headers of a safetensors folder."""

from __future__ import annotations

import json
import struct
from pathlib import Path

SKIPPED = ("vision_tower", "multi_modal_projector", "audio_tower")
EMBEDDING = "embed_tokens."


def bytes_per_token(folder: Path) -> int:
    """Weights, scales and biases of every tensor; of the embedding one row, unless it is the head as well."""
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
    tied = not any("lm_head." in name for name in tensors)
    return sum(
        size if tied or EMBEDDING not in name else size // shape[0] for name, (shape, size) in tensors.items()
    )
