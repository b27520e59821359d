"""Byte identity: every switch of the CPU, off alone and all together, on every instruction set, gives the
greedy ids of the scalar reference; or it parts from them at a near tie that tests/golden/near_ties.json has.

To qualify a new one, look at what `saragossa doctor --compare` says, as the failure spells it, and add
--record tests/golden/near_ties.json. A record stands for what rounds alike, whatever the order of sums is:
for all instruction sets, and for further switches off.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saragossa import _core, runtime_flags
from saragossa.cli.ways import Way, name_of
from saragossa.engine import trace
from saragossa.engine.compare import NEAR_TIE, ROUNDED, compare, md5_of
from saragossa.engine.loading import EXACT, load
from saragossa.engine.options import GenerationOptions
from saragossa.engine.session import Session
from saragossa.runtime_flags import Value

GOLDEN = Path(__file__).parents[1] / "golden"
RECORDS = GOLDEN / "near_ties.json"
TOKENS = 64
ISAS = [isa for isa in ("scalar", "avx2", "avx512", "neon") if isa in _core.instruction_sets()]

# The other value of what is no on and off. int8 is no such value: it rounds visibly, and says so.
OTHER: dict[str, Value] = {
    "activations": "f32",
    "threads": 1,
    "spin_us": 0,
    "prefill_chunk": 7,
    "kv_dtype": "f32",
    "metal_command_macs": 1,
}
# Of those, what rounds: where these are off, they are why.
ROUND = ("activations", "kv_dtype")
# What a device does not read; and the instruction set, which is nothing to turn off.
NOT_OF = {
    "cpu": ("isa", "run_ahead", "metal_"),
    "metal": ("isa", "activations", "threads", "spin_us", "cpu_"),
}


def switched_off(device: str = "cpu") -> dict[str, dict[str, Value]]:
    """By name, what to set: each switch alone, then all together."""
    out: dict[str, dict[str, Value]] = {}
    for flag in runtime_flags.FLAGS:
        if flag.field.startswith(NOT_OF[device]):
            continue
        value = False if flag.default is True else True if flag.default is False else OTHER.get(flag.field)
        assert value is not None, f"{flag.name}: which other value must give the same? Say so in OTHER"
        out[flag.field] = {flag.field: value}
    return {**out, "all": {key: value for one in out.values() for key, value in one.items()}}


def checkpoints() -> dict[str, tuple[Path, str]]:
    """Folder and model type of each that has a golden prompt of its own."""
    out = {}
    for manifest in sorted(GOLDEN.glob("*/manifest.json")):
        for name, entry in json.loads(manifest.read_text())["checkpoints"].items():
            if (manifest.parent / f"{name}.npz").exists():
                config = json.loads((manifest.parent / name / "config.json").read_text())
                out[name] = (manifest.parent / name, entry.get("model_type", config["model_type"]))
    return out


CHECKPOINTS = checkpoints()


def one_of_each_family() -> list[str]:
    """Quantised, where there is one."""
    chosen: dict[str, str] = {}
    for name, (_, kind) in sorted(CHECKPOINTS.items(), key=lambda item: ("-q" not in item[0], item[0])):
        chosen.setdefault(kind, name)
    return sorted(chosen.values())


FAMILIES = one_of_each_family()


def prompt_of(folder: Path) -> list[int]:
    """The golden one; of a gated delta net, whose prompts run in chunks, more than two of those."""
    with np.load(folder.with_suffix(".npz")) as golden:
        prompt: list[int] = golden["prompt"].tolist()
    recurrent = "linear_num_value_heads" in (folder / "config.json").read_text()
    return (4 * prompt)[:150] if recurrent else prompt


def greedy(folder: Path, switches: dict[str, Value]) -> list[int]:
    loaded = load(folder, device="cpu", switches=switches)
    session = Session(loaded.model, loaded.context, loaded.chunk)
    session.configure(GenerationOptions())
    session.prefill(prompt_of(folder))
    return [session.step() for _ in range(TOKENS)]


@cache
def records() -> list[dict[str, Any]]:
    return json.loads(RECORDS.read_text())["records"]


def cause(name: str) -> str:
    """The switches of a way that round; none: it only adds in another order."""
    return ",".join(word for word in name.partition(":")[2].split(",") if word.startswith(ROUND))


def recorded(folder: Path, name: str) -> set[tuple[int, int, int]]:
    """The partings from the scalar reference that are on record: step, its id, the other one."""
    about = (folder.name, "", cause(name), md5_of(prompt_of(folder)), TOKENS)
    out = set()
    for record in records():
        of = (record["model"], cause(record["a"]), cause(record["b"]), record["prompt_md5"])
        if (*of, record["max_tokens"]) == about:
            out |= {(parting["step"], *parting["ids"].values()) for parting in record["partings"]}
    return out


def check(folder: Path, name: str, switches: dict[str, Value]) -> None:
    """A difference from the scalar reference is a recorded near tie."""
    way = f"cpu:{cause(name)},isa={switches['isa']}" if cause(name) else name
    command = (
        f"saragossa doctor --compare cpu:isa=scalar {way} "
        f"--model-dir {folder.relative_to(GOLDEN.parents[1])} "
        f'--max-tokens {TOKENS} --ids "{" ".join(map(str, prompt_of(folder)))}"'
    )
    known = recorded(folder, name)
    assert known, f"{name} parts from cpu:isa=scalar, and no record says why: {command}"
    traces: list[trace.Trace] = []
    for values in ({"isa": "scalar"}, switches):
        loaded = load(folder, device="cpu", switches=values)
        forced = traces[0].greedy if traces else None
        traces.append(trace.run(loaded, prompt_of(folder), TOKENS, forced))
    result = compare(*traces, ROUNDED)
    assert result.verdict == NEAR_TIE, f"{name}: {result.verdict}: {command}"
    for parting in result.partings:
        if parting.step < 0:  # within the prompt, where nothing is drawn
            continue
        assert (parting.step, *parting.ids) in known, (
            f"{name}: step {parting.step} is not recorded: {command}"
        )


def differences(folder: Path) -> Iterator[tuple[str, dict[str, Value]]]:
    """Names and values of what parts from the scalar reference."""
    want = greedy(folder, {"isa": "scalar"})
    for isa in ISAS:
        for off in ({}, *switched_off().values()):
            switches: dict[str, Value] = {"isa": isa, **off}
            if greedy(folder, switches) != want:
                yield name_of(Way(switches=switches), "cpu", isa, EXACT), switches


def check_all(name: str) -> None:
    folder = CHECKPOINTS[name][0]
    found = []
    for label, switches in differences(folder):
        check(folder, label, switches)
        found.append(cause(label))
    for record in records():
        here = any(f"isa={isa}" in record["b"].replace(":", ",").split(",") for isa in ISAS)
        if here and record["model"] == name and record["max_tokens"] == TOKENS:
            assert cause(record["b"]) in found, f"a record of what is equal now: {name}, {record['b']}"


@pytest.mark.parametrize("name", FAMILIES)
def test_switches_keep_the_bytes(name: str) -> None:
    check_all(name)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in CHECKPOINTS if name not in FAMILIES])
def test_switches_keep_the_bytes_of_every_checkpoint(name: str) -> None:
    check_all(name)


def test_every_record_is_a_near_tie_of_a_checkpoint() -> None:
    for record in records():
        assert record["verdict"] == NEAR_TIE
        assert record["model"] in CHECKPOINTS
        assert all(parting["near_tie"] for parting in record["partings"])


def test_a_silent_difference_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CHECKPOINTS["llama-q4g32"][0]
    switches: dict[str, Value] = {"isa": "scalar", "activations": "int8"}
    with pytest.raises(AssertionError, match="no record says why: saragossa doctor --compare"):
        check(folder, "cpu:activations=int8,isa=scalar", switches)
    about = {"model": folder.name, "a": "cpu:isa=scalar", "b": "cpu:activations=int8", "max_tokens": TOKENS}
    other = [{"step": 3, "ids": {"a": 1, "b": 2}}]
    record = {**about, "prompt_md5": md5_of(prompt_of(folder)), "partings": other}
    monkeypatch.setitem(globals(), "records", lambda: [record])
    with pytest.raises(AssertionError, match=r"different|is not recorded"):
        check(folder, "cpu:activations=int8,isa=scalar", switches)
