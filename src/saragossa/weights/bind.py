"""Bind a model's spec to the tensors of its checkpoint: every check that needs no weight to be read.

After `bind` the core knows for each role where the bytes lie and how they are coded; a tensor that is
missing, left over or of the wrong shape has been named.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, cast

from saragossa.errors import WeightsError
from saragossa.models.spec import ModelSpec, TensorSpec
from saragossa.weights.quantization import BITS, GROUP_SIZES, Format, QuantizationConfig, stored_format
from saragossa.weights.safetensors import TensorEntry

log = logging.getLogger("saragossa.weights")

FLOATS = ("F32", "F16", "BF16")
Kind = Literal["dense", "affine", "mxfp4", "mxfp8"]
_CHUNK = 1 << 20
_PARTS = ("weight", "scales", "biases")


class TensorPart(NamedTuple):
    """Stored bytes: `offset` from the start of `file`, `dtype` a safetensors code."""

    file: str
    offset: int
    nbytes: int
    dtype: str


@dataclass(frozen=True, slots=True)
class BoundTensor:
    """A tensor of the model and where it lies. The core reads this by field name.

    dtype: F32, F16 or BF16; of a quantised tensor that of its scales.
    kind: dense, or the mode of a quantised module.
    shape: logical: [out, in] of a module as unquantised, [n] of a vector.
    bits, group_size: 0 if dense.
    parts: (weight,), or (weight, scales) and of affine also biases: U32 [out, in * bits / 32], then
      [out, in / group_size], U8 unless affine; of a stack those of one module after another.
    rows: ranges (start, count) of the `stored_rows` rows that make up the tensor; empty: all of them.
    stack: modules whose rows follow each other; 0: one.
    factor: multiplies a vector.
    """

    role: str
    name: str
    kind: Kind
    dtype: str
    shape: tuple[int, ...]
    bits: int
    group_size: int
    plus_one: bool
    parts: tuple[TensorPart, ...]
    rows: tuple[tuple[int, int], ...] = ()
    stack: int = 0
    factor: float = 1.0
    stored_rows: int = 0

    @property
    def nbytes(self) -> int:
        """Stored bytes of all parts, of `rows` alone where there are some."""
        nbytes = sum(part.nbytes for part in self.parts)
        if not self.rows:
            return nbytes
        return nbytes * sum(count for _, count in self.rows) // self.stored_rows


def total_bytes(tensors: Iterable[BoundTensor]) -> int:
    """Stored bytes of all tensors."""
    return sum(tensor.nbytes for tensor in tensors)


def bind(spec: ModelSpec, index: Mapping[str, TensorEntry]) -> list[BoundTensor]:
    """Find and check every tensor of `spec` in `index`, in the spec's order.

    Raises WeightsError naming tensors that are missing, left over, misshapen, of an unsupported dtype, or at
    odds with the config's quantization block. Warns about overrides that match nothing and about a tied
    model's own head when its values differ from the embedding.
    """
    binder = _Binder(spec, index)
    bound = [tensor for item in spec.tensors if (tensor := binder.bind(item)) is not None]
    binder.finish()
    if spec.tied_head_name is not None:
        _check_tied_head(spec.tied_head_name, bound[0], index)
    return bound


class _Binder:
    """Collects what was used and what is wrong, so that one error names all of it."""

    def __init__(self, spec: ModelSpec, index: Mapping[str, TensorEntry]) -> None:
        self.spec = spec
        self.index = index
        self.quantization = QuantizationConfig.parse(spec.quantization)
        self.used: set[str] = set()
        self.missing: list[str] = []
        self.wrong: list[str] = []

    def bind(self, item: TensorSpec) -> BoundTensor | None:
        if item.stack:
            return self._stack(item)
        stored = item.stored or item.shape
        if item.rows:
            stored = (item.stored_rows, *item.shape[1:])
        return self._one(item, item.name, stored)

    def _stack(self, item: TensorSpec) -> BoundTensor | None:
        """Modules whose rows follow each other: experts stored one by one."""
        count = len(item.stack)
        absent = [name for name in item.stack if f"{name}.weight" not in self.index]
        if absent:
            self.used.update(f"{name}.{part}" for name in item.stack for part in _PARTS)
            found = "none is there" if len(absent) == count else f"{count - len(absent)} are there"
            self.missing.append(f"{absent[0]}.weight (the config has {count} experts, {found})")
            return None
        shape = (item.shape[0] // count, *item.shape[1:])
        found_all = [self._one(item, name, shape) for name in item.stack]
        modules = [module for module in found_all if module is not None]
        if len(modules) < count:
            return None
        first = modules[0]
        for module in modules:
            if _format(module) != _format(first):
                self.wrong.append(
                    f"{module.name} is stored as {_format(module)}, {first.name} as {_format(first)}; the "
                    "experts of a layer must be stored alike"
                )
                return None
        parts = tuple(part for module in modules for part in module.parts)
        return replace(first, name=item.name, parts=parts, stack=count)

    def _one(self, item: TensorSpec, name: str, stored: tuple[int, ...]) -> BoundTensor | None:
        """The tensor `name`, which the checkpoint must have with shape `stored`."""
        weight = f"{name}.weight" if item.module else name
        self.used.add(weight)
        if item.module:
            self.used.update((f"{name}.scales", f"{name}.biases"))
        entry = self.index.get(weight)
        if entry is None:
            self.missing.append(weight)
            return None
        if item.module and (entry.dtype == "U32" or f"{name}.scales" in self.index):
            return self._quantised(item, name, stored, entry)
        return self._dense(item, name, stored, entry)

    def _dense(
        self, item: TensorSpec, name: str, stored: tuple[int, ...], entry: TensorEntry
    ) -> BoundTensor | None:
        if entry.dtype not in FLOATS:
            self.wrong.append(f"{entry.name} is {entry.dtype}, supported are {', '.join(FLOATS)}")
            return None
        if entry.shape != stored:
            self.wrong.append(
                f"{entry.name} has shape {list(entry.shape)}, the config says {list(stored)}"
                f"{_shape_hint(item, stored, entry)}"
            )
            return None
        if item.module and self.quantization is not None and self.quantization.is_explicit(name):
            said = self.quantization.for_module(name)
            if said is not None:
                self.wrong.append(f"{entry.name} is {entry.dtype}, the config's quantization says {said}")
                return None
        return BoundTensor(
            item.role, name, "dense", entry.dtype, item.shape, 0, 0, item.plus_one, (_part(entry),),
            rows=item.rows, factor=item.factor, stored_rows=item.stored_rows,
        )  # fmt: skip

    def _quantised(
        self, item: TensorSpec, name: str, stored: tuple[int, ...], weight: TensorEntry
    ) -> BoundTensor | None:
        scales, biases = (self.index.get(f"{name}.{part}") for part in ("scales", "biases"))
        powers = scales is not None and scales.dtype == "U8"  # of two, without biases
        if scales is None or (biases is None and not powers):
            self.missing += [
                f"{name}.{part}"
                for part, entry in (("scales", scales), ("biases", biases))
                if entry is None and not (part == "biases" and powers)
            ]
            return None
        found = self._stored_format(name, stored, weight, scales, biases)
        if found is None:
            return None
        said = self.quantization.for_module(name) if self.quantization else None
        if said != found:
            claim = said or ("float" if self.quantization else "nothing (it has no quantization block)")
            self.wrong.append(f"{name} is stored as {found}, the config's quantization says {claim}")
            return None
        parts = tuple(_part(entry) for entry in (weight, scales, biases) if entry is not None)
        return BoundTensor(
            item.role, name, cast(Kind, found.mode), scales.dtype, item.shape, found.bits, found.group_size,
            item.plus_one, parts, rows=item.rows, factor=item.factor, stored_rows=item.stored_rows,
        )  # fmt: skip

    def _stored_format(
        self,
        name: str,
        stored: tuple[int, ...],
        weight: TensorEntry,
        scales: TensorEntry,
        biases: TensorEntry | None,
    ) -> Format | None:
        """Mode, bits and group size as the dtypes and packed shapes tell them.

        stored: [out, in] of the module, or [experts, out, in].
        """
        if weight.dtype != "U32":
            self.wrong.append(f"{weight.name} is {weight.dtype}, a tensor with scales is packed as U32")
            return None
        if biases is None:  # scales in bytes
            found = stored_format(stored, weight.shape, scales.shape, affine=False)
            if found is None:
                self.wrong.append(
                    f"{name} is packed as {list(weight.shape)} with scales {list(scales.shape)} in "
                    f"bytes: neither mxfp4 nor mxfp8 for a weight of {list(stored)}"
                )
            return found
        if scales.dtype not in FLOATS or biases.dtype != scales.dtype:
            self.wrong.append(
                f"{name}: scales are {scales.dtype}, biases {biases.dtype}; one of {', '.join(FLOATS)} "
                "is wanted for both (mxfp4 and mxfp8: scales U8, no biases)"
            )
            return None
        found = stored_format(stored, weight.shape, scales.shape, affine=True)
        if found is not None and biases.shape == scales.shape:
            return found
        self.wrong.append(
            f"{name} is packed as {list(weight.shape)} with scales {list(scales.shape)} and biases "
            f"{list(biases.shape)}: no format of {'/'.join(map(str, BITS))} bits and group size "
            f"{'/'.join(map(str, GROUP_SIZES))} for a weight of {list(stored)}"
        )
        return None

    def finish(self) -> None:
        spec = self.spec
        if spec.tied_head_name is not None:
            self.used.update(f"{spec.tied_head_name}.{part}" for part in _PARTS)
        extra = [
            name
            for name in self.index
            if name not in self.used and not name.startswith(spec.ignored_prefixes)
        ]
        problems = []
        # Tensors that share a module name it several times.
        missing, wrong = list(dict.fromkeys(self.missing)), list(dict.fromkeys(self.wrong))
        if missing:
            problems.append(f"missing {_few(missing)}{_head_hint(spec, missing)}")
        problems += [_few(wrong, separator="; ")] if wrong else []
        if extra:
            problems.append(f"not part of a {spec.model_type} model: {_few(extra)}")
        if problems:
            raise WeightsError(
                f"the weights do not fit the config: {'; '.join(problems)}",
                cure="config.json and the safetensors files must be of one checkpoint",
            )
        if self.quantization is not None:
            modules = [name for item in spec.tensors if item.module for name in item.stack or (item.name,)]
            modules += [spec.tied_head_name] if spec.tied_head_name else []
            self.quantization.report_unmatched(modules, spec.ignored_prefixes)


def _format(tensor: BoundTensor) -> str:
    if tensor.kind != "dense":
        return f"{Format(tensor.bits, tensor.group_size, tensor.kind)}, {tensor.dtype}"
    return tensor.dtype


def _shape_hint(item: TensorSpec, stored: tuple[int, ...], entry: TensorEntry) -> str:
    part = item.role.rpartition(".")[2]
    if item.rows:
        kept = {"q": "queries and their gates", "q_gate": "queries and their gates"}.get(
            part, "several projections"
        )
        return f" ({kept} together)"
    if part.startswith("experts") and len(stored) == len(entry.shape) == 3 and entry.shape[0] != stored[0]:
        return f" (it holds {entry.shape[0]} experts, the config has {stored[0]})"
    return ""


def _head_hint(spec: ModelSpec, missing: list[str]) -> str:
    head = next((item for item in spec.tensors if item.role == "head"), None)
    if head is not None and f"{head.name}.weight" in missing:
        return " (tie_word_embeddings is false, so the head must be there)"
    return ""


def _few(names: list[str], *, separator: str = ", ", limit: int = 5) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return separator.join(names[:limit]) + more


def _part(entry: TensorEntry) -> TensorPart:
    return TensorPart(str(entry.file), entry.offset, entry.nbytes, entry.dtype)


def _check_tied_head(head: str, embed: BoundTensor, index: Mapping[str, TensorEntry]) -> None:
    """The config ties the head to the embedding and the file ships one as well: the config wins."""
    names = ("weight", "scales", "biases")[: len(embed.parts)]
    entries = [index.get(f"{head}.{name}") for name in ("weight", "scales", "biases")]
    parts = [_part(entry) for entry in entries if entry is not None]
    if not parts:
        return
    if len(parts) == len(names) and all(map(_same_bytes, parts, embed.parts)):
        return
    log.warning(
        "tie_word_embeddings is true, so the embedding is the head; %s.weight, which differs, is not used",
        head,
    )


def _same_bytes(left: TensorPart, right: TensorPart) -> bool:
    if (left.dtype, left.nbytes) != (right.dtype, right.nbytes):
        return False
    return all(a == b for a, b in zip(_chunks(left), _chunks(right), strict=True))


def _chunks(part: TensorPart) -> Iterator[bytes]:
    with Path(part.file).open("rb") as file:
        file.seek(part.offset)
        left = part.nbytes
        while left > 0:
            data = file.read(min(_CHUNK, left))
            if not data:
                raise WeightsError(f"{part.file}: truncated while it was read")
            left -= len(data)
            yield data
