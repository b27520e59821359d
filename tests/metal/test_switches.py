"""Each switch of the Metal device changes what is encoded; that results stay is for other tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from metal.emulator import Emulator
from metal.models import NAME, PROMPT, drawn, idle, loaded
from saragossa import _core
from saragossa.engine import loading

pytestmark = pytest.mark.usefixtures("unchecked")


def switch(monkeypatch: pytest.MonkeyPatch, name: str, on: bool) -> None:
    monkeypatch.setenv(f"SARAGOSSA_{name}", "on" if on else "off")


def kernels(emulator: Emulator, *, exact: bool = True) -> tuple[list[str], list[str]]:
    """Names in order of the dispatches of a prefill, and of a step."""
    model = loaded(NAME, exact=exact)
    core = _core.Session(model.model, 1, model.context)
    out = []
    core.configure(0)
    for call in (lambda: core.prefill(0, PROMPT, True), lambda: core.step([0])):
        with emulator.traced() as counted:
            call()
            core.configure(0)
        out.append([d["kernel"] for d in counted["dispatch_list"]])
    return out[0], out[1]


def buffers_of_steps(emulator: Emulator, count: int) -> tuple[int, int]:
    """Command buffers and dispatches of so many steps, with what runs ahead."""
    model = loaded(NAME)
    core = _core.Session(model.model, 1, model.context)
    drawn(core, 0, PROMPT, 1, {})
    idle(model)
    emulator.counters(reset=True)
    for _ in range(count):
        core.step([0])
    core.configure(0)
    counters = emulator.counters()
    return counters["command_buffers"], counters["dispatches"]


def test_run_ahead(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step more than was asked for; off: none."""
    buffers, dispatches = buffers_of_steps(emulator, 5)
    switch(monkeypatch, "RUN_AHEAD", False)
    assert buffers == 6
    assert buffers_of_steps(emulator, 5) == (5, dispatches // 6 * 5)


def test_metal_resident(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step is one command buffer; off: each dispatch is one, and nothing runs ahead."""
    switch(monkeypatch, "RUN_AHEAD", False)
    one, dispatches = buffers_of_steps(emulator, 1)
    assert one == 1
    monkeypatch.delenv("SARAGOSSA_RUN_AHEAD")
    switch(monkeypatch, "METAL_RESIDENT", False)
    # What stands open when the last dispatch has run is committed, too.
    assert buffers_of_steps(emulator, 1) == (dispatches + 1, dispatches)


def test_metal_matmul(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    switch(monkeypatch, "METAL_STATISTICS", False)  # whose kernels go with matvec
    prefill, step = kernels(emulator)
    assert "matmul" in prefill
    assert "matmul" not in step
    switch(monkeypatch, "METAL_MATMUL", False)
    assert kernels(emulator) == (["matvec" if name == "matmul" else name for name in prefill], step)


def test_metal_tensor_ops(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = kernels(emulator, exact=False)
    with emulator.mac(gpu_family=10):
        prefill, step = kernels(emulator, exact=False)
        assert "matmul_tensor" in prefill
        assert step == plain[1]
        assert kernels(emulator, exact=True) == plain
        switch(monkeypatch, "METAL_TENSOR_OPS", False)
        assert kernels(emulator, exact=False) == plain


def test_metal_simdgroup_attention(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    prefill, step = kernels(emulator)
    switch(monkeypatch, "METAL_SIMDGROUP_ATTENTION", False)
    other = ["attention_decode" if name == "attention_prefill" else name for name in prefill]
    assert other != prefill
    assert kernels(emulator) == (other, step)


def test_fused(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    _, step = kernels(emulator)
    switch(monkeypatch, "FUSED", False)
    assert len(kernels(emulator)[1]) > 1.5 * len(step)


def test_kernel_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine code is kept in the folder and is not made again; an empty name keeps none."""

    def run(folder: str) -> list[tuple[str, int]]:
        monkeypatch.setattr(loading, "_kernel_cache", lambda device: folder)
        model = loaded(NAME)
        core = _core.Session(model.model, 1, model.context)
        drawn(core, 0, PROMPT, 3, {})
        del core, model
        return sorted((f.name, f.stat().st_mtime_ns) for f in tmp_path.rglob("*") if f.is_file())

    assert run("") == []
    kept = run(str(tmp_path))
    assert len(kept) == 1
    assert b"attention_prefill" in (tmp_path / kept[0][0]).read_bytes()
    assert run(str(tmp_path)) == kept
