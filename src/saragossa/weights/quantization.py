"""The `quantization` block of config.json: MLX's modes with overrides per module.

A weight [out, in] is stored as packed words [out, in * bits / 32] with scales [out, in / group_size].
affine: a code q of a group stands for `q * scale + bias`, with biases of the scales' dtype and shape.
mxfp4, mxfp8: a code is a small float (E2M1, E4M3), times 2^(scale - 127), scales in bytes; no biases.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from saragossa.errors import ConfigError

log = logging.getLogger("saragossa.weights")

BITS = (2, 3, 4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)
_EXPERT = re.compile(r"\.experts\.\d+\.")
# By mode the bits and the group sizes, as mlx has them.
MODES: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "affine": (BITS, GROUP_SIZES),
    "mxfp4": ((4,), (32,)),
    "mxfp8": ((8,), (32,)),
}
_KEYS = ("bits", "group_size", "mode")
# Longest first: the spellings in which one module is known.
PREFIXES = ("language_model.model.", "model.language_model.", "language_model.", "model.")


@dataclass(frozen=True, slots=True)
class Format:
    """How one module is quantised; group_size counts elements of the input dimension."""

    bits: int
    group_size: int
    mode: str = "affine"

    def __str__(self) -> str:
        return f"{self.bits}-bit, group size {self.group_size}" if self.mode == "affine" else self.mode


def stored_format(
    shape: tuple[int, ...], packed: tuple[int, ...], scales: tuple[int, ...], *, affine: bool
) -> Format | None:
    """The format of a weight [..., out, in] whose words and scales have these shapes; None: there is none."""
    *rows, columns = shape
    for mode, (widths, sizes) in MODES.items():
        if affine != (mode == "affine"):
            continue
        for bits in widths:
            for group_size in sizes:
                if columns % group_size or columns * bits % 32:
                    continue
                if packed == (*rows, columns * bits // 32) and scales == (*rows, columns // group_size):
                    return Format(bits, group_size, mode)
    return None


def canonical(module: str) -> str:
    """A module's name without the prefix that depends on who wrote the checkpoint."""
    for prefix in PREFIXES:
        if module.startswith(prefix):
            return module[len(prefix) :]
    return module


def spellings(module: str) -> tuple[str, ...]:
    """Keys under which a module's override is looked up, the most particular first.

    The experts of a layer are one key whether they are stored together or one by one; one expert may have its
    own.
    """
    name = canonical(module)
    for spelling, common in (("mlp.switch_mlp.", "mlp.experts."), ("experts.switch_glu.", "experts.")):
        name = name.replace(spelling, common)
    together = _EXPERT.sub(".experts.", name)
    return (name,) if together == name else (name, together)


@dataclass(frozen=True, slots=True)
class QuantizationConfig:
    """Default and overrides; `overrides` is keyed as `spellings` has it, None means left as float."""

    default: Format
    overrides: Mapping[str, Format | None] = field(default_factory=dict)
    spelled: Mapping[str, str] = field(default_factory=dict)  # the same key -> as config.json has it

    @classmethod
    def parse(cls, block: Mapping[str, object] | None) -> QuantizationConfig | None:
        """Read a block as `models.config_base.config_block` gives it. Raises ConfigError naming the key."""
        if block is None:
            return None
        default = _format(block, "quantization", None)
        overrides: dict[str, Format | None] = {}
        spelled: dict[str, str] = {}
        for key, value in block.items():
            if key in _KEYS:
                continue
            override = _override(key, value, default)
            name = spellings(key)[0]
            if overrides.get(name, override) != override:
                raise ConfigError(f"quantization: {spelled[name]} and {key} name one module and differ")
            overrides[name] = override
            spelled[name] = key
        return cls(default, overrides, spelled)

    def for_module(self, module: str) -> Format | None:
        """How the config says that a module is stored; None: as float."""
        for name in spellings(module):
            if name in self.overrides:
                return self.overrides[name]
        return self.default

    def is_explicit(self, module: str) -> bool:
        """Whether the module has an override of its own."""
        return any(name in self.overrides for name in spellings(module))

    def report_unmatched(self, modules: Iterable[str], ignored: Iterable[str] = ()) -> list[str]:
        """Warn about overrides that match no module; `ignored` are prefixes of modules not loaded.

        Returns their keys.
        """
        known = {name for module in modules for name in spellings(module)}
        skip = tuple(ignored)
        unmatched = [
            key
            for name, key in self.spelled.items()
            if name not in known and not key.startswith(skip) and not name.startswith(skip)
        ]
        if unmatched:
            more = f" and {len(unmatched) - 5} more" if len(unmatched) > 5 else ""
            log.warning("quantization: no module has the name %s%s", ", ".join(unmatched[:5]), more)
        return unmatched

    def __str__(self) -> str:
        others = {override for override in self.overrides.values() if override and override != self.default}
        return f"{self.default}{', mixed' if others else ''}"


def _override(key: str, value: object, default: Format) -> Format | None:
    if value is False:
        return None
    if value is True:
        return default
    if not isinstance(value, Mapping):
        raise ConfigError(f"quantization.{key}: an object or false is wanted, found {value!r:.100}")
    unknown = sorted(set(value) - set(_KEYS))
    if unknown:
        raise ConfigError(f"quantization.{key}: unknown key {unknown[0]!r}; known: {', '.join(_KEYS)}")
    return _format(value, f"quantization.{key}", default)


def _format(block: Mapping[str, object], where: str, default: Format | None) -> Format:
    """default: of the whole file, None for that itself. An override without a mode is affine, as for mlx."""
    mode = block.get("mode", "affine")
    if not isinstance(mode, str) or mode not in MODES:
        raise ConfigError(
            f"{where}.mode {mode!r:.50} is not supported; supported: {', '.join(MODES)}",
            cure="quantise the original model with `saragossa convert`",
        )
    widths, sizes = MODES[mode]
    if mode != "affine":
        default = Format(widths[0], sizes[0], mode)
    elif default is not None and default.mode != "affine":
        default = Format(4, 64)  # mlx's own
    bits = block.get("bits", default.bits if default else None)
    group_size = block.get("group_size", default.group_size if default else None)
    return Format(
        _one_of(bits, widths, f"{where}.bits"), _one_of(group_size, sizes, f"{where}.group_size"), mode
    )


def _one_of(value: object, allowed: tuple[int, ...], where: str) -> int:
    if type(value) is not int or value not in allowed:
        found = "missing" if value is None else f"{value!r:.50}, not supported"
        raise ConfigError(f"{where}: {found}; supported: {', '.join(map(str, allowed))}")
    return value
