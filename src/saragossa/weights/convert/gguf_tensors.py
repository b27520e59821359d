"""Which tensors a GGUF file must hold, and what each becomes in the folder."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from saragossa.errors import ConvertError
from saragossa.weights.quantization import Format

from . import gguf_blocks as blocks
from .floats import Array, cast, from_float32
from .gguf_reader import GgufFile, GgufTensor
from .modules import plain_job, quantized_job, quantized_outputs
from .quantize import Quantized, pack
from .schemes import Schemes
from .writer import Entry, Job, row_ranges

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A tensor that the model needs.

    module: a linear, an embedding or experts, which may stay quantised; `name` then ends in `.weight`.
    heads: not 0 where the rows are permuted for interleaved rope: the number of heads.
    minus_one: stored as 1 + w, wanted as w (Gemma's norms).
    role: as in a spec, for how it is quantised.
    """

    gguf: str
    name: str
    shape: tuple[int, ...]
    module: bool = False
    heads: int = 0
    minus_one: bool = False
    role: str = ""


def wanted_tensors(arch: str, config: Mapping[str, Any]) -> list[Wanted]:
    """Everything that a model of `arch` with this config.json has, in the order of the forward pass."""
    gemma, llama = arch == "gemma3", arch == "llama"
    hidden, inner, vocab = (config[k] for k in ("hidden_size", "intermediate_size", "vocab_size"))
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim", hidden // heads)
    qkv_bias = arch == "qwen2" or config.get("attention_bias", False)

    def norm(gguf: str, name: str, size: int = hidden) -> Wanted:
        return Wanted(gguf + ".weight", name + ".weight", (size,), minus_one=gemma)

    def linear(gguf: str, name: str, rows: int, cols: int, bias: bool, permuted: int = 0) -> list[Wanted]:
        found = [Wanted(gguf + ".weight", name + ".weight", (rows, cols), module=True, heads=permuted)]
        if bias:
            found.append(Wanted(gguf + ".bias", name + ".bias", (rows,), heads=permuted))
        return found

    out = linear("token_embd", "model.embed_tokens", vocab, hidden, False)
    for i in range(config["num_hidden_layers"]):
        b, m = f"blk.{i}.", f"model.layers.{i}."
        out.append(norm(b + "attn_norm", m + "input_layernorm"))
        for part, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            permuted = count if llama and part != "v" else 0
            out += linear(
                f"{b}attn_{part}", f"{m}self_attn.{part}_proj", count * head_dim, hidden, qkv_bias, permuted
            )
        out += linear(
            b + "attn_output", m + "self_attn.o_proj", hidden, heads * head_dim, qkv_bias and arch != "qwen2"
        )
        if gemma or arch in ("qwen3", "qwen3moe"):
            out += [norm(f"{b}attn_{p}_norm", f"{m}self_attn.{p}_norm", head_dim) for p in "qk"]
        if gemma:
            out += [
                norm(b + "post_attention_norm", m + "post_attention_layernorm"),
                norm(b + "ffn_norm", m + "pre_feedforward_layernorm"),
                norm(b + "post_ffw_norm", m + "post_feedforward_layernorm"),
            ]
        else:
            out.append(norm(b + "ffn_norm", m + "post_attention_layernorm"))
        if arch == "qwen3moe":
            out += _experts(b, m, config)
            continue
        bias = config.get("mlp_bias", False)
        out += linear(b + "ffn_gate", m + "mlp.gate_proj", inner, hidden, bias)
        out += linear(b + "ffn_up", m + "mlp.up_proj", inner, hidden, bias)
        out += linear(b + "ffn_down", m + "mlp.down_proj", hidden, inner, bias)
    out.append(norm("output_norm", "model.norm"))
    if not config["tie_word_embeddings"]:
        out += linear("output", "lm_head", vocab, hidden, False)
    return out


def _experts(b: str, m: str, config: Mapping[str, Any]) -> list[Wanted]:
    """Router and experts of a layer; `b` and `m` are its prefixes in the file and in the folder."""
    experts, inner, hidden = (config[k] for k in ("num_experts", "moe_intermediate_size", "hidden_size"))
    router = Wanted(
        f"{b}ffn_gate_inp.weight", f"{m}mlp.gate.weight", (experts, hidden), module=True, role="router"
    )
    sizes = {"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}
    return [router] + [
        Wanted(
            f"{b}ffn_{part}_exps.weight",
            f"{m}mlp.switch_mlp.{part}_proj.weight",
            (experts, *size),
            module=True,
        )
        for part, size in sizes.items()
    ]


def check_tensors(file: GgufFile, wanted: list[Wanted], known: set[str]) -> None:
    """Raises ConvertError on a tensor that is missing, misshapen, of an unsupported type or unknown."""
    for want in wanted:
        tensor = file.tensors.get(want.gguf)
        if tensor is None:
            raise ConvertError(f"{file.path} lacks the tensor {want.gguf}")
        if tensor.shape != want.shape:
            raise ConvertError(
                f"{file.path}: tensor {want.gguf} has the shape {list(tensor.shape)}, "
                f"its metadata asks for {list(want.shape)}"
            )
        if tensor.kind not in blocks.SUPPORTED:
            raise ConvertError(
                f"{file.path}: tensor {want.gguf} has the type {tensor.kind.name}; supported are "
                + ", ".join(kind.name for kind in blocks.SUPPORTED)
            )
    if unknown := sorted(set(file.tensors) - {want.gguf for want in wanted} - known):
        raise ConvertError(f"{file.path}: the tensor {unknown[0]} belongs to no supported model")


def lossless_jobs(file: GgufFile, wanted: list[Wanted]) -> tuple[list[Job], dict[str, Any] | None]:
    """Jobs that keep the file's own quantisation, and config.json's quantization block (or None)."""
    jobs: list[Job] = []
    bits_of: dict[str, int] = {}
    sizes: Counter[int] = Counter()
    for want in wanted:
        tensor = file.tensors[want.gguf]
        if tensor.kind in blocks.FLOAT_KINDS:
            jobs.append(_float_job(file, want, blocks.FLOAT_KINDS[tensor.kind]))
            if want.module:
                bits_of[want.name.removesuffix(".weight")] = 0
            continue
        scales = blocks.scale_dtype(file.rows(tensor), tensor.kind)
        if scales is None:
            raise ConvertError(
                f"{file.path} is damaged: tensor {want.gguf} has a scale that is not finite",
                cure="fetch it again",
            )
        if not want.module:
            jobs.append(_float_job(file, want, "F32"))
            continue
        job, bits = _affine_job(file, want, scales)
        jobs.append(job)
        bits_of[want.name.removesuffix(".weight")] = bits
        sizes[bits] += job.parameters
    if not sizes:
        return jobs, None
    usual = sizes.most_common(1)[0][0]
    block: dict[str, Any] = {"group_size": blocks.GROUP_SIZE, "bits": usual, "mode": "affine"}
    for module, bits in bits_of.items():
        if bits == 0:
            block[module] = False
        elif bits != usual:
            block[module] = {"group_size": blocks.GROUP_SIZE, "bits": bits, "mode": "affine"}
    return jobs, block


def float_jobs(file: GgufFile, wanted: list[Wanted], dtype: str) -> list[Job]:
    """Jobs that dequantise everything to safetensors dtype `dtype`."""
    return [_float_job(file, want, dtype) for want in wanted]


def requantized_jobs(file: GgufFile, wanted: list[Wanted], dtype: str, schemes: Schemes) -> list[Job]:
    """Jobs that dequantise to `dtype` and quantise anew."""
    jobs: list[Job] = []
    for want in wanted:
        job = _float_job(file, want, dtype)
        if want.module:
            scheme = schemes.choose(want.role, want.name.removesuffix(".weight"), want.shape[-1])
            if scheme is not None:
                job = quantized_job(job, scheme)
        jobs.append(job)
    return jobs


def _row_order(want: Wanted) -> Rows | None:
    """For every row wanted the row of the file that holds it; None: the same.

    The file pairs the channels i and i + half of a head as neighbours; half-split rope has them apart.
    """
    if not want.heads:
        return None
    rows = np.arange(want.shape[0], dtype=np.intp)
    return rows.reshape(want.heads, -1, 2).swapaxes(1, 2).reshape(-1)


def _float_job(file: GgufFile, want: Wanted, dtype: str) -> Job:
    """One tensor dequantised, its rows put in order, as `dtype`."""
    tensor = file.tensors[want.gguf]
    order = _row_order(want)
    if len(want.shape) == 1:

        def load() -> Array:
            values = blocks.dequantize(file.rows(tensor), tensor.kind).reshape(want.shape)
            if order is not None:
                values = values[order]
            if want.minus_one:
                values = values - np.float32(1)
            return cast(values, "F32", dtype, want.name)

        return plain_job(want.name, dtype, want.shape, load)

    def chunks() -> Iterator[tuple[Array, ...]]:
        for raw in _raw_rows(file, tensor, order):
            yield (cast(blocks.dequantize(raw, tensor.kind), "F32", dtype, want.name),)

    return Job((Entry(want.name, dtype, want.shape),), chunks, math.prod(want.shape))


def _affine_job(file: GgufFile, want: Wanted, scale_dtype: str) -> tuple[Job, int]:
    """One quantised matrix, or a layer's experts, in MLX's layout, and its bits."""
    tensor = file.tensors[want.gguf]
    kind = tensor.kind
    bits = blocks.REQUANTISED_BITS if kind in blocks.REQUANTISED else blocks.AFFINE[kind].bits
    if kind in blocks.REQUANTISED:
        return quantized_job(
            _float_job(file, want, "F32"), Format(bits, blocks.GROUP_SIZE), scale_dtype
        ), bits

    def chunks() -> Iterator[tuple[Array, ...]]:
        for raw in _raw_rows(file, tensor, _row_order(want)):
            q: Quantized = blocks.unpack(raw, kind)
            yield (
                pack(q.codes, bits),
                from_float32(q.scales, scale_dtype),
                from_float32(q.biases, scale_dtype),
            )

    outputs = quantized_outputs(want.name, want.shape, Format(bits, blocks.GROUP_SIZE), scale_dtype)
    return Job(outputs, chunks, math.prod(want.shape)), bits


def _raw_rows(file: GgufFile, tensor: GgufTensor, order: Rows | None) -> Iterator[blocks.Bytes]:
    """The stored rows in chunks, in the wanted order."""
    rows = file.rows(tensor)
    for part in row_ranges(len(rows), tensor.shape[-1]):
        yield rows[part] if order is None else rows[order[part]]
