"""`doctor --metal-report FILE`: what only a Mac can tell (docs/on-a-mac.md), as Markdown and JSON."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from saragossa import _core
from saragossa.cli import metal_bytes, selfcheck
from saragossa.errors import SaragossaError, UsageError

# Error of the logits, relative to the largest, against scalar CPU: float32, sums in another order.
TOLERANCE = 1e-4
PREFILL, DEPTHS, TOKENS, REPEAT = (128, 512, 2048), (0, 512, 2048), 64, 3
# The path that a Mac takes, and the slower ones that must give the same.
# Tensor operations round inputs and weights to half.
TENSOR_TOLERANCE = 5e-3
# The path that a Mac takes, and the slower ones that must give the same: switches of the device.
PATHS: dict[str, dict[str, Any]] = {
    "all switches at their defaults": {},
    "fused off": {"fused": False},
    "metal_resident off": {"metal_resident": False},
    "metal_matmul off": {"metal_matmul": False},
    "metal_tensor_ops off": {"metal_tensor_ops": False},
    "metal_statistics off": {"metal_statistics": False},
    "metal_split_matmul off": {"metal_split_matmul": False},
    "metal_sorted_experts off": {"metal_sorted_experts": False},
    "metal_simdgroup_attention off": {"metal_simdgroup_attention": False},
    "metal_command_macs 1": {"metal_command_macs": 1},  # many command buffers
}
# Of a checkout; the report's own would run this again.
TESTS = ("tests/metal", "--ignore=tests/metal/test_report.py")
TESTS_SECONDS = 3600


@dataclass(slots=True)
class Section:
    """One part of the report; ok is None where it could not be tried."""

    title: str
    ok: bool | None = True
    columns: tuple[str, ...] = ()
    rows: list[tuple[str, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def write(path: Path, model: str | None, facts: dict[str, str]) -> bool:
    """Write `path` and, beside it, the same as JSON. True when all that was tried went well."""
    if not _core.metal_available():
        try:
            _core.Device("metal")
            why = "none was found"
        except SaragossaError as error:
            why = str(error)  # the GPU, a newer system, or Metal in this build
        raise SaragossaError(
            f"--metal-report needs a Mac with a Metal GPU: {why}",
            cure="run it on an Apple Silicon Mac with macOS 14 or newer",
        )
    if path.suffix == ".json" or not path.parent.is_dir():
        raise UsageError(
            f"--metal-report: found {str(path)!r}, accepted is a name in a folder that exists, such as r.md"
        )
    _check_writable(path)  # before the work, not after it
    _check_writable(path.with_suffix(".json"))
    if model is not None:
        from saragossa.weights.locate import locate

        locate(model, allow_download=False)  # raises where there is none
    sections = [
        _tried("Kernels", compiled),
        _tried("Self-check", checked),
        _tried("A guided session", guided),
    ]
    if model is None:
        notes = ["not tried: give a model with --model, such as --model demo"]
        sections.append(Section("Speed of a model", None, notes=notes))
    else:
        sections += [
            _tried(f"GPU time by kernel: {model}", lambda: kernel_times(model)),
            _tried(f"Speed: {model}", lambda: speed(model)),
            _tried(f"mlx-lm: {model}", lambda: mlx_lm(model)),
        ]
    sections.append(_tried("Op cases and goldens", tests))
    gpu = _core.Device("metal")
    facts = {"gpu": gpu.description, **{k: str(v) for k, v in gpu.memory().items()}, **facts}
    path.write_text(markdown(facts, sections))
    parts = [asdict(section) for section in sections]
    path.with_suffix(".json").write_text(json.dumps({"facts": facts, "sections": parts}, indent=1) + "\n")
    return all(section.ok is not False for section in sections)


def _check_writable(file: Path) -> None:
    made = not file.exists()
    try:
        file.open("a").close()
        if made:
            file.unlink()
    except OSError as error:
        raise UsageError(f"--metal-report: {file} cannot be written: {error.strerror}") from error


def _tried(title: str, make: Callable[[], Section]) -> Section:
    """A part that fails is a finding; the others still run."""
    try:
        section = make()
    except (SaragossaError, OSError, subprocess.TimeoutExpired) as error:
        section = Section(title, False, notes=[str(error)])
    section.title = title
    return section


def compiled() -> Section:
    """Every family of kernels by this system's compiler, past our cache (the system may keep its own)."""
    section = Section("", columns=("family", "functions", "seconds", ""))
    for family, seconds, functions, error in _core.compile_metal_kernels():
        section.rows.append((family, str(functions), f"{seconds:.3f}", "ok" if not error else "FAILED"))
        if error:
            section.ok = False
            section.notes.append(f"{family}: {error}")
    return section


def checked() -> Section:
    """A small random 4-bit model, each path of the Metal device held to scalar CPU."""
    section = Section("", columns=("path", "error", ""))
    with tempfile.TemporaryDirectory(prefix="saragossa-doctor-") as name:
        folder = selfcheck.write_quantised(Path(name))
        cpu = _core.Device("cpu", isa="scalar", activations="f32")
        want = selfcheck.logits_on(cpu, folder)
        for path, switches in PATHS.items():
            try:
                device = _core.Device("metal", **switches)
                got = selfcheck.logits_on(device, folder)
            except SaragossaError as error:
                section.ok = False
                section.rows.append((path, "", "FAILED"))
                section.notes.append(f"{path}: {error}")
                continue
            tensors = device.description.endswith(", tensor operations")
            tolerance = TENSOR_TOLERANCE if tensors else TOLERANCE
            error_of = float(np.abs(got - want).max() / np.abs(want).max())
            passed = error_of <= tolerance  # false for NaN
            section.ok = section.ok and passed
            section.rows.append(
                (path, f"{error_of:.1e}", "ok" if passed else f"FAILED, more than {tolerance:g}")
            )
    return section


def guided() -> Section:
    """A session whose tokens are masked one by one, on Metal and on scalar CPU: the same ids."""
    with tempfile.TemporaryDirectory(prefix="saragossa-doctor-") as name:
        folder = selfcheck.write_quantised(Path(name))
        want = selfcheck.guided_on(_core.Device("cpu", isa="scalar", activations="f32"), folder)
        got = selfcheck.guided_on(_core.Device("metal", metal_tensor_ops=False), folder)
    rows: list[tuple[str, ...]] = [("cpu", " ".join(map(str, want))), ("metal", " ".join(map(str, got)))]
    return Section("", got == want, ("device", "ids"), rows)


def kernel_times(name: str) -> Section:
    """A prefill of 512 tokens and 16 decoded ones, each dispatch in a command buffer of its own."""
    from saragossa.models.spec import ModelSpec
    from saragossa.weights.bind import bind
    from saragossa.weights.checkpoint import load_spec
    from saragossa.weights.locate import locate
    from saragossa.weights.safetensors import SafetensorsIndex

    folder = locate(name, allow_download=False)
    spec: ModelSpec = load_spec(folder)
    device = _core.Device("metal", metal_resident=False, run_ahead=False)
    tensors = bind(spec, SafetensorsIndex.open(folder))
    model = _core.Model(device, spec.decoder, tensors, blocks=3)
    session = _core.Session(model, 1, min(768, spec.decoder.max_context))
    prompt, steps = min(512, spec.decoder.max_context - 32), 16
    columns = ("phase", "kernel", "runs", "GPU ms", "share", "MB", "GB/s")
    section = Section("", columns=columns)
    before: dict[str, tuple[int, float]] = {}
    for phase in ("prefill", "decode"):
        if phase == "prefill":
            session.prefill(0, [5] * prompt, True)
        else:
            for _ in range(steps):
                session.step([0])
        now = {kernel: (runs, seconds) for kernel, runs, seconds in device.kernel_times()}
        spent = {
            kernel: (runs - before.get(kernel, (0, 0.0))[0], seconds - before.get(kernel, (0, 0.0))[1])
            for kernel, (runs, seconds) in now.items()
        }
        whole = sum(seconds for _, seconds in spent.values()) or 1.0
        ran = {kernel for kernel, (runs, _) in spent.items() if runs}
        if phase == "prefill":
            read = metal_bytes.of_prefill(spec.decoder, tensors, prompt, ran)
        else:
            read = metal_bytes.of_decode(spec.decoder, tensors, prompt, steps)
        for kernel, (runs, seconds) in sorted(spent.items(), key=lambda item: -item[1][1]):
            if runs:
                share = f"{seconds / whole:.0%}"
                size = read.get(kernel, 0)
                figures = (
                    (f"{size / 1e6:.3f}", f"{size / seconds / 1e9:.3g}") if size and seconds else ("", "")
                )
                section.rows.append((phase, kernel, str(runs), f"{seconds * 1000:.3f}", share, *figures))
        before = now
    section.notes += [
        "Each dispatch alone: the sum is more than a step takes.",
        "MB: weights, keys and values, logits by their shapes, each once; prefills read some several times.",
        "A kernel without a figure touches activations only: what it takes is mostly its launch.",
    ]
    return section


def speed(name: str) -> Section:
    """Tokens per second of Metal and CPU; for decode, the weights that go through the memory in that time."""
    from saragossa.cli.fits import fit
    from saragossa.engine.bench import measure
    from saragossa.llm import LLM
    from saragossa.weights.locate import locate

    weights = fit(name, locate(name, allow_download=False), 1 << 50, None, "bf16").weight_bytes
    section = Section("", columns=("device", "kind", "tokens", "depth", "tok/s", "min", "max", "GB/s"))
    for device in ("metal", "cpu"):
        with LLM(name, device=device, progress=False) as model:
            longest = model.context - TOKENS - 1
            report = measure(
                model,
                prefill=[n for n in PREFILL if n <= longest],
                depths=[n for n in DEPTHS if n <= longest],
                tokens=TOKENS,
                repeat=REPEAT,
            )
        for row in report.rows:
            bandwidth = f"{row.tok_s * weights / 1e9:.1f}" if row.kind == "decode" else ""
            figures = (f"{row.tok_s:.1f}", f"{row.tok_s_min:.1f}", f"{row.tok_s_max:.1f}")
            section.rows.append((device, row.kind, str(row.tokens), str(row.depth), *figures, bandwidth))
    return section


def mlx_lm(name: str) -> Section:
    """mlx-lm's own benchmark of the same folder, in its words, where it is installed."""
    from saragossa.weights.locate import locate

    if importlib.util.find_spec("mlx_lm") is None:
        return Section("", None, notes=["not tried: mlx-lm is not installed beside saragossa"])
    command = [
        sys.executable,
        "-m",
        "mlx_lm",
        "benchmark",
        "--model",
        str(locate(name, allow_download=False)),
    ]
    done = subprocess.run(
        [*command, "-p", "512", "-g", str(TOKENS), "-n", str(REPEAT)],
        capture_output=True,
        text=True,
        check=False,
    )
    words = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return Section("", True if done.returncode == 0 else None, notes=words[-12:])


def tests() -> Section:
    """The tests of the Metal device, in a process of their own, where the package runs from a checkout."""
    roots = (Path(__file__).parents[3], Path.cwd())
    marks = ("tests/metal/conftest.py", "csrc/metal/policy.h")  # of this project, not of any other
    root = next((root for root in roots if all((root / mark).is_file() for mark in marks)), None)
    if root is None:
        cure = "in one: make build .venv/.test, then .venv/bin/saragossa doctor --metal-report FILE"
        return Section("", None, notes=[f"not tried: there is no checkout of saragossa here; {cure}"])
    if importlib.util.find_spec("pytest") is None:
        return Section(
            "", None, notes=["not tried: pytest is not installed; in the checkout: make .venv/.test"]
        )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=line", *TESTS],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=TESTS_SECONDS,
    )
    words = (done.stdout + done.stderr).strip().splitlines()
    # Failures are named by the summary at the end; dots are not worth keeping.
    kept = words[-40:] if done.returncode else words[-1:]
    return Section("", done.returncode == 0, notes=[f"pytest {' '.join(TESTS)}", *kept])


def markdown(facts: dict[str, str], sections: list[Section]) -> str:
    """The report for people."""
    lines = ["# saragossa on a Mac", ""]
    lines += [f"- {key}: {value}" for key, value in facts.items()]
    verdicts = {True: "ok", False: "FAILED", None: "not tried"}
    for section in sections:
        lines += ["", f"## {section.title}: {verdicts[section.ok]}", ""]
        if section.rows:
            lines += ["| " + " | ".join(section.columns) + " |", "|---" * len(section.columns) + "|"]
            lines += ["| " + " | ".join(row) + " |" for row in section.rows]
        if section.notes:
            lines += ["", "```", *section.notes, "```"] if section.rows else ["```", *section.notes, "```"]
    return "\n".join(lines) + "\n"
