"""`doctor --metal-report` on the Metal device: every part runs, and what fails is told."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from metal.emulator import Emulator
from metal.models import loaded
from saragossa import _core
from saragossa.cli import metal_bytes, metal_report, selfcheck
from saragossa.cli.main import main
from saragossa.weights.bind import bind
from saragossa.weights.safetensors import SafetensorsIndex

ROOT = Path(__file__).parents[2]
FEW = ("tests/metal/test_msl.py", "-k", "index or launch")
MODEL = ROOT / "tests" / "golden" / "checkpoints" / "llama-q4g32"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PREFILL": (16,), "DEPTHS": (0, 16), "TOKENS": 4, "REPEAT": 1, "TESTS": FEW}.items():
        monkeypatch.setattr(metal_report, name, value)


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    emulator = Emulator()
    emulator.set("check", False)
    yield emulator
    emulator.set("fail_compile_of", "")
    emulator.set("fail_compile", -1)
    emulator.reports()


def test_every_part_of_the_report(tmp_path: Path) -> None:
    file = tmp_path / "report.md"
    assert main(["doctor", "--metal-report", str(file), "--model", str(MODEL)]) == 0
    data = json.loads(file.with_suffix(".json").read_text())
    parts = {part["title"].split(":")[0]: part for part in data["sections"]}
    families = {path.stem for path in (ROOT / "metal").glob("*.metal")}
    compiled = {row[0] for row in parts["Kernels"]["rows"]}
    assert compiled | {"matmul_tensor"} == families  # not every GPU takes that one
    assert len(parts["Self-check"]["rows"]) == len(metal_report.PATHS)
    cpu, metal = (row[1].split() for row in parts["A guided session"]["rows"])
    assert len(cpu) == 8
    assert metal == cpu
    assert "2 passed" in parts["Op cases and goldens"]["notes"][-1]
    times = parts["GPU time by kernel"]["rows"]
    assert {row[0] for row in times} == {"prefill", "decode"}
    assert ("decode", "sample_scan", "16") in {tuple(row[:3]) for row in times}
    assert all(float(row[3]) > 0 for row in times if row[1] == "matvec")
    with_bytes = {tuple(row[:2]) for row in times if row[5] and float(row[6]) > 0}
    assert with_bytes == {
        ("prefill", "matmul"),
        ("prefill", "matvec"),
        ("prefill", "attention_prefill"),
        ("prefill", "sample_scan"),
        ("decode", "matvec"),
        ("decode", "attention_decode"),
        ("decode", "sample_scan"),
    }
    assert {row[0] for row in parts["Speed"]["rows"]} == {"metal", "cpu"}
    assert all(part["ok"] is True for title, part in parts.items() if title != "mlx-lm")
    text = file.read_text()
    assert "## Kernels: ok" in text
    assert data["facts"]["gpu"] in text


@pytest.mark.skipif(sys.platform == "darwin", reason="the emulator refuses on request")
def test_what_does_not_compile_is_told(emulator: Emulator, tmp_path: Path) -> None:
    emulator.set("fail_compile_of", "sample_scan")
    file = tmp_path / "report.md"
    assert main(["doctor", "--metal-report", str(file)]) == 1
    text = file.read_text()
    assert "## Kernels: FAILED" in text
    assert "sample: " in text
    assert "## Speed of a model: not tried" in text


def test_bytes_of_decode_are_those_that_are_read(emulator: Emulator) -> None:
    """The report takes them from shapes; the emulator traces them."""
    model = loaded("llama-q4g32", exact=False)
    spec, tensors = model.spec, bind(model.spec, SafetensorsIndex.open(MODEL))
    core = _core.Session(model.model, 1, model.context)
    core.configure(0)
    core.prefill(0, [5] * 30, True)
    core.configure(0)  # waits for what runs ahead
    told = metal_bytes.of_decode(spec.decoder, tensors, 30, 1)
    read: Counter[str] = Counter()
    with emulator.traced() as counted:
        core.logits(0, [6])
    for dispatch in counted["dispatch_list"]:
        read[dispatch["kernel"]] += dispatch["unique_read"]
    activations = 0.1
    for kernel in ("matvec", "attention_decode"):
        assert told[kernel] <= read[kernel] <= (1 + activations) * told[kernel], kernel


def test_the_tests_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metal_report, "TESTS", ("tests/metal/no_such_test.py",))
    section = metal_report.tests()
    assert section.ok is False
    assert "no_such_test.py" in section.notes[-1]
    monkeypatch.setattr(metal_report, "__file__", str(tmp_path / "a" / "b" / "c" / "metal_report.py"))
    monkeypatch.chdir(tmp_path)
    section = metal_report.tests()
    assert section.ok is None
    assert "there is no checkout of saragossa here" in section.notes[0]


@pytest.mark.skipif(sys.platform == "darwin", reason="the emulator plays an M5")
def test_tensor_operations_have_a_tolerance_of_their_own(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metal_report, "PATHS", {"on": {}, "off": {"metal_tensor_ops": False}})
    with emulator.mac(gpu_family=10):
        (_, on, verdict), (_, off, same) = metal_report.checked().rows
    assert verdict == same == "ok"
    assert float(off) <= metal_report.TOLERANCE < float(on) <= metal_report.TENSOR_TOLERANCE


def test_other_guided_ids_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    right = selfcheck.guided_on
    monkeypatch.setattr(
        selfcheck, "guided_on", lambda device, folder: right(device, folder, 8 if device.name == "cpu" else 7)
    )
    assert metal_report.guided().ok is False


def test_a_wrong_path_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metal_report, "TOLERANCE", 0.0)
    section = metal_report.checked()
    assert section.ok is False
    assert all("FAILED" in row[2] for row in section.rows)
