"""What mlx-lm calls a tensor of a checkpoint, in which shape, and which stored rows it is made of.

Of a layer's experts each projection is one tensor [experts, out, in] (`switch_mlp`, Gemma 4: `switch_glu`);
a convolution is [channels, width, 1]; the norms of Qwen3-Next and Qwen3.5 have their one added.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from saragossa.models.experts import expert_form
from saragossa.models.spec import ModelSpec, TensorSpec
from saragossa.weights.bind import BoundTensor, TensorPart
from saragossa.weights.quantization import canonical

from .floats import STORAGE, Array, cast, from_float32, to_float32
from .writer import Entry, Job, row_ranges

QWEN3_5 = frozenset({"qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"})
# Model types whose decoder mlx-lm keeps under language_model.
_WRAPPED = QWEN3_5 | {"gemma3", "gemma4", "gemma4_unified"}
# Model types whose norms mlx-lm stores as they are used; of Gemma 3 it adds the one when it runs.
_ONE_ADDED = QWEN3_5 | {"qwen3_next"}
_LAYER = re.compile(r"(?:mtp\.)?layers\.\d+\.")


@dataclass(frozen=True, slots=True)
class Rows:
    """`count` rows of a stored part from row `first` on."""

    part: TensorPart
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Target:
    """A tensor of the output.

    role: of the spec; name: mlx-lm's, with `.weight`; shape: as written; columns: of a stored row.
    dtype: as stored. module: a linear, an embedding or experts, which may be quantised.
    plus_one: is to be added.
    """

    role: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    columns: int
    rows: tuple[Rows, ...]
    module: bool = False
    plus_one: bool = False


def targets(spec: ModelSpec, tensors: Sequence[BoundTensor]) -> list[Target]:
    """What is written of the tensors that `bind` found for `spec`, in their order."""
    outer = "language_model." if spec.model_type in _WRAPPED else ""
    adds = spec.model_type in _ONE_ADDED
    found: dict[str, Target] = {}
    for item, tensor in zip(spec.tensors, tensors, strict=True):
        made = _experts(item, tensor, outer) if _is_expert(item) else [_plain(item, tensor, outer, adds)]
        for target in made:
            found.setdefault(target.name, target)  # roles may share a module's rows
    return list(found.values())


def _name(role: str, stem: str, outer: str) -> str:
    """`stem` is canonical. The head and the multi-token prediction stand beside the decoder."""
    return f"{outer}{stem}" if role.startswith(("head", "mtp.")) else f"{outer}model.{stem}"


def _plain(item: TensorSpec, tensor: BoundTensor, outer: str, adds: bool) -> Target:
    rows, *inner = (item.stored_rows or item.shape[0], *item.shape[1:])
    suffix = ".weight" if item.module else ""
    return Target(
        item.role,
        _name(item.role, canonical(item.name), outer) + suffix,
        tensor.dtype,
        (rows, *inner, 1) if item.role.endswith(".delta_conv") else (rows, *inner),
        math.prod(inner),
        (Rows(tensor.parts[0], 0, rows),),
        module=item.module,
        plus_one=adds and item.plus_one,
    )


def _is_expert(item: TensorSpec) -> bool:
    return item.role.rpartition(".")[2].startswith("experts_")


def _experts(item: TensorSpec, tensor: BoundTensor, outer: str) -> Iterator[Target]:
    """One projection of a layer's experts, or two that are stored as one (an expert's gate, then its up)."""
    stem = canonical(item.name)
    layer = _LAYER.match(stem)
    assert layer is not None
    switch = expert_form(layer[0], moe_is_gemma=".mlp." not in stem).switch
    role, _, projection = item.role.rpartition("experts_")
    experts = len(item.stack) if item.stack else (item.stored or item.shape)[0]
    columns = item.shape[1]
    stored = item.shape[0] // experts  # rows of an expert
    halves = ("gate", "up") if projection == "gate_up" else (projection,)
    count = stored // len(halves)
    for i, half in enumerate(halves):
        rows = tuple(
            Rows(tensor.parts[e], i * count, count)
            if item.stack
            else Rows(tensor.parts[0], e * stored + i * count, count)
            for e in range(experts)
        )
        yield Target(
            f"{role}experts_{half}",
            _name(item.role, f"{switch}.{half}_proj.weight", outer),
            tensor.dtype,
            (experts, count, columns),
            columns,
            rows,
            module=True,
        )


def copy_job(target: Target, dtype: str) -> Job:
    """The stored values as `dtype`, a few rows at a time."""

    def chunks() -> Iterator[tuple[Array, ...]]:
        for piece in target.rows:
            data = _mapped(piece, target.columns)
            for rows in row_ranges(piece.count, target.columns):
                values = np.asarray(data[rows])
                if target.plus_one:  # rounded to the stored dtype, as mlx does
                    values = from_float32(to_float32(values, target.dtype) + np.float32(1), target.dtype)
                yield (cast(values, target.dtype, dtype, target.name),)

    return Job((Entry(target.name, dtype, target.shape),), chunks, math.prod(target.shape))


def _mapped(rows: Rows, columns: int) -> Array:
    storage = STORAGE[rows.part.dtype]
    offset = rows.part.offset + rows.first * columns * storage.itemsize
    return np.memmap(rows.part.file, storage, "r", offset=offset, shape=(rows.count, columns))
