"""Values from a request, made plain before a template sees them."""

from __future__ import annotations

from collections.abc import Mapping

from saragossa.errors import TemplateError

MAX_DEPTH = 64


def well_formed(text: str) -> str:
    """`text` without lone surrogates: pairs become one character, lone ones U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def plain_value(value: object, where: str, depth: int = 0) -> object:
    """A fresh copy made of dict, list, str, int, float, bool and None; anything else is a TemplateError."""
    if depth > MAX_DEPTH:
        raise TemplateError(f"{where} is nested more than {MAX_DEPTH} deep")
    if isinstance(value, str):
        return well_formed(str.__str__(value))  # an enum's text, without its methods
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, Mapping):
        copy: dict[str, object] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise TemplateError(f"{where} has the key {key!r}, keys must be strings")
            copy[well_formed(str.__str__(key))] = plain_value(item, f"{where}.{key[:80]}", depth + 1)
        return copy
    if isinstance(value, list | tuple):
        return [plain_value(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
    raise TemplateError(f"{where} is a {type(value).__name__}, a JSON value is expected")


def text_size(value: object) -> int:
    """Characters in a plain value, keys included; what a template's output is bounded by."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(key) + text_size(item) for key, item in value.items())
    if isinstance(value, list):
        return sum(map(text_size, value))
    return 0
