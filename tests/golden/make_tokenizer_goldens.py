"""Make gguf_tokenizers.json: small vocabularies and how sentencepiece and llama.cpp cut texts with them.

    pip install sentencepiece llama-cpp-python gguf tokenizers
    python tests/golden/make_tokenizer_goldens.py

Both vocabularies are trained here, on the sources of this folder and the texts below. `spm`: pieces, scores,
types, and the ids of sentencepiece. `bpe`: tokens and merges, and for every pre-tokenizer that GGUF names
the ids of llama.cpp.
"""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path
from typing import Any

import gguf
import sentencepiece
from llama_cpp import Llama
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

TEXTS = [
    "Hello, world! It's a test; they'll say WE'RE done, I'VE said.",
    "  two leading spaces and   three inside, trailing  ",
    "tabs\tand\nnewlines\n\n\nand\r\nwindows \n  indented",
    "numbers 1 12 123 1234 12345 3.14159 1,000,000 2026-11-30",
    "naïve café Zürich œuvre Ελλάδα Привет שלום عربي हिन्दी ไทย 東京都 한국어",
    "emoji 👩🏽‍🚀🎉 and symbols ½ ² ™ € $100 <=> ~^|` [x] {y}",
    "def factorial(n):\n    return 1 if n == 0 else n * factorial(n - 1)  # done",
    "https://example.org/a/b?c=d&e=f",
    "CamelCaseWordsAndUPPERCASE mixed_with_snakes-and-dashes",
    "e\u0301 decomposed, \u00a0no-break space\u3000wide space",
    "x" * 40 + " " * 20 + "!" * 12,
    "'s 't 're 'LL ' d",
    " ",
    "\n",
    "a",
]
PRE = ["gpt-2", "smollm", "qwen2", "deepseek-r1-qwen", "llama-bpe", "llama3", "llama-v3", "tekken", "default"]
KINDS = {"unk": 2, "control": 3, "unused": 5, "byte": 6}


def corpus() -> list[str]:
    here = Path(__file__).parent
    lines = [line for path in sorted(here.glob("*.py")) for line in path.read_text().splitlines()]
    return lines[:400] + TEXTS * 20


def sentencepiece_vocabulary() -> dict[str, Any]:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()),
        model_writer=model,
        model_type="bpe",
        vocab_size=600,
        byte_fallback=True,
        character_coverage=0.98,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        num_threads=1,
    )
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    ids = range(sp.vocab_size())
    types = [
        KINDS["unk"] if sp.is_unknown(i) else KINDS["control"] if sp.is_control(i)
        else KINDS["byte"] if sp.is_byte(i) else 1 for i in ids
    ]  # fmt: skip
    return {
        "tokens": [sp.id_to_piece(i) for i in ids],
        "scores": [sp.get_score(i) for i in ids],
        "types": types,
        "ids": [sp.encode(text) for text in TEXTS],
        "decoded": [sp.decode(sp.encode(text)) for text in TEXTS],
    }


def byte_level_vocabulary() -> tuple[list[str], list[str]]:
    tokenizer = Tokenizer(models.BPE())
    # Without a pattern merges cross words and digits, so that every pre-tokenizer shows where it cuts.
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    return tokens, [" ".join(merge) for merge in model["merges"]]


def llama_cpp_ids(tokens: list[str], merges: list[str], pre: str) -> list[list[int]]:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/vocabulary.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        for key, value in (("block_count", 1), ("context_length", 64), ("embedding_length", 64),
                           ("feed_forward_length", 64), ("attention.head_count", 1)):  # fmt: skip
            writer.add_uint32(f"llama.{key}", value)
        writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_list(tokens)
        writer.add_token_types([1] * len(tokens))
        writer.add_token_merges(merges)
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(0)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        llama = Llama(path, vocab_only=True, verbose=False)
        return [llama.tokenize(text.encode(), add_bos=False, special=False) for text in TEXTS]


def main() -> None:
    tokens, merges = byte_level_vocabulary()
    result = {
        "versions": {"sentencepiece": sentencepiece.__version__},
        "texts": TEXTS,
        "spm": sentencepiece_vocabulary(),
        "bpe": {
            "tokens": tokens,
            "merges": merges,
            "ids": {pre: llama_cpp_ids(tokens, merges, pre) for pre in PRE},
        },
    }
    path = Path(__file__).parent / "gguf_tokenizers.json"
    path.write_text(json.dumps(result, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
