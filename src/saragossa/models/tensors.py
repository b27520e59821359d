"""From a layer's spec to its tensors, in the names that Llama's descendants share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from saragossa.models.experts import expert_form
from saragossa.models.index import Index
from saragossa.models.spec import AttentionSpec, DeltaSpec, LayerSpec, MlpSpec, MoeSpec, TensorSpec

Rows = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class LayerTensors:
    """Tensors of one layer: `role` and `name` are its prefixes in the spec and in the checkpoint.

    plus_one: of its norms, but for a delta net's. fused_delta: whether q, k, v and z of a delta net are one
    module where the index does not tell.
    """

    role: str
    name: str
    hidden: int
    index: Index
    plus_one: bool = False
    fused_delta: bool = False

    def of(self, layer: LayerSpec) -> Iterator[TensorSpec]:
        yield self._norm("attn_norm", "input_layernorm")
        if layer.attention is not None:
            yield from self._attention(layer.attention)
        if layer.delta is not None:
            yield from self._delta(layer.delta)
        if layer.post_norms:  # Gemma: four norms, of which Llama's second name is the third place
            yield self._norm("attn_post_norm", "post_attention_layernorm")
            yield self._norm("mlp_norm", "pre_feedforward_layernorm")
            yield self._norm("mlp_post_norm", "post_feedforward_layernorm")
        else:
            yield self._norm("mlp_norm", "post_attention_layernorm")
        if layer.mlp is not None:
            yield from self._mlp(layer.mlp)
        if layer.moe is not None:
            yield from self._moe(layer.moe)
        if layer.per_layer_input:
            width = layer.per_layer_input
            yield from self._linear("per_layer_gate", "per_layer_input_gate", width, self.hidden)
            yield from self._linear("per_layer_proj", "per_layer_projection", self.hidden, width)
            yield self._norm("per_layer_norm", "post_per_layer_input_norm")
        if layer.layer_scalar:
            yield self._vector("layer_scalar", "layer_scalar", 1)

    def _vector(self, part: str, tensor: str, size: int, factor: float = 1.0) -> TensorSpec:
        return TensorSpec(self.role + part, self.name + tensor, (size,), factor=factor)

    def _norm(self, part: str, module: str, size: int = 0) -> TensorSpec:
        return TensorSpec(
            self.role + part, f"{self.name}{module}.weight", (size or self.hidden,), plus_one=self.plus_one
        )

    def _linear(
        self, part: str, module: str, out: int, inputs: int, bias: bool = False
    ) -> Iterator[TensorSpec]:
        yield TensorSpec(self.role + part, self.name + module, (out, inputs), module=True)
        if bias:
            yield TensorSpec(f"{self.role}{part}.bias", f"{self.name}{module}.bias", (out,))

    def _rows(self, part: str, module: str, rows: Rows, stored_rows: int) -> TensorSpec:
        """Some rows of a module that holds several linears."""
        out = sum(count for _, count in rows)
        return TensorSpec(
            self.role + part,
            self.name + module,
            (out, self.hidden),
            module=True,
            rows=rows,
            stored_rows=stored_rows,
        )

    def _attention(self, a: AttentionSpec) -> Iterator[TensorSpec]:
        queries, keys = a.heads * a.head_dim, a.kv_heads * a.head_dim
        if a.gate:  # of each head the query's rows, then its gate's
            for part, first in (("q", 0), ("q_gate", a.head_dim)):
                rows = merged((2 * head * a.head_dim + first, a.head_dim) for head in range(a.heads))
                yield self._rows(part, "self_attn.q_proj", rows, 2 * queries)
        else:
            yield from self._linear("q", "self_attn.q_proj", queries, self.hidden, a.qkv_bias)
        if a.kv_from is None:
            yield from self._linear("k", "self_attn.k_proj", keys, self.hidden, a.qkv_bias)
            if not a.v_is_k:
                yield from self._linear("v", "self_attn.v_proj", keys, self.hidden, a.qkv_bias)
        if a.q_norm:
            yield self._norm("q_norm", "self_attn.q_norm", a.head_dim)
        if a.k_norm:
            yield self._norm("k_norm", "self_attn.k_norm", a.head_dim)
        yield from self._linear("o", "self_attn.o_proj", self.hidden, queries, a.o_bias)

    def _delta(self, d: DeltaSpec) -> Iterator[TensorSpec]:
        values = d.value_heads * d.value_dim
        fused, apart = (f"linear_attn.in_proj_{part}" for part in ("qkvz", "qkv"))
        if self._is_fused(f"{self.name}{fused}.weight", f"{self.name}{apart}.weight"):
            yield from self._delta_fused(d, fused)
        else:
            yield from self._linear("delta_qkv", apart, d.channels, self.hidden)
            yield from self._linear("delta_z", "linear_attn.in_proj_z", values, self.hidden)
            yield from self._linear("delta_b", "linear_attn.in_proj_b", d.value_heads, self.hidden)
            yield from self._linear("delta_a", "linear_attn.in_proj_a", d.value_heads, self.hidden)
        conv = f"{self.name}linear_attn.conv1d.weight"
        stored = (
            (d.channels, d.conv_width, 1) if is_mlx_conv(conv, self.index) else (d.channels, 1, d.conv_width)
        )
        yield TensorSpec(f"{self.role}delta_conv", conv, (d.channels, d.conv_width), stored=stored)
        yield self._vector("delta_a_log", "linear_attn.A_log", d.value_heads)
        yield self._vector("delta_dt_bias", "linear_attn.dt_bias", d.value_heads)
        yield self._vector("delta_norm", "linear_attn.norm.weight", d.value_dim)
        yield from self._linear("delta_out", "linear_attn.out_proj", self.hidden, values)

    def _is_fused(self, fused: str, apart: str) -> bool:
        if fused in self.index:
            return True
        return self.fused_delta and apart not in self.index

    def _delta_fused(self, d: DeltaSpec, qkvz: str) -> Iterator[TensorSpec]:
        """Of each key head: q, k, v of its value heads, z of them; and b, a of them."""
        group = d.value_heads // d.key_heads
        width = group * d.value_dim
        sizes = (d.key_dim, d.key_dim, width, width)
        block = sum(sizes)

        def part(i: int) -> Iterator[tuple[int, int]]:
            return ((head * block + sum(sizes[:i]), sizes[i]) for head in range(d.key_heads))

        rows = d.key_heads * block
        yield self._rows("delta_qkv", qkvz, merged(row for i in range(3) for row in part(i)), rows)
        yield self._rows("delta_z", qkvz, merged(part(3)), rows)
        for name, first in (("delta_b", 0), ("delta_a", group)):
            ranges = merged((2 * head * group + first, group) for head in range(d.key_heads))
            yield self._rows(name, "linear_attn.in_proj_ba", ranges, 2 * d.value_heads)

    def _mlp(self, mlp: MlpSpec) -> Iterator[TensorSpec]:
        yield from self._linear("gate", "mlp.gate_proj", mlp.intermediate, self.hidden, mlp.bias)
        yield from self._linear("up", "mlp.up_proj", mlp.intermediate, self.hidden, mlp.bias)
        yield from self._linear("down", "mlp.down_proj", self.hidden, mlp.intermediate, mlp.bias)

    def _moe(self, moe: MoeSpec) -> Iterator[TensorSpec]:
        router = "router.proj" if moe.router_norm else "mlp.gate"
        yield from self._linear("router", router, moe.experts, self.hidden)
        if moe.router_norm:
            yield self._vector("router_norm", "router.scale", self.hidden, self.hidden**-0.5)
            yield self._vector("router_scale", "router.per_expert_scale", moe.experts)
            yield self._norm("moe_norm", "pre_feedforward_layernorm_2")
            yield self._norm("moe_post_norm", "post_feedforward_layernorm_2")
            yield self._norm("dense_post_norm", "post_feedforward_layernorm_1")
        form = expert_form(self.name, moe.router_norm)
        yield from form.tensors(self.role, moe, self.hidden, self.index)
        if width := moe.shared_intermediate:
            shared = "mlp.shared_expert."
            yield from self._linear("shared_gate_proj", f"{shared}gate_proj", width, self.hidden)
            yield from self._linear("shared_up", f"{shared}up_proj", width, self.hidden)
            yield from self._linear("shared_down", f"{shared}down_proj", self.hidden, width)
        if moe.shared_gate:
            yield from self._linear("shared_gate", "mlp.shared_expert_gate", 1, self.hidden)


def merged(ranges: Iterable[tuple[int, int]]) -> Rows:
    """Neighbours as one range: a tensor of one range lies where it is and is not copied."""
    result: list[tuple[int, int]] = []
    for start, count in ranges:
        if result and sum(result[-1]) == start:
            result[-1] = (result[-1][0], result[-1][1] + count)
        else:
            result.append((start, count))
    return tuple(result)


def is_mlx_conv(name: str, index: Index) -> bool:
    """Whether a convolution is stored [channels, width, 1] (MLX) rather than [channels, 1, width]."""
    entry = index.get(name)
    if entry is None or len(entry.shape) != 3:
        return False
    return entry.shape[2] == 1 and entry.shape[1] != 1
