"""Greedy ids of the demo model from the reference implementation: smollm2-135m-instruct.json.

The weights are those of the imported model folder, dequantised; transformers runs them in float32.

    python tests/golden/make_smollm2_goldens.py MODEL_DIR    # MODEL_DIR: what `saragossa run demo` keeps

Needs torch 2.13, transformers 5.24, safetensors, numpy.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors import safe_open

OUT = Path(__file__).with_name("smollm2-135m-instruct.json")
NEW_TOKENS = 48
PROMPTS = [
    "The capital of France is",
    "Once upon a time, there was a little",
    "def fibonacci(n):\n",
    "Item 1 costs 3 dollars. Item 2 costs 6 dollars. Item 3 costs",
]
CHATS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [
        {"role": "system", "content": "Answer briefly."},
        {"role": "user", "content": "Name the three primary colours."},
    ],
    [{"role": "user", "content": "Write a Python function that returns the factorial of n."}],
]


def dequantised(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor in float32; affine modules as code * scale + bias (LSB-first codes in uint32 words)."""
    quantization = json.loads((folder / "config.json").read_text())["quantization"]
    out: dict[str, torch.Tensor] = {}
    with safe_open(folder / "model.safetensors", framework="np") as file:
        names = set(file.keys())
        for name in sorted(names):
            module = name.removesuffix(".weight")
            if name.endswith((".scales", ".biases")):
                continue
            if f"{module}.scales" not in names:
                out[name] = torch.from_numpy(file.get_tensor(name).astype(np.float32))
                continue
            rule = quantization.get(module, quantization)
            bits, group = rule["bits"], rule["group_size"]
            words = file.get_tensor(name)
            stream = np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little")
            codes = (stream.reshape(len(words), -1, bits) << np.arange(bits)).sum(-1).astype(np.float32)
            scale, bias = (
                file.get_tensor(f"{module}.{part}").astype(np.float32) for part in ("scales", "biases")
            )
            values = codes.reshape(len(words), -1, group) * scale[..., None] + bias[..., None]
            out[name] = torch.from_numpy(values.reshape(len(words), -1))
    return out


@torch.no_grad()
def greedy(model: Any, ids: list[int], ends: set[int]) -> tuple[list[int], list[float]]:
    """New ids up to an end token, and the margin of the best over the second of each step."""
    new: list[int] = []
    margins: list[float] = []
    cache, step = None, torch.tensor([ids])
    while len(new) < NEW_TOKENS and not (new and new[-1] in ends):
        out = model(step, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        best = out.logits[0, -1].topk(2)
        new.append(int(best.indices[0]))
        margins.append(round(float(best.values[0] - best.values[1]), 4))
        step = torch.tensor([[new[-1]]])
    return new, margins


def main() -> None:
    folder = Path(sys.argv[1])
    config = transformers.AutoConfig.from_pretrained(folder)
    for key in ("quantization", "quantization_config"):
        if hasattr(config, key):
            delattr(config, key)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    missing, unexpected = model.load_state_dict(dequantised(folder), strict=False)
    assert not unexpected, unexpected
    assert set(missing) <= {"lm_head.weight"}, missing
    model.tie_weights()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    cases = []
    for text in PROMPTS:
        cases.append({"prompt": text, "ids": tokenizer.encode(text)})
    for chat in CHATS:
        text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        cases.append({"messages": chat, "ids": tokenizer.encode(text, add_special_tokens=False)})
    for case in cases:
        case["new_ids"], case["margins"] = greedy(model, case["ids"], {2})
        print(tokenizer.decode(case["new_ids"])[:70].replace("\n", " "), min(case["margins"]))
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    OUT.write_text(json.dumps({"versions": versions, "compute": "float32", "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
