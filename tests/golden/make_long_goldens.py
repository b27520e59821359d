"""Make long.npz: the last logits of 32768 tokens, from transformers in float32 on checkpoints that lie here.

Run with transformers and torch at hand (they are no dependency of the tests):

    python tests/golden/make_long_goldens.py

No rope of these checkpoints looks at max_position_embeddings: positions beyond it are as good as others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import AutoConfig, DynamicCache

HERE = Path(__file__).parent
NAMES = ("families/gemma4_unified", "checkpoints/llama-yarn")
TOKENS, CHUNK, KEPT = 32768, 1024, 8


def tokens() -> Any:
    """As tests/e2e/long_context.py makes them."""
    ids = np.random.default_rng(32).integers(4, 250, TOKENS)
    ids[0] = 2
    return ids


def main() -> None:
    out = {}
    ids = torch.from_numpy(tokens())[None]
    for name in NAMES:
        config = AutoConfig.from_pretrained(HERE / name)
        config._attn_implementation = "sdpa"
        model_class = getattr(transformers, config.architectures[0])
        model = model_class.from_pretrained(HERE / name, config=config, dtype=torch.float32).eval()
        cache = DynamicCache(config=config.get_text_config())
        with torch.no_grad():
            for begin in range(0, TOKENS, CHUNK):
                chunk = ids[:, begin : begin + CHUNK]
                result = model(chunk, cache=cache, use_cache=True, logits_to_keep=KEPT)
        out[name.split("/")[1]] = result.logits[0].float().numpy()
    np.savez_compressed(HERE / "long.npz", **out)


if __name__ == "__main__":
    main()
