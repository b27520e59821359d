"""The command line on a real, tiny model: one generation, every kind of bad input, Ctrl-C, a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from .test_main import one_line

CHECKPOINTS = Path(__file__).parents[2] / "golden" / "checkpoints"
LLAMA = str(CHECKPOINTS / "llama")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the tiny llama that a test may spoil."""
    return Path(shutil.copytree(LLAMA, tmp_path / "model"))


def edit_config(folder: Path, **values: object) -> Path:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))
    return folder


def test_generate(cli: Any) -> None:
    arguments = [
        "generate",
        "--model-dir",
        LLAMA,
        "--ids",
        "5 6 7",
        "--max-tokens",
        "6",
        "--ignore-eos",
        "--json",
    ]
    result = cli(*arguments)
    assert (result.code, result.err) == (0, "")
    data = json.loads(result.out)
    assert list(data) == ["text", "token_ids", "prompt_tokens", "finish_reason", "metrics"]
    assert (len(data["token_ids"]), data["prompt_tokens"], data["finish_reason"]) == (6, 3, "length")
    assert list(data["metrics"]) == ["load_s", "prefill_tok_s", "decode_tok_s", "peak_rss_bytes", "device"]
    assert data["metrics"]["device"].startswith("cpu (")
    again = json.loads(cli(*arguments).out)
    assert again["token_ids"] == data["token_ids"]


def test_exact_and_logprobs(cli: Any) -> None:
    arguments = ["generate", "--model-dir", LLAMA, "--prompt", "ab", "--max-tokens", "3", "--json"]
    data = json.loads(cli(*arguments, "--exact", "--top-logprobs", "2").out)
    for token_id, entry in zip(data["token_ids"], data["logprobs"], strict=True):
        assert entry["token_id"] == token_id
        assert entry["logprob"] == max(top["logprob"] for top in entry["top"]) <= 0
        assert len(entry["top"]) == 2


def test_the_template_makes_the_prompt_longer(cli: Any) -> None:
    arguments = ["generate", "--model-dir", LLAMA, "--prompt", "ab", "--max-tokens", "1", "--json"]
    raw = json.loads(cli(*arguments, "--raw").out)["prompt_tokens"]
    assert json.loads(cli(*arguments).out)["prompt_tokens"] > raw


def test_run(cli: Any) -> None:
    result = cli("run", LLAMA, "ab", "--max-tokens", "4", "--temperature", "0")
    assert (result.code, result.err) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "code", "names"),
    [
        (["--prompt", ""], 2, "empty"),
        (["--ids", "5 99999999"], 2, "99999999"),
        (["--prompt", "ab", "--temperature", "nan"], 2, "temperature"),
        (["--prompt", "ab", "--device", "metal"], 2, "metal"),
        (["--prompt", "ab", "--context", "99999999"], 2, "context"),
        (["--prompt", "ab cd ef gh", "--context", "2"], 2, "context holds 2"),
        (["--prompt", "ab", "--logit-bias", "99999999=1"], 2, "99999999"),
    ],
)
def test_bad_input_with_a_valid_model(cli: Any, arguments: list[str], code: int, names: str) -> None:
    if "metal" in arguments:
        from saragossa import _core

        assert not _core.metal_available()
    result = cli("generate", "--model-dir", LLAMA, *arguments)
    assert (result.code, result.out) == (code, "")
    assert names in one_line(result.err)


def test_no_model_folder(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.gguf").write_bytes(b"GGUF" + bytes(20))
    for name, names in (("empty", "empty"), ("x.gguf", "saragossa convert"), ("none/", "none")):
        result = cli("generate", "--model-dir", f"{tmp_path}/{name}", "--prompt", "ab")
        assert result.code == 1
        assert names in one_line(result.err)


def test_unsupported_architecture_says_which_are(cli: Any, copy: Path) -> None:
    edit_config(copy, model_type="mamba")
    result = cli("generate", "--model-dir", str(copy), "--prompt", "ab")
    assert result.code == 1
    assert "mamba" in one_line(result.err)
    assert "llama, mistral, qwen2, qwen3" in result.err


def test_broken_weights(cli: Any, copy: Path) -> None:
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    result = cli("generate", "--model-dir", str(copy), "--prompt", "ab")
    assert result.code == 1
    assert "truncated" in one_line(result.err)


def test_a_folder_where_a_gguf_file_is_wanted_and_the_other_way_round(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = cli("convert", str(tmp_path / "empty"), str(tmp_path / "out"))
    assert result.code == 1
    one_line(result.err)
    (tmp_path / "x.txt").write_text("no model")
    result = cli("convert", str(tmp_path / "x.txt"), str(tmp_path / "out"))
    assert result.code == 1
    assert "GGUF" in one_line(result.err)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "x.txt"]


def test_doctor(cli: Any) -> None:
    from saragossa import _core

    result = cli("doctor")
    assert (result.code, result.err) == (0, "")
    for isa in _core.instruction_sets():
        for activations in ("f32", "int15"):
            assert re.search(rf"self-check: +{isa}, {activations}: error \S+, ok", result.out)
    data = json.loads(cli("doctor", "--json").out)
    assert all(check["passed"] for check in data["self_check"])
    assert {"platform", "processor", "instruction sets", "memory", "model cache", "versions"} <= set(data)


def test_doctor_says_when_a_kernel_is_wrong(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from saragossa.cli import selfcheck

    original = selfcheck._logits

    def wrong(folder: Path, isa: str, activations: str) -> Any:
        logits = original(folder, isa, activations)
        if activations == "int15":
            logits[0, 0] = float("nan")
        return logits

    monkeypatch.setattr(selfcheck, "_logits", wrong)
    result = cli("doctor")
    assert result.code == 1
    assert "int15: error nan, FAILED" in result.out


def test_bench(cli: Any) -> None:
    data = json.loads(cli("bench", LLAMA, "--prefill", "16", "--depths", "8", "--tokens", "4", "--json").out)
    assert [(row["kind"], row["tokens"], row["depth"], row["runs"]) for row in data["rows"]] == [
        ("prefill", 16, 0, 3),
        ("decode", 4, 8, 3),
    ]


def heed_ctrl_c() -> None:
    """In a child: a shell's background jobs ignore SIGINT, and pass that on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def endless(folder: Path) -> list[str]:
    """A command that would generate for a long time."""
    edit_config(folder, max_position_embeddings=200_000)
    command = [sys.executable, "-m", "saragossa", "generate", "--model-dir", str(folder), "--ids", "5 6 7"]
    return [*command, "--ignore-eos", "--max-tokens", "190000"]


def test_ctrl_c_stops_within_a_token(copy: Path) -> None:
    with subprocess.Popen(
        endless(copy), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed_ctrl_c
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)  # it generates
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        process.stdout.read()
        assert process.wait(30) == 130
        assert time.monotonic() - start < 5
        assert process.stderr.read() == "saragossa: interrupted\n"


READY = "\x1b[?2004h"  # the line editor is there: before it, what is typed may be lost


class Screen:
    """A program in a terminal. Every wait looks at what came after the last one found."""

    def __init__(self, command: list[str], home: Path) -> None:
        self.text = ""
        environment = {**os.environ, "TERM": "xterm", "SARAGOSSA_STATE_DIR": str(home), "COLUMNS": "100"}
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            heed_ctrl_c()
            os.execvpe(command[0], command, environment)

    def read(self, end: float) -> str:
        """What comes next; empty where the program is gone. Kills a program that says nothing until `end`."""
        ready, _, _ = select.select([self.fd], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            os.kill(self.pid, signal.SIGKILL)
            raise AssertionError(f"nothing more came after {self.text!r}")
        try:
            piece = os.read(self.fd, 4096).decode(errors="replace")
        except OSError:  # Linux says EIO where the other end is closed
            return ""
        for _ in range(piece.count("\x1b[6n")):  # where is the cursor?
            self.type("\x1b[1;1R")
        return piece

    def wait_for(self, text: str) -> None:
        end = time.monotonic() + 60
        while text not in self.text:
            piece = self.read(end)
            assert piece, f"it ended without {text!r}: {self.text!r}"
            self.text += piece
        self.text = self.text.partition(text)[2]

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def exit_code(self) -> int:
        end = time.monotonic() + 60
        while self.read(end):
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_chat_in_a_terminal(copy: Path, tmp_path: Path) -> None:
    edit_config(copy, max_position_embeddings=200_000)
    command = [sys.executable, "-m", "saragossa", "run", str(copy), "--ignore-eos", "--max-tokens", "5"]
    screen = Screen(command, tmp_path / "state")
    screen.wait_for("/help lists the commands")
    for typed, expected in (
        ("ab\r", " tok/s"),
        ("\x03", "(Ctrl-D leaves)"),
        ("/set max_tokens 190000\r", "frequency_penalty"),
    ):
        screen.wait_for(READY)
        screen.type(typed)
        screen.wait_for(expected)
    screen.wait_for(READY)
    screen.type("ab\r")
    screen.wait_for("\x1b[?2004l")  # the line editor is gone
    time.sleep(0.5)  # it answers, and would for minutes
    screen.type("\x03")
    screen.wait_for(", stopped]")
    screen.wait_for(READY)
    screen.type("/stats\r")
    screen.wait_for("loaded in")
    screen.wait_for(READY)
    screen.type("\x04")
    assert screen.exit_code() == 0
    assert "+ab" in (tmp_path / "state" / "history").read_text()
