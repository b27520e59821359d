"""Switches of the engine, one row each, and the only reader of their variables.

A switch may only choose a slower path with equal results, or one that rounds otherwise (the activations,
keys and values, chunks of the delta rule, kernels that add in another order) and keeps the golden rule;
what a deployment sets (folders, keys, sizes) is in settings.py. To add a switch, add a row to FLAGS:
`saragossa flags`, the docs and the warning about misspelt names follow it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from saragossa.errors import UsageError

PREFIXES = ("SARAGOSSA_", "RETI_")

Value = bool | int | str


class BadValue(ValueError):
    """A text that a parser refuses; its message says what is accepted."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One switch. `parse` turns a variable's text into the value or raises BadValue."""

    name: str  # the variable
    field: str  # the key in switches()
    default: Value
    parse: Callable[[str], Value]
    effect: str
    why: str

    @property
    def default_text(self) -> str:
        """The default as one would write it in the environment."""
        return text_of(self.default)


def text_of(value: Value) -> str:
    """A value as one writes it in the environment: on, off, 512, bf16."""
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def parse_bool(text: str) -> bool:
    """1/0, on/off, true/false."""
    value = {"1": True, "on": True, "true": True, "0": False, "off": False, "false": False}.get(text.lower())
    if value is None:
        raise BadValue("1, 0, on, off, true or false")
    return value


def parse_bytes(text: str) -> int:
    """A size: a plain number of bytes, or a number with KiB, MiB, GiB or TiB (512MiB, 1.5GiB)."""
    accepted = "a number of bytes, or one with KiB, MiB, GiB or TiB, such as 512MiB"
    number, scale = text.strip(), 1
    for power, unit in enumerate(("KiB", "MiB", "GiB", "TiB"), start=1):
        if number.lower().endswith(unit.lower()):
            number, scale = number[: -len(unit)].strip(), 1024**power
            break
    whole, dot, fraction = number.partition(".")
    plain = f"{whole}{fraction}"
    if not plain.isascii() or not plain.isdigit() or len(plain) > 18 or (dot and scale == 1):
        raise BadValue(accepted)
    return int(float(number) * scale) if dot else int(number) * scale


def one_of(*names: str) -> Callable[[str], str]:
    """A parser that takes one of a few words."""

    def parse(text: str) -> str:
        if text.lower() not in names:
            raise BadValue(f"one of {', '.join(names)}")
        return text.lower()

    return parse


def integer(low: int, high: int) -> Callable[[str], int]:
    """A parser for a whole number within bounds."""

    def parse(text: str) -> int:
        plain = text.removeprefix("+")
        if not (plain.isascii() and plain.isdigit() and len(plain) <= 12 and low <= int(plain) <= high):
            raise BadValue(f"a whole number from {low} to {high}")
        return int(plain)

    return parse


FLAGS: tuple[Flag, ...] = (
    Flag(
        "SARAGOSSA_FUSED",
        "fused",
        True,
        parse_bool,
        "off: every fused op runs as the simpler ops that it is made of",
        "to tell whether a wrong answer comes from a fused kernel",
    ),
    Flag(
        "SARAGOSSA_ACTIVATIONS",
        "activations",
        "int15",
        one_of("int15", "f32", "int8"),
        "how quantised linears on the CPU see their input: int15 is two int8 parts a value, f32 is as it is"
        " (the exact path, --exact), int8 is one part (faster, rounds visibly)",
        "integer dot products read the packed weights without unpacking them to floats",
    ),
    Flag(
        "SARAGOSSA_ISA",
        "isa",
        "auto",
        one_of("auto", "scalar", "avx2", "avx512", "neon"),
        "the CPU's instruction set; auto takes the best that the machine has, scalar is the reference",
        "to compare kernels with each other on one machine",
    ),
    Flag(
        "SARAGOSSA_THREADS",
        "threads",
        0,
        integer(0, 1024),
        "threads of the CPU device; 0: the performance cores, within the cgroup's quota",
        "to leave cores to other programs",
    ),
    Flag(
        "SARAGOSSA_SPIN_US",
        "spin_us",
        50,
        integer(0, 100_000),
        "microseconds that an idle worker spins before it sleeps; 0 sleeps at once",
        "spinning saves a wake-up a layer, and costs where cores are shared",
    ),
    Flag(
        "SARAGOSSA_CPU_FETCH_AHEAD",
        "cpu_fetch_ahead",
        True,
        parse_bool,
        "off: a linear of the CPU device does not fetch the first weights of the next one into the caches",
        "to measure what that gives; results are the same bits",
    ),
    Flag(
        "SARAGOSSA_CHUNKED_DELTA",
        "chunked_delta",
        True,
        parse_bool,
        "off: the delta rule of a gated delta net goes row by row over a prompt, too (so does --exact)",
        "64 rows at once (Metal: 32) are matrix products, which add in another order",
    ),
    Flag(
        "SARAGOSSA_PREFILL_CHUNK",
        "prefill_chunk",
        512,
        integer(1, 65_536),
        "tokens of a prompt that run in one submission",
        "a smaller chunk answers Ctrl-C sooner, a larger one uses the matrix kernels better",
    ),
    Flag(
        "SARAGOSSA_KV_DTYPE",
        "kv_dtype",
        "bf16",
        one_of("bf16", "u8", "f32"),
        "how keys and values are stored (--kv): u8 takes a little more than half of the memory of bf16"
        " and rounds more, f32 twice as much",
        "longer contexts in the same memory; or to tell rounding in the cache from other differences",
    ),
    Flag(
        "SARAGOSSA_RUN_AHEAD",
        "run_ahead",
        True,
        parse_bool,
        "off: a GPU gets a step only when the host has the token of the one before",
        "to tell whether a wrong token comes from the step that runs ahead",
    ),
    Flag(
        "SARAGOSSA_METAL_RESIDENT",
        "metal_resident",
        True,
        parse_bool,
        "off: the Metal device runs each kernel in a command buffer of its own and waits for it",
        "to find the kernel at which the GPU fails or goes astray",
    ),
    Flag(
        "SARAGOSSA_METAL_MATMUL",
        "metal_matmul",
        True,
        parse_bool,
        "off: linears of many rows run in the Metal kernel for few, which reads weights once per 8 rows",
        "to tell whether a difference comes from the matrix kernels",
    ),
    Flag(
        "SARAGOSSA_METAL_TENSOR_OPS",
        "metal_tensor_ops",
        True,
        parse_bool,
        "off: linears of many rows run without the matrix units of an M5 (tensor operations of Metal 4)",
        "the units round inputs to half precision; without them sums are float32 throughout",
    ),
    Flag(
        "SARAGOSSA_METAL_STATISTICS",
        "metal_statistics",
        True,
        parse_bool,
        "off: a norm behind a Metal linear of few rows sums its row itself, in one threadgroup",
        "to tell whether a difference comes from the sums that the linear leaves behind",
    ),
    Flag(
        "SARAGOSSA_METAL_SPLIT_MATMUL",
        "metal_split_matmul",
        True,
        parse_bool,
        "off: Metal linears of 9 to 32 rows add all products in one threadgroup, however few their outputs",
        "splits add in another order; to tell whether a difference comes from them",
    ),
    Flag(
        "SARAGOSSA_METAL_SORTED_EXPERTS",
        "metal_sorted_experts",
        True,
        parse_bool,
        "off: experts of many rows run in the Metal kernels for few, which read an expert once per row",
        "to tell whether a difference comes from the sorted matrix kernels",
    ),
    Flag(
        "SARAGOSSA_METAL_SIMDGROUP_ATTENTION",
        "metal_simdgroup_attention",
        True,
        parse_bool,
        "off: attention over a prompt runs in the Metal kernel for few rows, which reads keys once a row",
        "to tell whether a difference comes from the matrix kernel",
    ),
    Flag(
        "SARAGOSSA_METAL_COMMAND_MACS",
        "metal_command_macs",
        0,
        integer(0, 999_999_999_999),
        "most multiply-adds of one command buffer of a prefill; 0: the device's own bound, some 30 ms",
        "fewer leave the GPU to the screen and to other programs more often",
    ),
)

_BY_FIELD = {flag.field: flag for flag in FLAGS}


def read(flag: Flag, environ: Mapping[str, str] | None = None) -> Value:
    """The value of one switch: the variable's, or the default where it is unset or empty."""
    text = (os.environ if environ is None else environ).get(flag.name, "").strip()
    return _parse(flag, flag.name, text) if text else flag.default


def _parse(flag: Flag, name: str, text: str) -> Value:
    try:
        return flag.parse(text)
    except BadValue as error:
        raise UsageError(
            f"{name}: found {text!r}, accepted is {error}", cure=f"set or unset {name}"
        ) from None


def switches(environ: Mapping[str, str] | None = None, /, **overrides: Value | None) -> dict[str, Value]:
    """All switches by field name: fused, activations, isa, threads, spin_us, prefill_chunk, kv_dtype.

    An override that is not None wins over the environment and obeys the same bounds.
    """
    for name in overrides:
        if name not in _BY_FIELD:
            raise TypeError(f"switches() has no {name!r}; it has {', '.join(_BY_FIELD)}")
    values = {flag.field: read(flag, environ) for flag in FLAGS}
    for name, value in overrides.items():
        if value is not None:
            values[name] = _override(_BY_FIELD[name], value)
    return values


def _override(flag: Flag, value: Value) -> Value:
    """What code or the command line gives: of the switch's own type, within its bounds."""
    right = type(value) is type(flag.default)
    try:
        return flag.parse(text_of(value) if right else f"{value!r}?")  # the parser says what is accepted
    except BadValue as error:
        raise UsageError(
            f"{flag.field}: found {value!r}, accepted is {error}",
            cure=f"leave it out for the default, or for {flag.name}",
        ) from None


def suspects(environ: Mapping[str, str] | None = None) -> list[str]:
    """Variables with one of our prefixes that are no switch: settings, or misspelt."""
    names = {flag.name for flag in FLAGS}
    found = os.environ if environ is None else environ
    return sorted(name for name in found if name.startswith(PREFIXES) and name not in names)


def unknown_variable(name: str, others: Iterable[str] = ()) -> str:
    """The warning about a variable that nobody reads; `others` are names beside the switches'."""
    known = [flag.name for flag in FLAGS] + list(others)
    near = get_close_matches(name, known, n=1, cutoff=0.0)
    return f"unknown variable {name}; the nearest name is {near[0]} ('saragossa flags' lists all)"
