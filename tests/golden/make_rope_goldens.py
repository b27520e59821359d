"""Make rope.json: inverse frequencies and attention factors as transformers computes them.

Run with transformers and torch at hand (they are no dependency of the tests):

    python tests/golden/make_rope_goldens.py

Values are float32, written with nine significant digits, which is exact.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import transformers
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
YARN = {"factor": 4.0, "original_max_position_embeddings": 64}

# (name, head_dim, max_position_embeddings, rope_parameters)
CASES: list[tuple[str, int, int, dict[str, Any]]] = [
    ("default", 64, 2048, {"rope_type": "default", "rope_theta": 10000.0}),
    ("default, theta 1e6, head of 80", 80, 2048, {"rope_type": "default", "rope_theta": 1e6}),
    ("linear", 64, 2048, {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}),
    ("llama3.1", 128, 131072, {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}),
    ("llama3.2", 64, 131072, {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3, "factor": 32.0}),
    (
        "llama3, short original",
        16,
        512,
        {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3, "original_max_position_embeddings": 64},
    ),
    ("yarn", 128, 256, {"rope_type": "yarn", "rope_theta": 1e6, **YARN}),
    (
        "yarn, original 32768",
        128,
        131072,
        {"rope_type": "yarn", "rope_theta": 1e6, **YARN, "original_max_position_embeddings": 32768},
    ),
    (
        "yarn, original from max_position_embeddings",
        64,
        4096,
        {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.5},
    ),
    (
        "yarn, betas and no truncation",
        64,
        4096,
        {
            "rope_type": "yarn",
            "rope_theta": 150000.0,
            "factor": 32.0,
            "beta_fast": 24.0,
            "beta_slow": 2.0,
            "truncate": False,
            "original_max_position_embeddings": 4096,
        },
    ),
    (
        "yarn, attention factor",
        64,
        4096,
        {"rope_type": "yarn", "rope_theta": 1e4, **YARN, "attention_factor": 0.75},
    ),
    (
        "yarn, mscale",
        64,
        4096,
        {"rope_type": "yarn", "rope_theta": 1e4, **YARN, "mscale": 0.707, "mscale_all_dim": 1.0},
    ),
    (
        "yarn, one mscale only",
        64,
        4096,
        {"rope_type": "yarn", "rope_theta": 1e4, **YARN, "mscale": 0.707},
    ),
    (
        "yarn, equal mscales",
        64,
        4096,
        {"rope_type": "yarn", "rope_theta": 1e4, **YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
    ),
    (
        "linear, partial",
        256,
        2048,
        {"rope_type": "linear", "rope_theta": 1e6, "factor": 2.0, "partial_rotary_factor": 0.25},
    ),
    (
        "llama3, partial",
        128,
        131072,
        {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3, "partial_rotary_factor": 0.5},
    ),
    (
        "yarn, partial",
        256,
        256,
        {"rope_type": "yarn", "rope_theta": 1e6, **YARN, "partial_rotary_factor": 0.25},
    ),
    (
        "proportional",
        512,
        131072,
        {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
    ),
    (
        "proportional, odd share and factor",
        48,
        2048,
        {"rope_type": "proportional", "rope_theta": 1e4, "partial_rotary_factor": 0.3, "factor": 2.0},
    ),
]


def golden(head_dim: int, max_position: int, parameters: dict[str, Any]) -> tuple[list[float], float]:
    """inv_freq [dims / 2] and attention factor from transformers."""
    config = LlamaConfig(
        hidden_size=4 * head_dim,
        num_attention_heads=4,
        head_dim=head_dim,
        max_position_embeddings=max_position,
        rope_parameters=dict(parameters),
    )
    kind = parameters["rope_type"]
    compute = ROPE_INIT_FUNCTIONS.get(kind, LlamaRotaryEmbedding.compute_default_rope_parameters)
    inv_freq, factor = compute(config, device="cpu")
    return [float(f"{value:.9g}") for value in inv_freq.tolist()], float(factor)


def main() -> None:
    cases = []
    for name, head_dim, max_position, parameters in CASES:
        inv_freq, factor = golden(head_dim, max_position, parameters)
        cases.append(
            {
                "name": name,
                "head_dim": head_dim,
                "max_position": max_position,
                "parameters": parameters,
                "attention_factor": factor,
                "inv_freq": inv_freq,
            }
        )
    lines = ",\n".join("  " + json.dumps(case) for case in cases)
    text = f'{{"transformers": "{transformers.__version__}", "cases": [\n{lines}\n]}}\n'
    Path(__file__).with_name("rope.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
