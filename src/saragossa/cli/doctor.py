"""`saragossa doctor`: this machine, the versions, a self-check; `--fits MODEL`: will it fit;
`--metal-report FILE`: what only a Mac can tell; `--compare A B`: do two ways to run a model give the same."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from saragossa import runtime_flags, settings
from saragossa.cli import machine
from saragossa.cli.tables import size
from saragossa.errors import UsageError

PACKAGES = ("saragossa", "numpy", "tokenizers", "jinja2", "huggingface-hub", "pydantic", "gguf")


def run(args: argparse.Namespace) -> int:
    """Print the report. Returns 1 where the self-check fails, the model does not fit, or A and B differ."""
    _check_together(args)
    if args.compare is not None:
        from saragossa.cli import compare

        return compare.run(args)
    if args.fits is not None:
        return _fits(args)
    if args.metal_report is not None:
        from saragossa.cli import metal_report

        return 0 if metal_report.write(Path(args.metal_report), args.model, facts()) else 1
    from saragossa.cli.selfcheck import run_checks

    report = facts()
    checks = list(run_checks())
    passed = all(check.passed for check in checks)
    if args.json:
        results = [dataclasses.asdict(check) | {"passed": check.passed} for check in checks]
        print(json.dumps({**report, "self_check": results}, indent=1))
        return 0 if passed else 1
    for key, value in report.items():
        print(f"{key + ':':18} {value}")
    for check in checks:
        verdict = "ok" if check.passed else f"FAILED, more than {check.tolerance:g}"
        print(f"{'self-check:':18} {check.name}: error {check.error:.1e}, {verdict}")
    return 0 if passed else 1


_OF_FITS = ("context", "memory")
_OF_COMPARE = ("prompt", "ids", "tokens_file", "max_tokens", "near_tie", "tolerance", "record")


def _check_together(args: argparse.Namespace) -> None:
    """Refuse options that would have no effect."""
    if args.fits is None and any(getattr(args, name) is not None for name in _OF_FITS):
        raise UsageError("--context and --memory go with --fits MODEL")
    if args.compare is not None:
        return
    if args.model is not None and args.metal_report is None:
        raise UsageError("--model goes with --metal-report FILE or --compare A B")
    for name in _OF_COMPARE:
        if getattr(args, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} goes with --compare A B")


def facts() -> dict[str, str]:
    """What a bug report needs."""
    from huggingface_hub.constants import HF_HUB_CACHE

    from saragossa import _core

    switched = [
        f"{flag.name}={runtime_flags.text_of(value)}"
        for flag in runtime_flags.FLAGS
        if (value := runtime_flags.read(flag)) != flag.default
    ]
    limit = machine.cgroup_memory()
    return {
        **machine.describe(),
        "memory": f"{size(machine.total_memory())}, {size(machine.available_memory())} available"
        + (f", cgroup limit {size(limit[0])}" if limit else ""),
        "metal": "available" if _core.metal_available() else "not available",
        "model cache": _folder(Path(HF_HUB_CACHE)),
        "own cache": _folder(settings.load().cache_dir),
        "switches": ", ".join(switched) or "all at their defaults",
        "versions": ", ".join(f"{name} {_version(name)}" for name in PACKAGES),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _folder(path: Path) -> str:
    try:
        existing = next(folder for folder in (path, *path.parents) if folder.exists())
        free = size(shutil.disk_usage(existing).free)
    except OSError as error:
        return f"{path}, cannot be read: {error.strerror}"
    made = "" if existing == path else ", not made yet"
    return f"{path}{made}, {free} free"


def _fits(args: argparse.Namespace) -> int:
    from saragossa.cli.fits import WORKING_BYTES, fit
    from saragossa.models.parameters import Parameters
    from saragossa.weights.locate import locate

    memory = _memory(args.memory)
    folder = locate(args.fits, allow_download=False)
    kv_dtype = str(runtime_flags.switches()["kv_dtype"])
    result = fit(args.fits, folder, memory, args.context, kv_dtype)
    if args.json:
        print(
            json.dumps(dataclasses.asdict(result) | {"needed": result.needed, "fits": result.fits}, indent=1)
        )
        return 0 if result.fits else 1
    count = Parameters(result.parameters, result.active_parameters)
    print(f"{result.model}: {result.model_type}, {count}, context of {result.model_context} tokens")
    print(f"weights:   {size(result.weight_bytes)}")
    windows = result.kv_bytes < result.kv_bytes_per_token * result.context
    whole = (
        f", {size(result.kv_bytes)} for {result.context}: some layers keep a window only" if windows else ""
    )
    print(f"cache:     {size(result.kv_bytes_per_token)} a token{whole}")
    if result.state_bytes:
        print(f"state:     {size(result.state_bytes)} a sequence")
    if result.mark_bytes:
        print(f"rewinds:   {size(result.mark_bytes)} at most, for drafts and places to go back to")
    print(f"the rest:  {size(WORKING_BYTES)}")
    print(f"memory:    {size(result.memory)} {'as given' if args.memory else 'available'}")
    if result.fits:
        print(f"It fits with a context of {result.context} tokens: {size(result.needed)}.")
    elif result.max_context:
        print(
            f"A context of {result.context} tokens would take {size(result.needed)}: it does not fit. "
            f"It fits with --context {result.max_context}."
        )
    else:
        print(f"It does not fit with any context: with one token it takes {size(result.least_bytes)}.")
    return 0 if result.fits else 1


def _memory(text: str | None) -> int:
    if text is not None:
        try:
            return runtime_flags.parse_bytes(text)
        except runtime_flags.BadValue as error:
            raise UsageError(f"--memory: found {text!r}, accepted is {error}") from None
    available = machine.available_memory()
    if not available:
        raise UsageError("this system does not tell how much memory is free", cure="give it: --memory 8GiB")
    return available
