"""What the precision of the KV cache costs: logits and greedy choices on a text, and the memory of a token.

    python bench/kv_precision.py FOLDER... [--text FILE] [--tokens 1024] [--csv FILE]

FOLDER: an unquantised Hugging Face folder. Each precision reads the same tokens; activations are float32
throughout, so that nothing but the cache differs. Against a cache of f32: the root mean square of the logits'
differences over that of the logits (each row less its mean), the mean Kullback-Leibler divergence, how often
the most likely token is the same, and the perplexity of the text. `top1_of_bf16` is the share of equal
choices against the default.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from report import machine

from saragossa import _core
from saragossa.engine.loading import load
from saragossa.text.tokenizer import Tokenizer

DTYPES = ("f32", "bf16", "u8")
CHUNK = 64  # tokens whose logits are held at a time
COLUMNS = (
    "model", "kv", "tokens", "bytes_per_token", "memory_of_bf16", "logits_rms", "kl_nats", "top1_of_f32",
    "top1_of_bf16", "perplexity",
)  # fmt: skip

Array = NDArray[np.float32]


def log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(-1, keepdims=True)
    out: Array = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return out


class Sums:
    """Over the rows of a text, of one precision."""

    def __init__(self) -> None:
        self.rows = self.squares = self.of = self.kl = self.same_f32 = self.same_bf16 = self.nats = 0.0

    def add(self, logits: Array, f32: Array, bf16: Array, following: NDArray[np.int64]) -> None:
        self.rows += len(logits)
        self.squares += float(((logits - f32) ** 2).mean(-1).sum())
        self.of += float(f32.var(-1).sum())
        p, q = log_softmax(f32), log_softmax(logits)
        self.kl += float((np.exp(p) * (p - q)).sum(dtype=np.float64))
        self.same_f32 += float((logits.argmax(-1) == f32.argmax(-1)).sum())
        self.same_bf16 += float((logits.argmax(-1) == bf16.argmax(-1)).sum())
        self.nats -= float(q[np.arange(len(following)), following].sum())


def measure(folder: Path, text: str, tokens: int) -> list[dict[str, str | int]]:
    models = {kv: load(folder, device="cpu", kv=kv, context=tokens + 1) for kv in DTYPES}
    tokenizer = Tokenizer.from_dir(folder, vocab=models["f32"].spec.decoder.vocab)
    ids = tokenizer.encode(text)[: tokens + 1]
    sessions = {kv: _core.Session(m.model, rows=1, context=m.context) for kv, m in models.items()}
    sums = {kv: Sums() for kv in DTYPES}
    for first in range(0, len(ids) - 1, CHUNK):
        part = ids[first : min(first + CHUNK, len(ids) - 1)]
        logits = {kv: s.logits(0, part) for kv, s in sessions.items()}
        following = np.array(ids[first + 1 : first + 1 + len(part)])
        for kv in DTYPES:
            sums[kv].add(logits[kv], logits["f32"], logits["bf16"], following)
    whole = models["bf16"].model.kv_bytes_per_token
    rows: list[dict[str, str | int]] = []
    for kv, s in sums.items():
        size = models[kv].model.kv_bytes_per_token
        rows.append(
            {
                "model": folder.resolve().name,
                "kv": kv,
                "tokens": int(s.rows),
                "bytes_per_token": size,
                "memory_of_bf16": f"{size / whole:.3f}",
                "logits_rms": f"{(s.squares / s.of) ** 0.5:.5f}",
                "kl_nats": f"{s.kl / s.rows:.6f}",
                "top1_of_f32": f"{s.same_f32 / s.rows:.4f}",
                "top1_of_bf16": f"{s.same_bf16 / s.rows:.4f}",
                "perplexity": f"{np.exp(s.nats / s.rows):.4f}",
            }
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    root = Path(__file__).parents[1]
    parser.add_argument(
        "--text", type=Path, nargs="+", default=[root / "README.md", root / "ARCHITECTURE.md"]
    )
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--csv", type=Path)
    args = parser.parse_args()
    os.environ["SARAGOSSA_ACTIVATIONS"] = "f32"
    text = "\n".join(path.read_text() for path in args.text)
    rows: list[dict[str, str | int]] = []
    print(" ".join(f"{name:>15}" for name in COLUMNS))
    for folder in args.folders:
        for row in measure(folder, text, args.tokens):
            rows.append(row)
            print(" ".join(f"{row[name]:>15}" for name in COLUMNS), flush=True)
    if args.csv:
        with args.csv.open("w", newline="") as file:
            file.writelines(f"# {key}: {value}\n" for key, value in machine().items())
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
