"""Byte identity on the Metal device: every switch that it reads, off alone and all together, keeps the greedy
ids of each family, which are the golden ones. (On the CPU: tests/e2e/test_switches.py, whose rules hold.)
"""

from __future__ import annotations

import numpy as np
import pytest

from e2e.test_switches import CHECKPOINTS, FAMILIES, switched_off
from saragossa.engine.compare import md5_of
from saragossa.engine.loading import load
from saragossa.engine.options import GenerationOptions
from saragossa.engine.session import Session
from saragossa.runtime_flags import Value, text_of

pytestmark = pytest.mark.usefixtures("unchecked")
# Experts; a gated delta net; windows, shared keys, inputs of each layer.
SHORT = ("qwen3_moe-q4g32", "qwen3_5-q4g32", "gemma4-e2b-q4g32")


def greedy(name: str, switches: dict[str, Value]) -> tuple[list[int], list[int]]:
    """What the device decodes, and the golden ids."""
    folder = CHECKPOINTS[name][0]
    with np.load(folder.with_suffix(".npz")) as golden:
        prompt, want = golden["prompt"].tolist(), golden["greedy"].tolist()
    loaded = load(folder, device="metal", exact=True, switches=switches)
    session = Session(loaded.model, loaded.context, loaded.chunk)
    session.configure(GenerationOptions())
    session.prefill(prompt)
    return [session.step() for _ in want], want


def check(name: str) -> None:
    for switch, values in {"none": {}, **switched_off("metal")}.items():
        ids, want = greedy(name, values)
        words = ",".join(["exact", *(f"{key}={text_of(value)}" for key, value in values.items())])
        command = f"saragossa doctor --compare metal:{words} {name}.npz --model-dir {name}"
        assert md5_of(ids) == md5_of(want), f"{switch} off parts from the golden ids: {command}"


@pytest.mark.parametrize("name", SHORT)
def test_switches_keep_the_bytes(name: str) -> None:
    check(name)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in SHORT])
def test_switches_keep_the_bytes_of_every_family(name: str) -> None:
    check(name)
