"""Sessions of the golden checkpoints on the Metal device, for the tests of whole models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from e2e.test_family_goldens import FAMILIES
from e2e.test_goldens import GOLDEN
from metal.emulator import Emulator
from saragossa import _core
from saragossa.engine.loading import Loaded, load

NAME = "qwen3-q4g64"  # where any will do
PROMPT = [2] + [4 + (7 * i * i + 13 * i + 5) % 250 for i in range(39)]
GREEDY: dict[str, object] = {}
SAMPLED: dict[str, object] = {
    "temperature": 0.8,
    "top_k": 40,
    "top_p": 0.9,
    "seed": 11,
    "repetition_penalty": 1.3,
    "presence_penalty": 0.4,
    "frequency_penalty": 0.3,
}


def loaded(name: str, *, exact: bool = True, device: str = "metal") -> Loaded:
    """The checkpoint, of either folder, on a device of its own, with the switches of the environment."""
    folder = FAMILIES / name if (FAMILIES / name).exists() else GOLDEN / name
    return load(folder, device=device, exact=exact)


def session(name: str, *, exact: bool = True, rows: int = 1, device: str = "metal") -> _core.Session:
    model = loaded(name, exact=exact, device=device)
    return _core.Session(model.model, rows, model.context)


def drawn(
    core: _core.Session, row: int, prompt: list[int], count: int, options: dict[str, object]
) -> list[int]:
    """The first `count` ids of a fresh row."""
    core.configure(row, **options)
    core.prefill(row, prompt, True)
    return [core.drawn(row)[0], *steps(core, row, count - 1)]


def steps(core: _core.Session, row: int, count: int) -> list[int]:
    """The ids of so many steps of one row."""
    ids = []
    for _ in range(count):
        core.step([row])
        ids.append(core.drawn(row)[0])
    return ids


def idle(model: Loaded) -> None:
    """Until the queue has done what it was given: its order is that of the commits."""
    _core.Session(model.model, 1, 8).prefill(0, [5], False)


@contextmanager
def fault(emulator: Emulator, after: int) -> Iterator[None]:
    """The GPU fails one command buffer after so many that it does."""
    emulator.set("fail_command_buffer", after)
    try:
        yield
    finally:
        emulator.set("fail_command_buffer", -1)
