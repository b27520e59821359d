"""How each module of a conversion is quantised: mlx-lm's own choice, or an override by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from saragossa.errors import ConvertError, UsageError
from saragossa.weights.quantization import MODES, Format, canonical, spellings

from .plan import quantization_block
from .quantize import check_format

# What decides where a token goes is small: 8 bits, affine whatever the mode is, as mlx-lm has it.
_ROUTERS = ("router", "shared_gate")
_ROUTER_BITS, _ROUTER_GROUP = 8, 64
# The projection in front of the multi-token prediction stays as it is, as in published files.
_FLOAT = ("mtp.fc",)
_MODES = tuple(mode for mode in MODES if mode != "affine")  # which say bits and group size themselves
_VALUE = re.compile(rf"(?P<bits>\d+)(?::(?P<group>\d+))?|(?P<mode>{'|'.join(_MODES)})|float")


@dataclass(frozen=True, slots=True)
class Override:
    """PATTERN=BITS[:GROUP], =mxfp4, =mxfp8 or =float; scheme: None leaves a module as float."""

    text: str
    pattern: str
    scheme: Format | None

    @classmethod
    def parse(cls, text: str, default: Format) -> Override:
        """Bits are affine, without a group in that of `default` if it is, too. Raises UsageError."""
        pattern, equals, value = text.rpartition("=")
        match = _VALUE.fullmatch(value)
        if not equals or not pattern or match is None:
            raise UsageError(
                f"override {text!r:.100} is not understood",
                cure="write PATTERN=BITS, =BITS:GROUP, =mxfp4, =mxfp8 or =float, such as 'lm_head=8'",
            )
        if value == "float":
            return cls(text, pattern, None)
        if match["mode"]:
            return cls(text, pattern, check_format(None, None, match["mode"]))
        usual = default.group_size if default.mode == "affine" else None
        try:
            scheme = check_format(
                int(match["bits"]), int(match["group"]) if match["group"] else usual, "affine"
            )
        except UsageError as error:
            raise UsageError(f"override {text!r:.100}: {error.message}", cure=error.cure) from error
        return cls(text, pattern, scheme)

    def matches(self, names: Iterable[str]) -> bool:
        return any(fnmatchcase(name, self.pattern) for name in names)


class Schemes:
    """Asked for every module in turn, then for config.json's block.

    skipped: modules left as they are because no group size divides their rows.
    """

    def __init__(self, default: Format, overrides: Sequence[str] = ()) -> None:
        """Raises UsageError for an override that is not understood."""
        self.default = default
        self.skipped: list[str] = []
        self._overrides = [Override.parse(text, default) for text in overrides]
        self._matched = [False] * len(self._overrides)
        self._effective = [False] * len(self._overrides)
        self._entries: dict[str, Any] = {}
        self._quantised = 0

    def choose(self, role: str, module: str, columns: int) -> Format | None:
        """The scheme of a module; None: it stays float. The last override whose pattern matches counts.

        role: of the spec; module: its name as written, without `.weight`; columns: of a row.
        """
        chosen = self._override(module)
        if chosen is not None:
            wanted, own = self._overrides[chosen].scheme, self._overrides[chosen].scheme != self.default
        elif role in _FLOAT:
            return None
        else:
            wanted, own = self._usual(role, columns)
        if wanted is None:
            return None
        if columns % wanted.group_size:
            self.skipped.append(module)
            return None
        if chosen is not None:
            self._effective[chosen] = True
        if own:
            self._entries[module] = _entry(wanted)
        self._quantised += 1
        return wanted

    def block(self, source: object, *, tied: bool) -> dict[str, Any]:
        """config.json's `quantization`.

        Raises UsageError for an override that no module has, ConvertError where nothing is quantised.
        """
        for override, matched, effective in zip(self._overrides, self._matched, self._effective, strict=True):
            if not matched:
                head = tied and override.pattern == "lm_head"
                raise UsageError(
                    f"override {override.text!r:.100}: no module of the model has such a name",
                    cure="the head is the embedding in this model: use 'embed_tokens'"
                    if head
                    else "names are such as lm_head, layers.0.self_attn.q_proj; * stands for anything",
                )
            if override.scheme is not None and not effective:
                raise UsageError(
                    f"override {override.text!r:.100} quantises nothing: the group size "
                    f"{override.scheme.group_size} divides no rows, or a later override counts"
                )
        if not self._quantised and not self.skipped:
            floats = ", ".join(override.text for override in self._overrides if override.scheme is None)
            raise UsageError(
                f"the overrides {floats:.200} leave every module as float: nothing is quantised",
                cure="leave one of them out, or convert without --bits and --mode",
            )
        if not self._quantised:
            raise ConvertError(
                f"{source}: the group size {self.default.group_size} divides the rows of none of its modules",
                cure="use a smaller --group-size" if self.default.group_size > 32 else None,
            )
        return quantization_block(self.default) | self._entries

    def _override(self, module: str) -> int | None:
        """Index of the last one that matches."""
        names = {canonical(module), *spellings(module)}
        found = None
        for i, override in enumerate(self._overrides):
            if override.matches(names):
                self._matched[i] = True
                found = i
        return found

    def _usual(self, role: str, columns: int) -> tuple[Format, bool]:
        """mlx-lm's choice, and whether config.json names the module."""
        default = self.default
        if role.rpartition(".")[2] not in _ROUTERS or columns % default.group_size:
            return default, False
        group = default.group_size if columns % _ROUTER_GROUP else _ROUTER_GROUP
        return Format(_ROUTER_BITS, group), True


def _entry(of: Format) -> dict[str, Any]:
    """A module's own in config.json. One without a mode is affine, whatever the file's mode is."""
    block = quantization_block(of)
    if of.mode == "affine":
        del block["mode"]  # as mlx-lm writes routers
    return block
