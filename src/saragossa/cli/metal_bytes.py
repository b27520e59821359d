"""Bytes that the large kernels of the Metal device must read, from a model's shapes, for their bandwidth."""

from __future__ import annotations

from collections.abc import Container, Iterable

from saragossa.models.spec import DecoderSpec
from saragossa.weights.bind import BoundTensor

KV_BYTES = 2  # of a stored key or value: bf16


def _keys_and_values(decoder: DecoderSpec, length: int) -> int:
    """What one token reads that sees `length` tokens, or a layer's window of them."""
    seen = [layer.attention for layer in decoder.layers if layer.attention is not None]
    return sum(2 * KV_BYTES * a.kv_heads * a.head_dim * min(length, a.window or length) for a in seen)


def _linears(tensors: Iterable[BoundTensor]) -> tuple[int, int]:
    """Of the layers, and of the head; a tied one is the embedding."""
    sizes = {tensor.role: tensor.nbytes for tensor in tensors if len(tensor.shape) == 2}
    layers = sum(size for role, size in sizes.items() if role.startswith("layers."))
    return layers, sizes.get("head", sizes["embed"])


def of_prefill(
    decoder: DecoderSpec, tensors: Iterable[BoundTensor], tokens: int, ran: Container[str]
) -> dict[str, int]:
    """kernel -> the least that it reads in a prefill of one drawn row: each weight, key and value once."""
    layers, head = _linears(tensors)
    of = {"sample_scan": 4 * decoder.vocab, "attention_prefill": _keys_and_values(decoder, tokens)}
    for matmul in ("matmul_tensor", "matmul"):
        if matmul in ran:
            return of | {matmul: layers, "matvec": head}
    return of | {"matvec": layers + head}


def of_decode(
    decoder: DecoderSpec, tensors: Iterable[BoundTensor], length: int, steps: int
) -> dict[str, int]:
    """kernel -> bytes that it reads in so many steps of one row, behind `length` tokens."""
    return {
        "matvec": steps * sum(_linears(tensors)),
        "attention_decode": sum(_keys_and_values(decoder, length + i + 1) for i in range(steps)),
        "sample_scan": steps * 4 * decoder.vocab,
    }
