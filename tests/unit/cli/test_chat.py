"""run: one answer, the chat, its slash commands, the cache kept between turns."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from saragossa.cli.chat import chat
from saragossa.cli.conversation import Conversation
from saragossa.cli.line_editor import MAX_ENTRIES, BoundedHistory, fenced, open_history, unfenced
from saragossa.cli.slash import COMMANDS, run_command
from saragossa.cli.terminal import ModelOutput
from saragossa.errors import ParameterError, UsageError

from .test_main import one_line


class Lines:
    """A reader that gives lines and then Ctrl-D; an exception is raised."""

    def __init__(self, *lines: str | BaseException) -> None:
        self._lines: Iterator[str | BaseException] = iter(lines)

    def read(self) -> str:
        line = next(self._lines, EOFError())
        if isinstance(line, BaseException):
            raise line
        return line


@pytest.fixture
def dialogue(model: Any) -> Conversation:
    return Conversation(model)


def ask(conversation: Conversation, question: str) -> str:
    return "".join(conversation.answer(question))


# --- one answer -------------------------------------------------------------------------------------


def test_one_answer(cli: Any, model: Any) -> None:
    result = cli("run", "m", "Hi")
    assert (result.code, result.out, result.err) == (0, "Hello.\n", "")
    assert model.detokenize(model.asked[0]) == "user:Hi;"


def test_run_takes_the_models_defaults_where_nothing_is_said(cli: Any, model: Any) -> None:
    cli("run", "m", "Hi")
    cli("run", "m", "Hi", "--temperature", "0")
    defaults, greedy = model.options
    assert (defaults.temperature, defaults.top_k, defaults.max_tokens) == (0.7, 20, None)
    assert (greedy.temperature, greedy.top_k) == (0, 20)


def test_piped_question(cli: Any, model: Any) -> None:
    result = cli("run", "m", "--system", "Be brief.", stdin=b"from a pipe\n")
    assert result.out == "Hello.\n"
    assert model.detokenize(model.asked[0]) == "system:Be brief.;user:from a pipe;"


@pytest.mark.parametrize(
    ("arguments", "stdin", "names"),
    [
        (["", "--temperature", "0"], b"", "empty"),
        ([], b"\n", "empty"),
        (["x", "--temperature", "nan"], b"", "temperature"),
        (["x", "--threads", "-1"], b"", "threads"),
    ],
)
def test_bad_input(cli: Any, model: Any, arguments: list[str], stdin: bytes, names: str) -> None:
    result = cli("run", "m", *arguments, stdin=stdin)
    assert result.code == 2
    assert names in one_line(result.err)
    assert model.asked == []


# --- the conversation -------------------------------------------------------------------------------


def test_turns_build_on_each_other_and_reuse_the_cache(dialogue: Conversation, model: Any) -> None:
    assert ask(dialogue, "a") == "Hello."
    assert ask(dialogue, "b") == "Hello."
    assert model.detokenize(model.asked[1]) == "user:a;assistant:Hello.;user:b;"
    assert dialogue.last is not None
    # "user:a;" stays; what was drawn (ABC) differs from how the template writes the answer.
    assert (dialogue.last.reused, dialogue.last.prompt_tokens) == (len("user:a;"), len(model.asked[1]))
    assert (dialogue.last.tokens, dialogue.last.finish_reason) == (3, "stop")


def test_the_same_question_again_leaves_one_token_to_run(dialogue: Conversation, model: Any) -> None:
    ask(dialogue, "a")
    dialogue.clear()
    ask(dialogue, "a")
    assert dialogue.last is not None
    assert dialogue.last.reused == len("user:a;") - 1
    assert model.asked[0] == model.asked[1]


def test_a_changed_system_message_is_not_reused(dialogue: Conversation, model: Any) -> None:
    dialogue.system = "x"
    ask(dialogue, "a")
    dialogue.system = "y"
    ask(dialogue, "b")
    assert model.detokenize(model.asked[1]).startswith("system:y;user:a;")


def test_an_interrupted_answer_is_kept(dialogue: Conversation, model: Any) -> None:
    model.script = ["Hel", KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        ask(dialogue, "a")
    assert dialogue.messages == [{"role": "user", "content": "a"}, {"role": "assistant", "content": "Hel"}]
    assert dialogue.last is not None
    assert dialogue.last.finish_reason == "interrupted"


def test_an_answer_interrupted_before_its_first_token_is_forgotten(
    dialogue: Conversation, model: Any
) -> None:
    model.script = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        ask(dialogue, "a")
    assert dialogue.messages == []


def test_a_failed_question_is_forgotten(dialogue: Conversation, model: Any) -> None:
    model.script = ["Hel", RuntimeError("device")]
    with pytest.raises(RuntimeError):
        ask(dialogue, "a")
    assert dialogue.messages == []
    model.context = 3
    with pytest.raises(UsageError, match="context"):
        ask(dialogue, "a")
    assert dialogue.messages == []


# --- the loop ---------------------------------------------------------------------------------------


def test_chat(dialogue: Conversation, capsys: pytest.CaptureFixture[str]) -> None:
    chat(dialogue, "demo", Lines("Hi", "   ", "//etc"))
    out = capsys.readouterr().out
    assert out.startswith("demo on cpu (scripted).")
    assert out.count("Hello.\n[3 tokens, ") == 2
    assert [m["content"] for m in dialogue.messages] == ["Hi", "Hello.", "/etc", "Hello."]


def test_ctrl_c_stops_the_answer_and_not_the_program(
    dialogue: Conversation, model: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    model.script = ["Hel", KeyboardInterrupt()]
    chat(dialogue, "demo", Lines("Hi", KeyboardInterrupt(), "again"))
    out = capsys.readouterr().out
    assert out.count("Hel\n[1 tokens, ") == 2
    assert out.count(", stopped]") == 2
    assert "(Ctrl-D leaves)" in out


def test_errors_do_not_end_the_chat(
    dialogue: Conversation, model: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    model.context = 20
    chat(dialogue, "demo", Lines("much too long for it", "/nothing", "/set temperature nan", "Hi"))
    captured = capsys.readouterr()
    errors = captured.err.splitlines()
    assert len(errors) == 3
    assert "the context holds 20" in errors[0]
    assert "/nothing" in errors[1]
    assert "temperature" in errors[2]
    assert "Hello." in captured.out


def test_exit(dialogue: Conversation, model: Any) -> None:
    chat(dialogue, "demo", Lines("/exit", "not asked"))
    assert model.asked == []


# --- slash commands ---------------------------------------------------------------------------------


def test_help_lists_every_command(dialogue: Conversation, capsys: pytest.CaptureFixture[str]) -> None:
    run_command(dialogue, "/help")
    out = capsys.readouterr().out
    assert set(COMMANDS) == {
        "help",
        "clear",
        "system",
        "set",
        "think",
        "retry",
        "stats",
        "save",
        "load",
        "exit",
    }
    for name, function in COMMANDS.items():
        assert f"/{name}" in out
        assert function.__doc__
        assert function.__doc__ in out


def test_set(dialogue: Conversation, model: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run_command(dialogue, "/set temperature 0.25")
    run_command(dialogue, "/set max-tokens 2")
    ask(dialogue, "a")
    assert (model.options[0].temperature, model.options[0].max_tokens) == (0.25, 2)
    run_command(dialogue, "/set temperature default")
    assert dialogue.options.temperature == 0.7
    capsys.readouterr()
    run_command(dialogue, "/set")
    assert "max_tokens           2" in capsys.readouterr().out
    for line in ("/set temperature nan", "/set temperature warm", "/set temperature", "/set colour 1"):
        with pytest.raises(ParameterError):
            run_command(dialogue, line)
    assert dialogue.overrides == {"max_tokens": 2}


def test_system_think_clear_retry(dialogue: Conversation, model: Any) -> None:
    run_command(dialogue, "/system Be  brief.")
    assert dialogue.system == "Be  brief."
    run_command(dialogue, "/think off")
    ask(dialogue, "a")
    assert model.thinking == [False]
    assert run_command(dialogue, "/retry") == "a"
    assert dialogue.messages == []
    with pytest.raises(UsageError):
        run_command(dialogue, "/retry")
    ask(dialogue, "a")
    run_command(dialogue, "/clear")
    run_command(dialogue, "/system -")
    assert (dialogue.messages, dialogue.system) == ([], None)
    with pytest.raises(UsageError, match="on, off or default"):
        run_command(dialogue, "/think maybe")


def test_stats(dialogue: Conversation, capsys: pytest.CaptureFixture[str]) -> None:
    run_command(dialogue, "/stats")
    assert "answer:" not in capsys.readouterr().out
    ask(dialogue, "a")
    run_command(dialogue, "/stats")
    out = capsys.readouterr().out
    assert "3 tokens" in out
    assert "context: 10 of 1000 tokens" in out
    assert "cpu (scripted)" in out


def test_save_and_load(dialogue: Conversation, model: Any, tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    dialogue.system = "s"
    ask(dialogue, "naïve?")
    run_command(dialogue, f"/save {file}")
    assert json.loads(file.read_text())["messages"][0]["content"] == "naïve?"
    with pytest.raises(UsageError, match="File exists"):
        run_command(dialogue, f"/save {file}")
    with pytest.raises(UsageError, match="No such file"):
        run_command(dialogue, f"/save {tmp_path}/none/talk.json")
    other = Conversation(model)
    run_command(other, f"/load {file}")
    assert (other.messages, other.system) == (dialogue.messages, "s")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"messages": [], "system": 3}',
        '{"messages": [{"role": "user", "content": "x"}], "system": null}',
        '{"system": "", "messages": [{"role": "user", "content": 1}, {"role": "assistant", "content": ""}]}',
        "[" * 100_000,
    ],
)
def test_load_refuses_other_files(dialogue: Conversation, tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"x\.json"):
        run_command(dialogue, f"/load {file}")
    assert dialogue.messages == []


@pytest.mark.parametrize("command", ["/save", "/load"])
def test_a_file_must_be_named(dialogue: Conversation, command: str) -> None:
    with pytest.raises(UsageError, match=f"{command} needs a file name"):
        run_command(dialogue, command)


# --- the terminal -----------------------------------------------------------------------------------


class Terminal:
    """A stream that says it is a terminal."""

    def __init__(self, terminal: bool) -> None:
        self.text = ""
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


def test_a_model_does_not_steer_the_terminal() -> None:
    for terminal, expected in ((True, "a[2Jb\tc"), (False, "a\x1b[2J\x9bb\tc")):
        stream = Terminal(terminal)
        output = ModelOutput(stream)  # type: ignore[arg-type]
        output.write("a\x1b[2J\x9bb\tc")
        output.end_line()
        output.end_line()
        assert stream.text == expected + "\n"


def test_history_is_bounded_and_private(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history"
    history = BoundedHistory(path)
    for i in range(MAX_ENTRIES + 50):
        history.store_string(f"line {i}\nsecond")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = list(BoundedHistory(path).load_history_strings())
    assert len(again) == MAX_ENTRIES
    assert again[0] == f"line {MAX_ENTRIES + 49}\nsecond"
    assert again[-1] == "line 50\nsecond"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["history"]


def test_history_is_bounded_in_bytes(tmp_path: Path) -> None:
    path = tmp_path / "history"
    history = BoundedHistory(path)
    for _ in range(20):
        history.store_string("x" * 100_000)
    assert len(list(BoundedHistory(path).load_history_strings())) == 10


def test_a_history_that_grew_large_is_trimmed(tmp_path: Path) -> None:
    path = tmp_path / "history"
    history = BoundedHistory(path)
    history.store_string("old")
    with path.open("a") as file:
        file.write("\n# then\n+" + "x" * (9 << 20) + "\n")
    history.store_string("new\n# not a date")
    history.store_string("newest")
    again = BoundedHistory(path)
    assert list(again.load_history_strings()) == ["newest", "new\n# not a date"]
    assert path.stat().st_size < 1000
    assert [file.name for file in path.parent.iterdir()] == ["history"]


def test_a_history_that_cannot_be_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    history = open_history(tmp_path / "file" / "history")
    history.append_string("kept for now")
    assert history.get_strings() == ["kept for now"]
    err = capsys.readouterr().err
    assert err.startswith("saragossa: warning: what you type is not kept: ")
    assert "SARAGOSSA_STATE_DIR" in err
    assert isinstance(open_history(tmp_path / "state" / "history"), BoundedHistory)


def test_a_history_of_one_huge_entry(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text("\n# then\n+" + "x" * (9 << 20) + "\n")
    assert list(BoundedHistory(path).load_history_strings()) == []
    assert path.stat().st_size == 0


@pytest.mark.parametrize(
    ("text", "open_block"),
    [
        ('"""', True),
        ('"""a\nb', True),
        ('""""', True),
        ('"""a\nb"""', False),
        ("a", False),
        ('say """', False),
    ],
)
def test_blocks_of_lines(text: str, open_block: bool) -> None:
    assert fenced(text) == open_block


def test_a_block_loses_its_quotes() -> None:
    assert unfenced('"""a\nb"""') == "a\nb"
    assert unfenced('"""\na\n"""') == "a"
    assert unfenced("a") == "a"
