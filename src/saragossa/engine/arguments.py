"""What callers of the library give, checked by type: a wrong one is a UsageError that shows it."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

from saragossa.engine.options import GenerationOptions
from saragossa.errors import UsageError


def token_ids(values: object, vocab: int | None = None) -> list[int]:
    """Token ids as plain integers. Raises UsageError that names the first that is none or out of range.

    vocab: None leaves the range to the core.
    """
    if not isinstance(values, Sequence) or isinstance(values, str | bytes | bytearray):
        raise UsageError(f"token ids are a sequence of whole numbers, not {type(values).__name__}")
    ids: list[int] = []
    for value in values:
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise UsageError(f"a token id is a whole number, found {value!r}")
        if not 0 <= int(value) < (1 << 31 if vocab is None else vocab):
            held = "" if vocab is None else f"; the vocabulary has {vocab} (0 to {vocab - 1})"
            raise UsageError(f"token id {value} is out of range{held}")
        ids.append(int(value))
    return ids


def position(value: object) -> int:
    """A number of tokens as a plain integer. Raises UsageError."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not -(1 << 63) <= int(value) < 1 << 63:
        raise UsageError(f"a position is a whole number of tokens, found {value!r}")
    return int(value)


def generation_options(value: object) -> GenerationOptions:
    """Raises UsageError where they are none."""
    if not isinstance(value, GenerationOptions):
        raise UsageError(
            f"options are GenerationOptions, not {type(value).__name__}",
            cure="or give the fields as keyword arguments of a generation",
        )
    return value
