"""Runs ops of the core on NumPy arrays: one device per instruction set, one encoder per call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saragossa import _core_test as core

Array = NDArray[Any]
ALL_ISAS = ("scalar", "avx2", "avx512", "neon")
ISAS = tuple(core.instruction_sets())  # of this machine; test_values.py reports the others as skipped


def to_bf16(x: Array) -> NDArray[np.uint16]:
    """Round to nearest even."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(x: Array) -> NDArray[np.float32]:
    return (x.astype(np.uint32) << 16).view(np.float32)


def error(got: Array, want: Array) -> float:
    """Largest difference over the root mean square of what is wanted; NaN must meet NaN."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    assert np.array_equal(np.isnan(got), np.isnan(want)), "NaN in other places"
    fine = ~np.isnan(want)
    if not fine.any():
        return 0.0
    scale = float(np.sqrt(np.mean(want[fine] ** 2))) or 1.0
    return float(np.max(np.abs(got[fine] - want[fine]))) / scale


class Ops:
    """A device, with what tests need in one line."""

    def __init__(
        self,
        isa: str = "scalar",
        *,
        device: str = "cpu",
        fused: bool = True,
        threads: int = 2,
        activations: str = "f32",
        **switches: bool | int,
    ) -> None:
        self.device = core.Device(
            device, isa=isa, fused=fused, threads=threads, activations=activations, poison=True, **switches
        )
        self.begin: Callable[[], Any] = self.device.begin

    def f32(self, x: Array) -> Any:
        return self.device.tensor(np.ascontiguousarray(x, np.float32), "f32")

    def bf16(self, x: Array) -> Any:
        return self.device.tensor(to_bf16(x), "bf16")

    def bf16_bits(self, x: NDArray[np.uint16]) -> Any:
        return self.device.tensor(np.ascontiguousarray(x), "bf16")

    def i32(self, x: Any) -> Any:
        return self.device.tensor(np.asarray(x, np.int32), "i32")

    def u32(self, x: Any) -> Any:
        return self.device.tensor(np.asarray(x, np.uint32), "u32")

    def u8(self, x: Array) -> Any:
        return self.device.tensor(np.asarray(x, np.uint8), "u8")

    def empty(self, *shape: int) -> Any:
        """Holds NaN, so that what nobody wrote shows."""
        return self.f32(np.full(shape, np.nan))

    def dense(self, w: Array, dtype: str = "f32") -> Any:
        data = self.bf16(w) if dtype == "bf16" else self.f32(w)
        return core.Weight(w.shape[0], w.shape[1], data)

    def run(self, encode: Callable[[Any], None]) -> None:
        enc = self.begin()
        encode(enc)
        enc.submit().wait()


@cache
def ops_of(isa: str, fused: bool = True, threads: int = 2) -> Ops:
    return Ops(isa, fused=fused, threads=threads)


def read(tensors: Mapping[str, Any]) -> dict[str, Array]:
    out = {}
    for name, t in tensors.items():
        out[name] = from_bf16(t.numpy()) if t.dtype == "bf16" else t.numpy()
    return out
