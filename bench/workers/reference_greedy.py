"""transformers in float32: greedy ids of prompts and the margin of the best logit over the second, as JSON.

Started by real_models.py with a job of `model` (folder), `prompts` and `tokens` (per prompt).
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import transformers


@torch.no_grad()
def greedy(model: Any, ids: list[int], tokens: int) -> dict[str, Any]:
    new: list[int] = []
    margins: list[float] = []
    cache, step = None, torch.tensor([ids])
    for _ in range(tokens):
        out = model(step, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        best = out.logits[0, -1].topk(2)
        new.append(int(best.indices[0]))
        margins.append(float(best.values[0] - best.values[1]))
        step = torch.tensor([[new[-1]]])
    return {"ids": ids, "new": new, "margins": margins}


def main() -> None:
    job = json.loads(sys.argv[1])
    model = transformers.AutoModelForCausalLM.from_pretrained(job["model"], dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(job["model"])
    cases = [greedy(model, tokenizer.encode(text), job["tokens"]) for text in job["prompts"]]
    print(json.dumps({"cases": cases}))


if __name__ == "__main__":
    main()
