"""Bytes that the Metal device must read, by a model's shapes: by kernel for its bandwidth, and a token's."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable
from typing import NamedTuple

from saragossa.engine.memory import delta_state_bytes
from saragossa.models.spec import DecoderSpec, LayerSpec
from saragossa.weights.bind import BoundTensor

KV_BYTES = 2  # of a stored key or value: bf16
F32 = 4  # of a vector or a convolution on the device, and of a recurrent state

# Parts of a role (models/spec.py) that a kernel of its own reads; other linears are matvec's.
_GATED = ("experts_gate", "experts_up", "experts_gate_up", "shared_gate_proj", "shared_up")
_DOWN = ("experts_down", "shared_down")
_TABLES = ("embed", "per_layer_embed")  # of which a token reads a row


class TokenBytes(NamedTuple):
    """The least that a decoded token moves.

    weights: of chosen experts only; kv: each cached key and value once, in layers with a window those in it;
    state: recurrent ones, read and written.
    """

    weights: int
    kv: int
    state: int

    @property
    def total(self) -> int:
        return sum(self)


def of_token(decoder: DecoderSpec, tensors: Iterable[BoundTensor], length: int) -> TokenBytes:
    """Of a token that sees `length` tokens, itself included."""
    weights = 0
    for tensor in tensors:
        if tensor.role.startswith("mtp."):
            continue
        if tensor.role in _TABLES and not (tensor.role == "embed" and decoder.tied):
            weights += tensor.nbytes // tensor.shape[0]
        elif _is_linear(tensor):
            weights += _chosen_bytes(decoder, tensor, 1)
        else:
            weights += F32 * math.prod(tensor.shape)
    owned = (layer for layer in decoder.layers if layer.attention is None or layer.attention.kv_from is None)
    return TokenBytes(weights, _keys_and_values(owned, length), 2 * sum(map(_state, decoder.layers)))


def of_prefill(
    decoder: DecoderSpec, tensors: Iterable[BoundTensor], tokens: int, ran: Container[str]
) -> dict[str, int]:
    """kernel -> the least that it reads in a prefill of one drawn row: each weight, key, value, state once.

    Which experts a prompt chooses its shapes do not tell: as many as it can, up to all.
    """
    read, head = _linears(decoder, tensors, tokens)
    read["attention_prefill"] = _keys_and_values(decoder.layers, tokens)
    read["sample_scan"] = F32 * decoder.vocab
    for kernel in ("delta_rule_rows", "delta_rule_step"):
        if kernel in ran:
            read[kernel] = 2 * sum(map(_matrices, decoder.layers))
    if "moe_matmul" in ran:
        read["moe_matmul"] = read.pop("moe_gated", 0) + read.pop("moe_down", 0)
    matmul = next((kernel for kernel in ("matmul_tensor", "matmul") if kernel in ran), "matvec")
    read[matmul] = read.pop("matvec")
    read["matvec"] += head
    return dict(read)


def of_decode(
    decoder: DecoderSpec, tensors: Iterable[BoundTensor], length: int, steps: int
) -> dict[str, int]:
    """kernel -> bytes that it reads in so many steps of one row, behind `length` tokens.

    Of the delta rule also those that it writes, the states.
    """
    once, head = _linears(decoder, tensors, 1)
    once["matvec"] += head
    once["sample_scan"] = F32 * decoder.vocab
    once["delta_rule_step"] = 2 * sum(map(_matrices, decoder.layers))
    read = {kernel: steps * nbytes for kernel, nbytes in once.items() if nbytes}
    seen = (_keys_and_values(decoder.layers, length + i + 1) for i in range(steps))
    return read | {"attention_decode": sum(seen)}


def _keys_and_values(layers: Iterable[LayerSpec], length: int) -> int:
    """What one token reads that sees `length` tokens, or a layer's window of them."""
    seen = [layer.attention for layer in layers if layer.attention is not None]
    return sum(2 * KV_BYTES * a.kv_heads * a.head_dim * min(length, a.window or length) for a in seen)


def _state(layer: LayerSpec) -> int:
    return delta_state_bytes(layer.delta) if layer.delta is not None else 0


def _matrices(layer: LayerSpec) -> int:
    """Of the delta rule's state; the convolution's is another kernel's."""
    d = layer.delta
    return F32 * d.value_heads * d.value_dim * d.key_dim if d is not None else 0


def _part(tensor: BoundTensor) -> str:
    return tensor.role.rpartition(".")[2]


def _is_linear(tensor: BoundTensor) -> bool:
    return len(tensor.shape) == 2 and _part(tensor) != "delta_conv"


def _chosen_bytes(decoder: DecoderSpec, tensor: BoundTensor, tokens: int) -> int:
    """Of a weight; of stacked experts those that so many tokens can choose."""
    if not _part(tensor).startswith("experts_"):
        return tensor.nbytes
    moe = decoder.layers[int(tensor.role.split(".")[1])].moe
    assert moe is not None
    return tensor.nbytes // moe.experts * min(moe.experts, tokens * moe.top_k)


def _linears(decoder: DecoderSpec, tensors: Iterable[BoundTensor], tokens: int) -> tuple[Counter[str], int]:
    """By kernel those of the layers, and the head; a tied one is the embedding."""
    read: Counter[str] = Counter()
    head = 0
    for tensor in tensors:
        part = _part(tensor)
        if tensor.role.startswith("mtp.") or not _is_linear(tensor):
            continue
        if tensor.role == ("embed" if decoder.tied else "head"):
            head = tensor.nbytes
        elif tensor.role not in _TABLES:
            kernel = "moe_gated" if part in _GATED else "moe_down" if part in _DOWN else "matvec"
            read[kernel] += _chosen_bytes(decoder, tensor, tokens)
    return read, head
