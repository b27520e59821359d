"""Dispatch, exit codes, and errors as one line."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from saragossa.cli import flags, parser
from saragossa.cli.dispatch import describe
from saragossa.cli.parser import with_subcommand
from saragossa.errors import SaragossaError, UsageError

COMMANDS = ("run", "generate", "pull", "list", "rm", "convert", "bench", "flags", "doctor")


def one_line(err: str) -> str:
    """The error, which is one line."""
    assert err.count("\n") == 1
    assert err.startswith("saragossa: error: ")
    return err.removeprefix("saragossa: error: ").strip()


def test_help_is_quick_and_complete() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = subprocess.run(
        [sys.executable, "-m", "saragossa", "--help"], capture_output=True, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # CPU time: it waits for nothing, and other programs may have the core.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.3
    for command in COMMANDS:
        assert f"\n    {command} " in out.stdout
    assert out.stderr == ""


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from saragossa.cli.main import main; main(['generate', '--help']);"
        "print([m for m in ('numpy', 'pydantic', 'tokenizers', 'jinja2', 'saragossa._core')"
        " if m in sys.modules], file=sys.stderr)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stderr == "[]\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(cli: Any, command: str) -> None:
    result = cli(command, "--help")
    assert result.code == 0
    assert result.out.startswith(f"usage: saragossa {command}")


def test_version(cli: Any) -> None:
    from importlib.metadata import version

    assert cli("--version").out == f"saragossa {version('saragossa')}\n"


def test_commands_that_do_not_exist_list_those_that_do(cli: Any) -> None:
    result = cli("serve")
    assert result.code == 2
    assert all(command in one_line(result.err) for command in COMMANDS)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["generate", "--prompt", "x"],
        ["generate", "--model-dir", "d", "--device", "tpu"],
        ["generate", "--model-dir", "d", "--temperature", "warm"],
        ["generate", "--model-dir", "d", "--max-tokens", "1.5"],
        ["generate", "--model-dir", "d", "--prompt", "x", "--ids", "1"],
        ["generate", "--model-dir", "d", "--prompt", "x", "--temp", "0"],
        ["generate", "--model-dir", "d", "--prompt", "x", "--logit-bias", "a=1"],
        ["generate", "--model-dir", "d", "--prompt", "x", "--context", "0"],
        ["generate", "--model-dir", "d", "--prompt", "x", "extra"],
        ["run", "m", "one", "two"],
        ["run", "m", "--seed", "1", "one", "two"],
        ["run", "m", "--sed", "1"],
        ["run", "m", "--seed", "1", "--sed"],
        ["convert", "a", "b", "--bits", "7"],
        ["convert", "a", "b", "--mode", "nvfp4"],
        ["bench", "m", "--prefill", "128,x"],
        ["bench", "m", "--json", "--csv"],
    ],
)
def test_usage_errors_are_one_line(cli: Any, arguments: list[str]) -> None:
    result = cli(*arguments)
    assert result.code == 2
    assert result.out == ""
    assert "--help" in one_line(result.err)


def test_form_without_a_subcommand() -> None:
    assert with_subcommand(["--model-dir", "d"]) == ["generate", "--model-dir", "d"]
    assert with_subcommand(["--debug", "--model-dir", "d"]) == ["--debug", "generate", "--model-dir", "d"]
    for unchanged in (["run", "m"], ["--help"], ["-h"], ["--version"], [], ["--debug"], ["--debug", "flags"]):
        assert with_subcommand(unchanged) == unchanged
    args = parser.parse(["--backend", "cpu", "--model-dir", "d"])
    assert (args.module, args.device, args.model) == ("generate", "cpu", "d")


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "m", "Why?", "--seed", "1"],
        ["run", "--seed", "1", "m", "Why?"],
        ["run", "m", "--seed", "1", "Why?"],
        ["run", "m", "--seed", "1", "--ignore-eos", "Why?"],
    ],
)
def test_the_prompt_may_stand_anywhere(arguments: list[str]) -> None:
    args = parser.parse(arguments)
    assert (args.model, args.prompt, args.seed) == ("m", "Why?", 1)


class Broken:
    """Stands for a command's module."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self, _: object) -> int:
        raise self.error


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (SaragossaError("it broke", cure="mend it"), 1, "it broke (mend it)"),
        (UsageError("two\nlines"), 2, "two lines"),
        (FileNotFoundError(2, "No such file or directory", "/x"), 1, "/x: No such file or directory"),
        (MemoryError(), 1, "out of memory"),
        (ValueError("odd"), 1, "internal error: ValueError: odd"),
    ],
)
def test_errors(monkeypatch: pytest.MonkeyPatch, cli: Any, error: Exception, code: int, text: str) -> None:
    monkeypatch.setattr(flags, "run", Broken(error))
    result = cli("flags")
    assert result.code == code
    assert text in one_line(result.err)
    assert "Traceback" not in result.err


@pytest.mark.parametrize("arguments", [("--debug", "flags"), ("flags", "--debug")])
def test_debug_shows_the_traceback(
    monkeypatch: pytest.MonkeyPatch, cli: Any, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setattr(flags, "run", Broken(SaragossaError("it broke")))
    with pytest.raises(SaragossaError, match="it broke"):
        cli(*arguments)


def test_ctrl_c(monkeypatch: pytest.MonkeyPatch, cli: Any) -> None:
    monkeypatch.setattr(flags, "run", Broken(KeyboardInterrupt()))
    result = cli("flags")
    assert result.code == 130
    assert result.err == "saragossa: interrupted\n"


EARLY = """
import sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            raise KeyboardInterrupt

sys.modules.pop(sys.argv[1], None)
sys.meta_path.insert(0, Interrupting())
from saragossa.cli.main import main
sys.exit(main(["flags"]))
"""


@pytest.mark.parametrize(
    "module",
    ["argparse", "logging", "saragossa.errors", "saragossa.cli.parser", "saragossa.cli.flags", "pydantic"],
)
def test_ctrl_c_while_it_starts(module: str) -> None:
    run = [sys.executable, "-c", EARLY, module]
    out = subprocess.run(run, capture_output=True, text=True, check=False)
    assert (out.returncode, out.stdout, out.stderr) == (130, "", "saragossa: interrupted\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["generate", "--model-dir", "", "--prompt", "x"],
        ["generate", "--model-dir", " ", "--prompt", "x"],
        ["generate", "--model-dir", "d", "--prompt-file", ""],
        ["run", "", "Why?"],
        ["convert", "", "out"],
        ["convert", "in", ""],
        ["bench", ""],
        ["bench", "m", "--plot", ""],
        ["doctor", "--fits", ""],
        ["pull", ""],
        ["rm", "m", ""],
    ],
)
def test_empty_names_are_refused(cli: Any, arguments: list[str]) -> None:
    result = cli(*arguments)
    assert (result.code, result.out) == (2, "")
    assert "found ''" in one_line(result.err) or "found ' '" in result.err


def test_control_characters_in_messages_are_harmless() -> None:
    assert describe(SaragossaError("a\x1b[31mb\r\nc")) == "a [31mb  c"


def test_closed_pipe_is_quiet() -> None:
    read, write = os.pipe()
    os.close(read)
    out = subprocess.run(
        [sys.executable, "-m", "saragossa", "flags"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert out.returncode == 1
    assert out.stderr == ""


def test_unknown_variables_are_warned_about_once(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARAGOSSA_TREADS", "2")
    err = cli("flags").err
    assert err.count("\n") == 1
    assert "SARAGOSSA_TREADS" in err
    assert "SARAGOSSA_THREADS" in err
    monkeypatch.delenv("SARAGOSSA_TREADS")
    assert cli("flags").err == ""


def test_flags(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    monkeypatch.setenv("SARAGOSSA_FUSED", "off")
    out = cli("flags").out
    assert "Switches" in out
    assert "Settings" in out
    row = next(line for line in out.splitlines() if line.startswith("SARAGOSSA_FUSED"))
    assert row.split()[1:3] == ["off", "on"]
    data = json.loads(cli("flags", "--json").out)
    assert data["switches"][0] | {"effect": "", "why": ""} == {
        "name": "SARAGOSSA_FUSED", "value": False, "default": True, "effect": "", "why": "",
    }  # fmt: skip
    assert {row["name"] for row in data["settings"]} == {"SARAGOSSA_CACHE_DIR", "SARAGOSSA_STATE_DIR"}
    monkeypatch.setenv("SARAGOSSA_FUSED", "2")
    result = cli("flags")
    assert result.code == 2
    assert "SARAGOSSA_FUSED" in one_line(result.err)


def test_only_two_files_read_the_environment() -> None:
    package = Path(flags.__file__).parents[1]
    readers = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if re.search(r"\bos\.(environ|getenv)|import environ", file.read_text())
    }
    assert readers == {"runtime_flags.py", "settings.py"}
