"""_core.pyi says what the built module has: names, arguments, defaults. mypy sees the stub alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import saragossa
from saragossa import _core

STUB = ast.parse((Path(saragossa.__file__).parent / "_core.pyi").read_text())
Arguments = list[tuple[str, str, object]]


def arguments(node: ast.FunctionDef) -> Arguments:
    """(name, kind, default) of each, `...` where there is none."""
    args = node.args
    assert [args.vararg, args.kwarg, args.posonlyargs] == [None, None, []]
    defaults = [None] * (len(args.args) - len(args.defaults)) + list(args.defaults)
    plain = [(arg.arg, "any", value(d)) for arg, d in zip(args.args, defaults, strict=True)]
    named = [(arg.arg, "named", value(d)) for arg, d in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    return [*plain, *named]


def value(default: ast.expr | None) -> object:
    if default is None:
        return ...
    found = ast.literal_eval(default)
    return tuple(found) if isinstance(found, list) else found  # pybind11 shows a vector as a list


def built(function: Any) -> Arguments:
    """From the signature that pybind11 writes as the first line of the documentation."""
    signature = (function.__doc__ or "").strip().splitlines()[0]
    (node,) = ast.parse(f"def {signature}: ...").body
    assert isinstance(node, ast.FunctionDef)
    return arguments(node)


def members(body: list[ast.stmt], of: object, prefix: str) -> Iterator[tuple[str, ast.stmt, Any]]:
    """What the stub lists, beside the module's own; both must list the same names."""
    stub = {
        node.target.id if isinstance(node, ast.AnnAssign) else node.name: node  # type: ignore[union-attr]
        for node in body
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AnnAssign)
    }
    found = {name for name in vars(of) if not name.startswith("_")} | ({"__version__"} & set(vars(of)))
    # A class that only the core makes has an __init__ that refuses, without a signature.
    if "__init__(" in (getattr(vars(of).get("__init__"), "__doc__", None) or ""):
        found.add("__init__")
    assert set(stub) == found, prefix
    for name, node in stub.items():
        yield f"{prefix}.{name}", node, vars(of)[name]


def checked(body: list[ast.stmt], of: object, prefix: str) -> int:
    """Compare, and return how many functions were."""
    count = 0
    for name, node, found in members(body, of, prefix):
        if isinstance(node, ast.ClassDef):
            count += checked(node.body, found, name)
        elif isinstance(node, ast.FunctionDef) and any(
            ast.unparse(d) == "property" for d in node.decorator_list
        ):
            assert isinstance(found, property), name
        elif isinstance(node, ast.FunctionDef):
            assert arguments(node) == built(found), name
            count += 1
    return count


def test_the_stub_is_what_was_built() -> None:
    assert checked(STUB.body, _core, "_core") > 12
