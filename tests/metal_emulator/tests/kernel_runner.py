"""Runs Metal kernels on the emulator's kernel side, without Metal's host classes."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"
SAFE, RELAXED, FAST = 0, 1, 2

Shape = int | tuple[int, ...]


class CompileError(Exception):
    pass


@dataclass(frozen=True)
class Report:
    kind: str
    count: int
    text: str


@dataclass(frozen=True)
class Buffer:
    id: int
    array: np.ndarray  # the device's own bytes


@dataclass(frozen=True)
class At:
    """A buffer bound from an offset in bytes."""

    buffer: Buffer
    offset: int


def three(shape: Shape) -> Any:
    values = (shape,) if isinstance(shape, int) else shape
    return (ctypes.c_uint32 * 3)(*values, *(1,) * (3 - len(values)))


class Runner:
    def __init__(self, library: Path) -> None:
        self.lib = lib = ctypes.CDLL(str(library))
        for name in ("runner_error", "runner_kernel_names", "emulator_reports", "emulator_counters"):
            getattr(lib, name).restype = ctypes.c_char_p
        lib.runner_contents.restype = ctypes.c_void_p
        lib.runner_contents.argtypes = [ctypes.c_uint32]
        lib.runner_allocate.argtypes = [ctypes.c_uint64, ctypes.c_char_p, ctypes.c_int]
        lib.runner_bind.argtypes = [ctypes.c_int, ctypes.c_uint32, ctypes.c_uint64]
        lib.runner_bytes.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint64]
        self.libraries: dict[Any, int] = {}

    # --- settings and findings
    def set(self, **values: object) -> None:
        for name, value in values.items():
            text = str(int(value)) if isinstance(value, bool) else str(value)
            assert self.lib.emulator_set(name.encode(), text.encode()) == 0, f"no setting {name}={value}"

    @contextmanager
    def settings(self, **values: object) -> Iterator[None]:
        defaults: dict[str, object] = {
            "check": False, "trace": False, "order": "in_order", "seed": 1, "reorder": False,
            "perturb_fast": 0,
            "shuffle_cooperative": False, "workers": 0, "ftz": True, "max_threads_per_threadgroup": 1024,
        }  # fmt: skip
        self.set(**values)
        try:
            yield
        finally:
            self.set(**{name: defaults[name] for name in values})

    def reports(self) -> list[Report]:
        lines = self.lib.emulator_reports().decode().splitlines()
        return [
            Report(kind, int(count), text) for kind, count, text in (line.split("\t", 2) for line in lines)
        ]

    def counters(self, reset: bool = True) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self.lib.emulator_counters(int(reset)))
        return result

    # --- kernels and buffers
    def compile(
        self, source: str, math: int = SAFE, version: int = 310, macros: Mapping[str, str] | None = None,
        header: str = HEADER,
    ) -> int:  # fmt: skip
        lines = "".join(f"{k}={v}\n" for k, v in (macros or {}).items())
        key = (source, math, version, lines, header)
        if key not in self.libraries:
            number = self.lib.runner_compile(
                (header + source).encode(), b"test.metal", lines.encode(), math, version
            )
            if number < 0:
                raise CompileError(self.lib.runner_error().decode())
            self.libraries[key] = number
        return self.libraries[key]

    def kernel(self, library: int, name: str, constants: Mapping[int, np.generic] | None = None) -> int:
        items = sorted((constants or {}).items())
        sizes = [value.nbytes for _, value in items]
        number: int = self.lib.runner_kernel(
            library,
            name.encode(),
            (ctypes.c_uint32 * len(items))(*(i for i, _ in items)),
            (ctypes.c_uint32 * len(items))(*sizes),
            b"".join(value.tobytes() for _, value in items),
            len(items),
        )
        if number < 0:
            raise CompileError(self.lib.runner_error().decode())
        return number

    def names(self, library: int) -> list[str]:
        return self.lib.runner_kernel_names(library).decode().split()  # type: ignore[no-any-return]

    def buffer(self, data: np.ndarray, label: str = "", tracked: bool = True) -> Buffer:
        data = np.ascontiguousarray(data)
        number = self.lib.runner_allocate(data.nbytes, label.encode(), int(tracked))
        memory = (ctypes.c_char * data.nbytes).from_address(self.lib.runner_contents(number))
        array = np.frombuffer(memory, data.dtype).reshape(data.shape)
        array[...] = data
        return Buffer(number, array)

    def free(self, buffer: Buffer) -> None:
        self.lib.runner_free(buffer.id)

    # --- dispatches
    def encode(
        self, kernel: int, arguments: Sequence[object], grid: Shape, group: Shape,
        threadgroup: Sequence[int] = (),
        label: str = "", resident: Sequence[Buffer] = (),
    ) -> None:  # fmt: skip
        """arguments: what stands at [[buffer(0)]], ..: a Buffer, bytes, a NumPy scalar, None."""
        self.lib.runner_begin(kernel, label.encode())
        for index, argument in enumerate(arguments):
            if isinstance(argument, Buffer):
                self.lib.runner_bind(index, argument.id, 0)
            elif isinstance(argument, At):
                self.lib.runner_bind(index, argument.buffer.id, argument.offset)
            elif argument is not None:
                data = bytes(argument.data) if hasattr(argument, "data") else bytes(argument)  # type: ignore[call-overload]
                self.lib.runner_bytes(index, data, len(data))
        for index, length in enumerate(threadgroup):
            self.lib.runner_threadgroup(index, length)
        for buffer in resident:
            self.lib.runner_resident(buffer.id)
        self.lib.runner_encode(three(grid), three(group))

    def run(self) -> None:
        """Runs what was encoded, in no order among each other, and passes a barrier."""
        self.lib.runner_run()

    def call(
        self, source: str, arguments: Sequence[object], grid: Shape, group: Shape, name: str = "k",
        constants: Mapping[int, np.generic] | None = None, threadgroup: Sequence[int] = (), **options: Any,
    ) -> None:  # fmt: skip
        kernel = self.kernel(self.compile(source, **options), name, constants)
        self.encode(kernel, arguments, grid, group, threadgroup)
        self.run()


def bfloat_bits(x: np.ndarray) -> np.ndarray:
    """float32 to the bits of bfloat, to nearest even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bfloat(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)
