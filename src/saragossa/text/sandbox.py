"""A Jinja environment for templates that come with a checkpoint: sandboxed, and bounded in work and size.

A template is somebody else's program. It sees plain values only, cannot change them, and stops with a
`SecurityError` when it loops, grows text or prints more than `Budget` allows.
"""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import MAX_RANGE, ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

MAX_STEPS = 20_000_000  # loop passes and calls in one render
MAX_SECONDS = 5.0
_CLOCK_EVERY = 1024
_MAX_INT_BITS = 4096
_LONG_NUMBER = re.compile(r"\d{5,}|\{[^}]*\{|%[^a-zA-Z%]*\*")  # a width in a format, perhaps a computed one
_PADDING = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs", "indent", "batch", "slice"})


class WorkError(SecurityError):
    """The template loops too long."""


class Budget:
    """What one render may use: `chars` printed or joined in all, MAX_STEPS, MAX_SECONDS."""

    def __init__(self, chars: int) -> None:
        self.max_chars = self.chars = chars
        self.steps = MAX_STEPS
        self._clock = self.steps
        self._deadline = time.monotonic() + MAX_SECONDS

    def step(self, count: int = 1) -> None:
        """Count loop passes."""
        self.steps -= count
        if self.steps > self._clock:
            return
        self._clock = self.steps - _CLOCK_EVERY
        if self.steps < 0 or time.monotonic() > self._deadline:
            raise WorkError("the template does too much work")

    def size(self, value: object) -> None:
        """Refuse one value that is larger than all that may be printed."""
        if isinstance(value, str | list | tuple) and len(value) > self.max_chars:
            raise SecurityError("the template makes a text or list that is too long")

    def printed(self, count: int) -> None:
        """Count characters of output."""
        self.chars -= count
        if self.chars < 0:
            raise SecurityError("the template's output is too long")


_budget: ContextVar[Budget | None] = ContextVar("saragossa_template_budget", default=None)


def _current() -> Budget:
    return _budget.get() or Budget(1 << 20)


class _Instrument(NodeTransformer):
    """Adds the counting calls to loops and `~`; macros are counted where they are called."""

    @staticmethod
    def _call(name: str, *args: nodes.Expr) -> nodes.Call:
        return nodes.Call(nodes.EnvironmentAttribute(name), list(args), [], None, None)

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        head: Any = node.iter
        node.iter = self._call("loop_over", head)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        parts: list[Any] = node.nodes
        return self._call("join_texts", *parts)


class _Generation(Extension):
    """`{% generation %}` marks the assistant's text for training; here its body is printed as it is."""

    tags = {"generation"}  # noqa: RUF012  jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Namespace(Namespace):
    """Jinja's namespace without underscore names."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise SecurityError(f"a template may not set {name!r} on a namespace")
        super().__setitem__(name, value)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox with transformers' filters and functions and this module's bounds."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # constants would be computed outside the budget
            finalize=_finalize,
            extensions=[_Generation, "jinja2.ext.loopcontrols"],
        )
        self.filters["tojson"] = _tojson
        self.filters = {name: _bounded_filter(name, f) for name, f in self.filters.items()}
        self.globals = {
            "range": self.globals["range"],  # the sandbox's, at most MAX_RANGE items
            "dict": lambda *args, **kwargs: dict(*args, **kwargs),
            "namespace": _Namespace,
            "cycler": self.globals["cycler"],
            "joiner": self.globals["joiner"],
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
        }

    def loop_over(self, values: Iterable[Any]) -> Iterable[Any]:
        """Called with what a loop runs over."""
        if isinstance(values, Sized):
            _current().step(1 + len(values))
            return values
        return self._counted(values)

    @staticmethod
    def _counted(values: Iterable[Any]) -> Iterator[Any]:
        budget = _current()
        for value in values:
            budget.step()
            yield value

    def join_texts(self, *parts: Any) -> str:
        """The `~` operator."""
        texts = [str(part) for part in parts]
        budget = _current()
        budget.step()
        if sum(map(len, texts)) > budget.max_chars:
            raise SecurityError("the template makes a text that is too long")
        return "".join(texts)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """The operators that can make a small value large."""
        budget = _current()
        if operator == "*":
            text, factor = (left, right) if isinstance(left, Sized) else (right, left)
            if isinstance(text, Sized) and isinstance(factor, int) and len(text) * factor > budget.max_chars:
                raise SecurityError("the template makes a text or list that is too long")
        elif operator == "**" and not (abs(left) <= 1 << 32 and abs(right) <= 64):
            raise SecurityError(f"the template computes a power of {right!r}")
        elif operator == "%" and isinstance(left, str) and _LONG_NUMBER.search(left):
            raise SecurityError("the template formats with a width that is too large")
        value = super().call_binop(context, operator, left, right)
        if isinstance(value, int) and value.bit_length() > _MAX_INT_BITS:
            raise SecurityError("the template computes a number that is too large")
        budget.size(value)
        return value

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Every function call of a template."""
        if getattr(__obj, "__self__", None) is __self:  # what _Instrument put in
            return __context.call(__obj, *args, **kwargs)
        budget = _current()
        budget.step()
        _check_call(budget, __obj, args, kwargs)
        value = super().call(__context, __obj, *args, **kwargs)
        budget.size(value)
        return value

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """str.format and str.format_map."""
        wrapped = super().wrap_str_format(value)
        if wrapped is not None and _LONG_NUMBER.search(value.__self__):
            raise SecurityError("the template formats with a width that is too large")
        return wrapped

    def from_source(self, source: str) -> Callable[[dict[str, object], int], str]:
        """Compile a template to `render(variables, max_chars)`. Raises jinja2.TemplateSyntaxError."""
        tree = _Instrument().visit(self.parse(source))
        code = self.compile(tree)
        template = self.template_class.from_code(self, code, self.make_globals(None))

        def render(variables: dict[str, object], max_chars: int) -> str:
            budget = Budget(max_chars)
            token = _budget.set(budget)
            try:
                pieces = []
                for piece in template.generate(variables):
                    budget.printed(len(piece))
                    pieces.append(piece)
                return "".join(pieces)
            finally:
                _budget.reset(token)

        return render


def _finalize(value: Any) -> Any:
    """Called with each printed value; blocks that are captured in variables pass here too."""
    budget = _budget.get()
    if budget is not None and isinstance(value, str):
        budget.printed(len(value))
    return value


def _check_call(budget: Budget, obj: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse calls of string methods whose result would be huge."""
    name = getattr(obj, "__name__", "")
    text = getattr(obj, "__self__", None)
    numbers = (*args, *kwargs.values())
    if name in _PADDING and any(isinstance(n, int) and n > MAX_RANGE for n in numbers):
        raise SecurityError(f"the template calls {name} with a width that is too large")
    if not isinstance(text, str):
        return
    if name == "replace" and len(args) >= 2 and isinstance(args[0], str) and isinstance(args[1], str):
        if len(text) + text.count(args[0]) * len(args[1]) > budget.max_chars:
            raise SecurityError("the template makes a text that is too long")
    elif name == "join" and args and isinstance(args[0], list | tuple):
        length = sum(len(text) + len(part) for part in args[0] if isinstance(part, str))
        if length > budget.max_chars:
            raise SecurityError("the template makes a text that is too long")


def _bounded_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that counts what it is given. wraps() keeps jinja2's mark for context filters."""

    @functools.wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        budget = _current()
        budget.step(1 + sum(len(a) for a in args[:2] if isinstance(a, str | list | tuple | dict)) // 64)
        numbers = (*args, *kwargs.values())
        if name in _PADDING and any(isinstance(n, int) and n > MAX_RANGE for n in numbers):
            raise SecurityError(f"the template uses {name} with a width that is too large")
        if name == "format" and args and isinstance(args[0], str) and _LONG_NUMBER.search(args[0]):
            raise SecurityError("the template formats with a width that is too large")
        value = function(*args, **kwargs)
        budget.size(value)
        return value

    return bounded


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """As transformers has it: no HTML escapes, other scripts as they are."""
    if isinstance(indent, int | str) and (indent > 64 if isinstance(indent, int) else len(indent) > 64):
        raise SecurityError("the template uses tojson with an indent that is too large")
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: object) -> NoReturn:
    raise TemplateError(str(message))


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)
