"""Plans the import of a GGUF file: checks all of it, then says what is to be written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from saragossa.weights.quantization import Format

from .floats import TORCH, torch_name
from .gguf_blocks import dequantize
from .gguf_config import architecture, generation_config, model_config
from .gguf_reader import GgufFile
from .gguf_tensors import check_tensors, float_jobs, lossless_jobs, requantized_jobs, wanted_tensors
from .gguf_tokenizer import tokenizer_files
from .plan import Plan
from .schemes import Schemes

_ROPE_FACTORS = "rope_freqs.weight"
_DEFAULT_DTYPE = "bfloat16"


def plan_gguf(src: Path, target: Format | None, dtype: str | None, overrides: Sequence[str] = ()) -> Plan:
    """The folder that `src` becomes.

    Neither target nor dtype: the file's own quantisation is kept. target: dequantised to `dtype`
    (bfloat16) and quantised anew, with `overrides` (schemes.py). dtype alone: dequantised.
    Raises UsageError for a wrong override, ConvertError if the file cannot be imported, before anything is
    written.
    """
    file = GgufFile(src)
    arch = architecture(file)
    torch_dtype = torch_name(dtype or _DEFAULT_DTYPE)
    factors = file.tensors.get(_ROPE_FACTORS)
    known = {_ROPE_FACTORS} if factors else set()
    rope = dequantize(file.rows(factors), factors.kind).reshape(-1) if factors else None
    config = model_config(file, torch_dtype, rope)
    wanted = wanted_tensors(arch, config)
    check_tensors(file, wanted, known)
    tokens = tokenizer_files(file.metadata, arch, str(src), config["vocab_size"])
    config |= tokens.ids
    block: dict[str, Any] | None = None
    skipped: list[str] = []
    if target is not None:
        schemes = Schemes(target, overrides)
        jobs = requantized_jobs(file, wanted, TORCH[torch_dtype], schemes)
        block, skipped = schemes.block(src, tied=config["tie_word_embeddings"]), schemes.skipped
    elif dtype is not None:
        jobs = float_jobs(file, wanted, TORCH[torch_dtype])
    else:
        jobs, block = lossless_jobs(file, wanted)
    if block is not None:
        config |= {"quantization": block, "quantization_config": block}
    return Plan(
        jobs=jobs,
        json_files={
            "config.json": dict(sorted(config.items())),
            "generation_config.json": generation_config(file.metadata, tokens.ids, tokens.eos),
            "tokenizer.json": tokens.tokenizer,
            "tokenizer_config.json": tokens.config,
        },
        skipped=tuple(skipped),
    )
