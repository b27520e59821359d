"""From a decoder's shape to its tensor list: the naming that Llama's descendants share.

The prefix before `layers.0...` depends on who wrote the checkpoint; it is taken from the names at hand.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from saragossa.models.spec import DecoderSpec, LayerSpec, ModelSpec, TensorSpec

# Prefix of the decoder -> name of the head. The first one is taken when no embedding is found.
PREFIXES: Mapping[str, str] = {
    "model.": "lm_head",  # plain, and transformers 4's own for text models
    "model.language_model.": "lm_head",  # multimodal, as transformers 5 saves it
    "language_model.model.": "language_model.lm_head",  # multimodal, older files and MLX
    "": "lm_head",  # the bare decoder without a head module
}


def model_spec(
    model_type: str,
    decoder: DecoderSpec,
    names: Collection[str],
    *,
    dtype: str,
    quantization: Mapping[str, object] | None,
    plus_one: bool = False,
    ignored: tuple[str, ...] = (),
) -> ModelSpec:
    """Complete spec of a decoder.

    names: the checkpoint's tensor names; plus_one: all norms are stored as w and used as 1 + w;
    ignored: prefixes of tensors that are known and not needed.
    """
    prefix = next((prefix for prefix in PREFIXES if f"{prefix}embed_tokens.weight" in names), "model.")
    head = PREFIXES[prefix]
    tensors = list(_tensors(decoder, prefix, plus_one))
    if not decoder.tied:
        tensors.append(TensorSpec("head", head, (decoder.vocab, decoder.hidden), module=True))
    # Older Llama files keep the frequencies, which follow from the config.
    rotary = tuple(f"{prefix}layers.{i}.self_attn.rotary_emb." for i in range(len(decoder.layers)))
    return ModelSpec(
        model_type=model_type,
        decoder=decoder,
        tensors=tuple(tensors),
        ignored_prefixes=(*ignored, f"{prefix}rotary_emb.", *rotary),
        tied_head_name=head if decoder.tied else None,
        quantization=quantization,
        dtype=dtype,
    )


def _tensors(decoder: DecoderSpec, prefix: str, plus_one: bool) -> Iterator[TensorSpec]:
    yield TensorSpec("embed", f"{prefix}embed_tokens", (decoder.vocab, decoder.hidden), module=True)
    for i, layer in enumerate(decoder.layers):
        yield from _layer(layer, decoder.hidden, f"layers.{i}.", f"{prefix}layers.{i}.", plus_one)
    yield TensorSpec("norm", f"{prefix}norm.weight", (decoder.hidden,), plus_one=plus_one)


def _layer(layer: LayerSpec, hidden: int, role: str, name: str, plus_one: bool) -> Iterator[TensorSpec]:
    attention, mlp = layer.attention, layer.mlp
    queries, keys = attention.heads * attention.head_dim, attention.kv_heads * attention.head_dim

    def norm(part: str, module: str, size: int) -> TensorSpec:
        return TensorSpec(role + part, f"{name}{module}.weight", (size,), plus_one=plus_one)

    def linear(part: str, module: str, out: int, inputs: int, bias: bool) -> Iterator[TensorSpec]:
        yield TensorSpec(role + part, name + module, (out, inputs), module=True)
        if bias:
            yield TensorSpec(f"{role}{part}.bias", f"{name}{module}.bias", (out,))

    yield norm("attn_norm", "input_layernorm", hidden)
    yield from linear("q", "self_attn.q_proj", queries, hidden, attention.qkv_bias)
    yield from linear("k", "self_attn.k_proj", keys, hidden, attention.qkv_bias)
    yield from linear("v", "self_attn.v_proj", keys, hidden, attention.qkv_bias)
    if attention.q_norm:
        yield norm("q_norm", "self_attn.q_norm", attention.head_dim)
    if attention.k_norm:
        yield norm("k_norm", "self_attn.k_norm", attention.head_dim)
    yield from linear("o", "self_attn.o_proj", hidden, queries, attention.o_bias)
    if layer.post_norms:  # Gemma: four norms, of which Llama's second name is the third place
        yield norm("attn_post_norm", "post_attention_layernorm", hidden)
        yield norm("mlp_norm", "pre_feedforward_layernorm", hidden)
        yield norm("mlp_post_norm", "post_feedforward_layernorm", hidden)
    else:
        yield norm("mlp_norm", "post_attention_layernorm", hidden)
    yield from linear("gate", "mlp.gate_proj", mlp.intermediate, hidden, mlp.bias)
    yield from linear("up", "mlp.up_proj", mlp.intermediate, hidden, mlp.bias)
    yield from linear("down", "mlp.down_proj", hidden, mlp.intermediate, mlp.bias)
