"""The C++ core (csrc/python). Blocking calls release the GIL."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__version__: str

def metal_available() -> bool: ...
def compile_metal_kernels() -> list[tuple[str, float, int, str]]: ...
def instruction_sets() -> list[str]: ...
def usable_cores() -> int: ...
def trim_heap() -> None: ...

class Device:
    def __init__(
        self,
        name: str,
        *,
        fused: bool = True,
        activations: str = "int15",
        isa: str = "auto",
        threads: int = 0,
        spin_us: int = 50,
        run_ahead: bool = True,
        metal_resident: bool = True,
        metal_matmul: bool = True,
        metal_tensor_ops: bool = True,
        metal_simdgroup_attention: bool = True,
        kernel_cache: str = "",
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    def kernel_times(self) -> list[tuple[str, int, float]]: ...
    def memory(self) -> dict[str, int]: ...

class Model:
    def __init__(
        self,
        device: Device,
        spec: object,
        tensors: Sequence[object],
        *,
        blocks: int,
        block_tokens: int = 256,
        kv_dtype: str = "bf16",
    ) -> None: ...
    @property
    def free_blocks(self) -> int: ...
    @property
    def kv_bytes_per_token(self) -> int: ...

class Session:
    def __init__(self, model: Model, rows: int, context: int) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def context(self) -> int: ...
    def length(self, row: int) -> int: ...
    def configure(
        self,
        row: int,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        seed: int = 0,
        top_logprobs: int = -1,
        bias: Sequence[tuple[int, float]] = (),
    ) -> None: ...
    def set_mask(self, row: int, mask: Sequence[int]) -> None: ...
    def prefill(self, row: int, tokens: Sequence[int], draw: bool) -> None: ...
    def step(self, rows: Sequence[int]) -> None: ...
    def drawn(self, row: int) -> tuple[int, list[tuple[int, float]]]: ...
    def rewind(self, row: int, to: int) -> None: ...
    def logits(self, row: int, tokens: Sequence[int]) -> NDArray[np.float32]: ...
    def hidden(self, row: int, tokens: Sequence[int]) -> NDArray[np.float32]: ...
