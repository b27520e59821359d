"""Bind a model's spec to the tensors of its checkpoint: every check that needs no weight to be read.

After `bind` the core knows for each role where the bytes lie and how they are coded; a tensor that is
missing, left over or of the wrong shape has been named.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
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
    rows: ranges (start, count) of the stored rows that make up the tensor; empty: all of them.
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

    @property
    def nbytes(self) -> int:
        """Stored bytes of all parts."""
        return sum(part.nbytes for part in self.parts)


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
        weight = f"{item.name}.weight" if item.module else item.name
        self.used.add(weight)
        if item.module:
            self.used.update((f"{item.name}.scales", f"{item.name}.biases"))
        entry = self.index.get(weight)
        if entry is None:
            self.missing.append(weight)
            return None
        if item.module and (entry.dtype == "U32" or f"{item.name}.scales" in self.index):
            return self._quantised(item, entry)
        return self._dense(item, entry)

    def _dense(self, item: TensorSpec, entry: TensorEntry) -> BoundTensor | None:
        if entry.dtype not in FLOATS:
            self.wrong.append(f"{entry.name} is {entry.dtype}, supported are {', '.join(FLOATS)}")
            return None
        if entry.shape != item.shape:
            self.wrong.append(
                f"{entry.name} has shape {list(entry.shape)}, the config says {list(item.shape)}"
            )
            return None
        if item.module and self.quantization is not None and self.quantization.is_explicit(item.name):
            said = self.quantization.for_module(item.name)
            if said is not None:
                self.wrong.append(f"{entry.name} is {entry.dtype}, the config's quantization says {said}")
                return None
        return BoundTensor(
            item.role, item.name, "dense", entry.dtype, item.shape, 0, 0, item.plus_one, (_part(entry),)
        )

    def _quantised(self, item: TensorSpec, weight: TensorEntry) -> BoundTensor | None:
        scales, biases = (self.index.get(f"{item.name}.{part}") for part in ("scales", "biases"))
        powers = scales is not None and scales.dtype == "U8"  # of two, without biases
        if scales is None or (biases is None and not powers):
            self.missing += [
                f"{item.name}.{part}"
                for part, entry in (("scales", scales), ("biases", biases))
                if entry is None and not (part == "biases" and powers)
            ]
            return None
        stored = self._stored_format(item, weight, scales, biases)
        if stored is None:
            return None
        said = self.quantization.for_module(item.name) if self.quantization else None
        if said != stored:
            claim = said or ("float" if self.quantization else "nothing (it has no quantization block)")
            self.wrong.append(f"{item.name} is stored as {stored}, the config's quantization says {claim}")
            return None
        parts = tuple(_part(entry) for entry in (weight, scales, biases) if entry is not None)
        return BoundTensor(
            item.role, item.name, cast(Kind, stored.mode), scales.dtype, item.shape, stored.bits,
            stored.group_size, item.plus_one, parts,
        )  # fmt: skip

    def _stored_format(
        self, item: TensorSpec, weight: TensorEntry, scales: TensorEntry, biases: TensorEntry | None
    ) -> Format | None:
        """Mode, bits and group size as the dtypes and packed shapes tell them."""
        if weight.dtype != "U32":
            self.wrong.append(f"{weight.name} is {weight.dtype}, a tensor with scales is packed as U32")
            return None
        if biases is None:  # scales in bytes
            stored = stored_format(item.shape, weight.shape, scales.shape, affine=False)
            if stored is None:
                self.wrong.append(
                    f"{item.name} is packed as {list(weight.shape)} with scales {list(scales.shape)} in "
                    f"bytes: neither mxfp4 nor mxfp8 for a weight of {list(item.shape)}"
                )
            return stored
        if scales.dtype not in FLOATS or biases.dtype != scales.dtype:
            self.wrong.append(
                f"{item.name}: scales are {scales.dtype}, biases {biases.dtype}; one of {', '.join(FLOATS)} "
                "is wanted for both (mxfp4 and mxfp8: scales U8, no biases)"
            )
            return None
        stored = stored_format(item.shape, weight.shape, scales.shape, affine=True)
        if stored is not None and biases.shape == scales.shape:
            return stored
        self.wrong.append(
            f"{item.name} is packed as {list(weight.shape)} with scales {list(scales.shape)} and biases "
            f"{list(biases.shape)}: no format of {'/'.join(map(str, BITS))} bits and group size "
            f"{'/'.join(map(str, GROUP_SIZES))} for a weight of {list(item.shape)}"
        )
        return None

    def finish(self) -> None:
        spec = self.spec
        if spec.tied_head_name is not None:
            self.used.update(f"{spec.tied_head_name}.{part}" for part in ("weight", "scales", "biases"))
        extra = [
            name
            for name in self.index
            if name not in self.used and not name.startswith(spec.ignored_prefixes)
        ]
        problems = []
        if self.missing:
            problems.append(f"missing {_few(self.missing)}{_head_hint(spec, self.missing)}")
        problems += [_few(self.wrong, separator="; ")] if self.wrong else []
        if extra:
            problems.append(f"not part of a {spec.model_type} model: {_few(extra)}")
        if problems:
            raise WeightsError(
                f"the weights do not fit the config: {'; '.join(problems)}",
                cure="config.json and the safetensors files must be of one checkpoint",
            )
        if self.quantization is not None:
            modules = [item.name for item in spec.tensors if item.module]
            modules += [spec.tied_head_name] if spec.tied_head_name else []
            self.quantization.report_unmatched(modules, spec.ignored_prefixes)


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
