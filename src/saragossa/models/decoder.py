"""From a decoder's shape to its tensor list.

The prefix before `layers.0...` depends on who wrote the checkpoint; it is taken from the names at hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from saragossa.models.index import Index
from saragossa.models.spec import DecoderSpec, ModelSpec, TensorSpec
from saragossa.models.tensors import LayerTensors

# Prefix of the decoder -> name of the head. The first one is taken when no embedding is found.
PREFIXES: Mapping[str, str] = {
    "model.": "lm_head",  # plain, and transformers 4's own for text models
    "model.language_model.": "lm_head",  # multimodal, as transformers 5 saves it
    "language_model.model.": "language_model.lm_head",  # multimodal, older files and MLX
    "": "lm_head",  # the bare decoder without a head module
}


def prefix_of(index: Index) -> str:
    """The decoder's prefix in a checkpoint."""
    return next((prefix for prefix in PREFIXES if f"{prefix}embed_tokens.weight" in index), "model.")


def model_spec(
    model_type: str,
    decoder: DecoderSpec,
    index: Index,
    *,
    dtype: str,
    quantization: Mapping[str, object] | None,
    plus_one: bool = False,
    fused_delta: bool = False,
    mtp_prefix: str = "mtp.",
    ignored: tuple[str, ...] = (),
) -> ModelSpec:
    """Complete spec of a decoder.

    index: the checkpoint's tensors; plus_one: all norms are stored as w and used as 1 + w; fused_delta: q, k,
    v and z of delta nets are one module where the index does not tell; mtp_prefix: of `decoder.mtp`;
    ignored: prefixes of tensors that are known and not needed.
    """
    prefix = prefix_of(index)
    head = PREFIXES[prefix]

    def layer(role: str, name: str) -> LayerTensors:
        return LayerTensors(role, name, decoder.hidden, index, plus_one, fused_delta)

    tensors = [TensorSpec("embed", f"{prefix}embed_tokens", (decoder.vocab, decoder.hidden), module=True)]
    tensors += _per_layer_inputs(decoder, prefix)
    for i, spec in enumerate(decoder.layers):
        tensors += layer(f"layers.{i}.", f"{prefix}layers.{i}.").of(spec)
    tensors.append(TensorSpec("norm", f"{prefix}norm.weight", (decoder.hidden,), plus_one=plus_one))
    if not decoder.tied:
        tensors.append(TensorSpec("head", head, (decoder.vocab, decoder.hidden), module=True))
    if decoder.mtp is not None:
        tensors += _mtp_top(decoder.hidden, mtp_prefix, plus_one)
        for i, spec in enumerate(decoder.mtp.layers):
            tensors += layer(f"mtp.layers.{i}.", f"{mtp_prefix}layers.{i}.").of(spec)
    # Older Llama files keep the frequencies, which follow from the config.
    rotary = tuple(f"{prefix}layers.{i}.self_attn.rotary_emb." for i in range(len(decoder.layers)))
    return ModelSpec(
        model_type=model_type,
        decoder=decoder,
        tensors=tuple(tensors),
        ignored_prefixes=(*ignored, f"{prefix}rotary_emb.", *rotary, *_shared_keys(decoder, prefix)),
        tied_head_name=head if decoder.tied else None,
        quantization=quantization,
        dtype=dtype,
    )


def _shared_keys(decoder: DecoderSpec, prefix: str) -> Iterator[str]:
    """Files may hold keys and values of layers that take another layer's."""
    for i, layer in enumerate(decoder.layers):
        if layer.attention is not None and layer.attention.kv_from is not None:
            yield from (
                f"{prefix}layers.{i}.self_attn.{part}." for part in ("k_proj", "v_proj", "k_norm", "v_norm")
            )


def _per_layer_inputs(decoder: DecoderSpec, prefix: str) -> Iterator[TensorSpec]:
    if not decoder.per_layer_vocab:
        return
    width = decoder.layers[0].per_layer_input
    columns = width * len(decoder.layers)
    embed = f"{prefix}embed_tokens_per_layer"
    yield TensorSpec("per_layer_embed", embed, (decoder.per_layer_vocab, columns), module=True)
    project = f"{prefix}per_layer_model_projection"
    yield TensorSpec("per_layer_model_proj", project, (columns, decoder.hidden), module=True)
    yield TensorSpec("per_layer_model_norm", f"{prefix}per_layer_projection_norm.weight", (width,))


def _mtp_top(hidden: int, name: str, plus_one: bool) -> Iterator[TensorSpec]:
    yield TensorSpec("mtp.fc", f"{name}fc", (hidden, 2 * hidden), module=True)
    for part, module in (
        ("embed_norm", "pre_fc_norm_embedding"),
        ("hidden_norm", "pre_fc_norm_hidden"),
        ("norm", "norm"),
    ):
        yield TensorSpec(f"mtp.{part}", f"{name}{module}.weight", (hidden,), plus_one=plus_one)
