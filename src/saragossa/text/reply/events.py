"""Parts of a reply, in the order in which they came. Pure values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of what the model thought before it."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    """A call of a tool; the first has index 0."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the call's arguments. All of them together are one JSON object."""

    index: int
    json: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """All arguments of the call were there."""

    index: int


Event = Text | Reasoning | CallBegin | CallArguments | CallEnd
