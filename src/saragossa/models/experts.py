"""Where a checkpoint keeps its experts: fused, apart in three dimensions, or one module an expert."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from saragossa.models.index import Index
from saragossa.models.spec import MoeSpec, TensorSpec


@dataclass(frozen=True, slots=True)
class ExpertForm:
    """How one layer's experts are stored. `one_by_one` and `switch` are prefixes of the three projections."""

    one_by_one: str  # model.layers.0.mlp.experts
    switch: str  # model.layers.0.mlp.switch_mlp (MLX)

    def is_fused(self, index: Index) -> bool:
        """Gate and up in one tensor, as transformers 5 holds them and some of the Hub's files do."""
        name = f"{self.one_by_one}.gate_up_proj"
        return name in index or f"{name}.weight" in index

    def tensors(self, role: str, moe: MoeSpec, hidden: int, index: Index) -> Iterator[TensorSpec]:
        """experts_gate and experts_up, or experts_gate_up, and experts_down."""
        if moe.fused_gate_up:
            yield self._fused(role, "gate_up", moe.experts, 2 * moe.intermediate, hidden, index)
            yield self._fused(role, "down", moe.experts, hidden, moe.intermediate, index)
            return
        for part, out, inputs in (
            ("gate", moe.intermediate, hidden),
            ("up", moe.intermediate, hidden),
            ("down", hidden, moe.intermediate),
        ):
            shape = (moe.experts * out, inputs)
            name = f"{self.switch}.{part}_proj"
            if f"{name}.weight" in index:
                stored = (moe.experts, out, inputs)
                yield TensorSpec(f"{role}experts_{part}", name, shape, module=True, stored=stored)
                continue
            stack = tuple(f"{self.one_by_one}.{i}.{part}_proj" for i in range(moe.experts))
            every = f"{self.one_by_one}.*.{part}_proj"
            yield TensorSpec(f"{role}experts_{part}", every, shape, module=True, stack=stack)

    def _fused(self, role: str, part: str, count: int, out: int, inputs: int, index: Index) -> TensorSpec:
        name = f"{self.one_by_one}.{part}_proj"
        return TensorSpec(
            f"{role}experts_{part}",
            name,
            (count * out, inputs),
            module=f"{name}.weight" in index,  # transformers' parameter has no suffix
            stored=(count, out, inputs),
        )


def expert_form(layer: str, moe_is_gemma: bool) -> ExpertForm:
    """`layer` is the layer's prefix in the checkpoint, with its dot."""
    if moe_is_gemma:
        return ExpertForm(f"{layer}experts", f"{layer}experts.switch_glu")
    return ExpertForm(f"{layer}mlp.experts", f"{layer}mlp.switch_mlp")
