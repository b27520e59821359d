"""The `quantization` block of config.json: MLX's affine scheme with overrides per module.

A code q of a group stands for `q * scale + bias`; a weight [out, in] is stored as packed words
[out, in * bits / 32] with scales and biases [out, in / group_size].
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from saragossa.errors import ConfigError

log = logging.getLogger("saragossa.weights")

BITS = (4, 6, 8)
GROUP_SIZES = (32, 64, 128)
_EXPERT = re.compile(r"\.experts\.\d+\.")
# Longest first: the spellings in which one module is known.
PREFIXES = ("language_model.model.", "model.language_model.", "language_model.", "model.")


@dataclass(frozen=True, slots=True)
class Affine:
    """Affine quantisation of one module; group_size counts elements of the input dimension."""

    bits: int
    group_size: int

    def __str__(self) -> str:
        return f"{self.bits}-bit, group size {self.group_size}"


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

    default: Affine
    overrides: Mapping[str, Affine | None] = field(default_factory=dict)
    spelled: Mapping[str, str] = field(default_factory=dict)  # the same key -> as config.json has it

    @classmethod
    def parse(cls, block: Mapping[str, object] | None) -> QuantizationConfig | None:
        """Read a block as `models.config_base.config_block` gives it. Raises ConfigError naming the key."""
        if block is None:
            return None
        mode = block.get("mode", "affine")
        if mode != "affine":
            raise ConfigError(
                f"quantization.mode {mode!r:.50} is not supported; supported: affine",
                cure="quantise the original model with `saragossa convert`",
            )
        default = _affine(block, "quantization", None)
        overrides: dict[str, Affine | None] = {}
        spelled: dict[str, str] = {}
        for key, value in block.items():
            if key in ("bits", "group_size", "mode"):
                continue
            override = _override(key, value, default)
            name = spellings(key)[0]
            if overrides.get(name, override) != override:
                raise ConfigError(f"quantization: {spelled[name]} and {key} name one module and differ")
            overrides[name] = override
            spelled[name] = key
        return cls(default, overrides, spelled)

    def for_module(self, module: str) -> Affine | None:
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


def _override(key: str, value: object, default: Affine) -> Affine | None:
    if value is False:
        return None
    if value is True:
        return default
    if not isinstance(value, Mapping):
        raise ConfigError(f"quantization.{key}: an object or false is wanted, found {value!r:.100}")
    if value.get("mode", "affine") != "affine":
        raise ConfigError(
            f"quantization.{key}.mode {value['mode']!r:.50} is not supported; supported: affine"
        )
    unknown = sorted(set(value) - {"bits", "group_size", "mode"})
    if unknown:
        raise ConfigError(f"quantization.{key}: unknown key {unknown[0]!r}; known: bits, group_size, mode")
    return _affine(value, f"quantization.{key}", default)


def _affine(block: Mapping[str, object], where: str, default: Affine | None) -> Affine:
    bits = block.get("bits", default.bits if default else None)
    group_size = block.get("group_size", default.group_size if default else None)
    return Affine(
        _one_of(bits, BITS, f"{where}.bits"), _one_of(group_size, GROUP_SIZES, f"{where}.group_size")
    )


def _one_of(value: object, allowed: tuple[int, ...], where: str) -> int:
    if type(value) is not int or value not in allowed:
        found = "missing" if value is None else f"{value!r:.50}, not supported"
        raise ConfigError(f"{where}: {found}; supported: {', '.join(map(str, allowed))}")
    return value
