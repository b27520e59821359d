"""What `doctor --compare` compares: ways to run a model, as text.

WAY   = DEVICE[:MODIFIER,...][@MODEL] | MODEL | FILE.npz
DEVICE = auto | cpu | metal, MODIFIER = exact | SWITCH=VALUE, SWITCH a field of runtime_flags.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from saragossa import runtime_flags
from saragossa.errors import UsageError
from saragossa.runtime_flags import Value

_DEVICES = ("auto", "cpu", "metal")
_CURE = "such as cpu, metal:exact, cpu:fused=off,isa=avx2, cpu@FOLDER, FOLDER or FILE.npz"


@dataclass(frozen=True, slots=True)
class Way:
    """golden: a file instead of a run. model: None is the one of --model-dir."""

    device: str = "auto"
    exact: bool = False
    switches: Mapping[str, Value] = field(default_factory=dict)
    model: str | None = None
    golden: Path | None = None


def parse_way(text: str) -> Way:
    """Raises UsageError that names the part which is wrong."""
    if text.endswith(".npz"):
        return Way(golden=Path(text))
    head, at, model = text.partition("@")
    device, colon, modifiers = head.partition(":")
    if device not in _DEVICES:
        if not text.strip():
            raise UsageError("--compare: found an empty text, accepted is a way to run a model", cure=_CURE)
        return Way(model=text)  # a folder, or a repository with its revision
    if at and not model.strip():
        raise UsageError(f"--compare {text}: no model behind @", cure=_CURE)
    exact, switches = _modifiers(text, modifiers) if colon else (False, {})
    return Way(device, exact, switches, model or None)


def _modifiers(text: str, modifiers: str) -> tuple[bool, dict[str, Value]]:
    flags = {flag.field: flag for flag in runtime_flags.FLAGS}
    exact, switches = False, dict[str, Value]()
    for part in modifiers.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name in switches or (name == "exact" and exact):
            raise UsageError(f"--compare {text}: {name} is given twice")
        if name == "exact" and not equals:
            exact = True
            continue
        if name not in flags or not equals:
            near = get_close_matches(name, ["exact", *flags], n=1, cutoff=0.0)[0]
            form = "exact" if near == "exact" else f"{near}={flags[near].default_text}"
            raise UsageError(
                f"--compare {text}: found {part!r}, accepted are exact and SWITCH=VALUE; "
                f"the nearest is {form}",
                cure="`saragossa flags` lists the switches: fused is SARAGOSSA_FUSED",
            )
        try:
            switches[name] = flags[name].parse(value)
        except runtime_flags.BadValue as error:
            raise UsageError(
                f"--compare {text}: {name}: found {value!r}, accepted is {error}", cure=_CURE
            ) from None
    return exact, switches


def name_of(way: Way, device: str, isa: str, exact: Mapping[str, Value]) -> str:
    """The way as a record has it, the same on every machine: the device that ran, the instruction set that
    was chosen, and every switch that is not at its default, be it from the text or from the environment.

    exact: what that word stands for.
    """
    values = runtime_flags.switches(**{**(exact if way.exact else {}), **way.switches})
    if isa:
        values["isa"] = isa
    words = ["exact"] if way.exact else []
    for flag in runtime_flags.FLAGS:
        value = values[flag.field]
        if value != flag.default and not (way.exact and exact.get(flag.field) == value):
            words.append(f"{flag.field}={runtime_flags.text_of(value)}")
    return f"{device}:{','.join(words)}" if words else device
