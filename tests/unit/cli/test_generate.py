"""generate: prompts, options, output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from saragossa.engine.options import GenerationOptions

from .test_main import one_line

GENERATE = ("generate", "--model-dir", "m")


def test_text(cli: Any, model: Any) -> None:
    result = cli(*GENERATE, "--prompt", "Hi")
    assert (result.code, result.out, result.err) == (0, "Hello.\n", "")
    assert model.detokenize(model.asked[0]) == "user:Hi;"
    assert model.closed == 1


def test_only_what_the_options_say(cli: Any, model: Any) -> None:
    cli(*GENERATE, "--prompt", "Hi")
    assert model.options == [GenerationOptions(max_tokens=256)]
    assert model.options[0].temperature == 0


def test_all_options_arrive(cli: Any, model: Any) -> None:
    options = "--max-tokens 2 --temperature 0.5 --top-k 3 --top-p 0.9 --min-p 0.1 --repetition-penalty 1.1 "
    options += "--presence-penalty 0.2 --frequency-penalty -0.3 --seed 7 --stop a --stop b --ignore-eos "
    options += "--logit-bias 5=-2 --logit-bias 6=1.5 --top-logprobs 1 --json"
    result = cli(*GENERATE, "--prompt", "Hi", *options.split())
    assert result.code == 0
    assert model.options == [
        GenerationOptions(
            max_tokens=2,
            temperature=0.5,
            top_k=3,
            top_p=0.9,
            min_p=0.1,
            repetition_penalty=1.1,
            presence_penalty=0.2,
            frequency_penalty=-0.3,
            logit_bias={5: -2.0, 6: 1.5},
            seed=7,
            stop=["a", "b"],
            top_logprobs=1,
            ignore_eos=True,
        )
    ]


def test_json_is_exactly_this_object(cli: Any, model: Any) -> None:
    result = cli(*GENERATE, "--prompt", "Hi", "--json")
    assert json.loads(result.out) == {
        "text": "Hello.",
        "token_ids": [65, 66, 67],
        "prompt_tokens": 8,
        "finish_reason": "stop",
        "metrics": {
            "load_s": 0.25,
            "prefill_tok_s": 100.0,
            "decode_tok_s": 50.0,
            "peak_rss_bytes": 123_000_000,
            "device": "cpu (scripted)",
        },
    }
    assert result.out.count("\n") == 1
    assert result.err == ""


def test_logprobs(cli: Any, model: Any) -> None:
    data = json.loads(cli(*GENERATE, "--prompt", "Hi", "--json", "--top-logprobs", "2").out)
    assert len(data["logprobs"]) == 3
    assert data["logprobs"][0] == {
        "token_id": 65,
        "token": "A",
        "logprob": -0.5,
        "top": [
            {"token_id": 65, "token": "A", "logprob": -0.5},
            {"token_id": 90, "token": "Z", "logprob": -2.0},
        ],
    }
    result = cli(*GENERATE, "--prompt", "Hi", "--top-logprobs", "2")
    assert result.code == 2
    assert "--json" in one_line(result.err)


def test_metrics_go_to_stderr(cli: Any, model: Any) -> None:
    result = cli(*GENERATE, "--prompt", "Hi", "--metrics")
    assert result.out == "Hello.\n"
    assert "decode:      50.0 tok/s" in result.err
    assert "8 tokens" in result.err


def test_form_without_a_subcommand(cli: Any, model: Any) -> None:
    assert cli("--model-dir", "m", "--backend", "cpu", "--prompt", "Hi").out == "Hello.\n"


def test_prompt_sources(cli: Any, model: Any, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("naïve\n")
    cli(*GENERATE, "--raw", "--prompt", "Hi")
    cli(*GENERATE, "--raw", "--prompt-file", str(file))
    cli(*GENERATE, "--raw", stdin=b"piped")
    cli(*GENERATE, "--raw", "--prompt-file", "-", stdin=b"piped")
    cli(*GENERATE, "--ids", " 72 105\n1 ")
    asked = [model.detokenize(ids) for ids in model.asked]
    assert asked == ["Hi", "naïve\n", "piped", "piped", "Hi\x01"]


def test_template_options(cli: Any, model: Any) -> None:
    cli(*GENERATE, "--prompt", "Hi", "--system", "Be brief.", "--no-thinking")
    assert model.detokenize(model.asked[0]) == "system:Be brief.;user:Hi;"
    assert model.thinking == [False]


@pytest.mark.parametrize(
    ("arguments", "stdin", "names"),
    [
        (["--prompt", ""], b"", "empty"),
        ([], b"", "empty"),
        (["--ids", ""], b"", "--ids"),
        (["--ids", "1 x"], b"", "'x'"),
        (["--ids", "1 -2"], b"", "'-2'"),
        (["--ids", "1 99999999999"], b"", "'99999999999'"),
        ([], b"\xff\xfe", "standard input: byte 0 is not UTF-8"),
        (["--prompt", "x", "--raw", "--system", "s"], b"", "--system"),
        (["--prompt", "x", "--temperature", "nan"], b"", "temperature"),
        (["--prompt", "x", "--temperature", "inf"], b"", "temperature"),
        (["--prompt", "x", "--temperature", "-0.1"], b"", "temperature"),
        (["--prompt", "x", "--top-p", "0"], b"", "top_p"),
        (["--prompt", "x", "--top-k", "-1"], b"", "top_k"),
        (["--prompt", "x", "--min-p", "1.5"], b"", "min_p"),
        (["--prompt", "x", "--presence-penalty", "9"], b"", "presence_penalty"),
        (["--prompt", "x", "--max-tokens", "0"], b"", "max_tokens"),
        (["--prompt", "x", "--max-tokens", "-1"], b"", "max_tokens"),
        (["--prompt", "x", "--logit-bias", "1=nan"], b"", "logit_bias"),
        (["--prompt", "x", "--threads", "-1"], b"", "threads"),
    ],
)
def test_bad_input_is_refused_before_the_model_is_loaded(
    cli: Any, monkeypatch: pytest.MonkeyPatch, arguments: list[str], stdin: bytes, names: str
) -> None:
    from saragossa.cli import loading

    def open_model(_: object) -> None:
        raise AssertionError("loaded")

    monkeypatch.setattr(loading, "open_model", open_model)
    result = cli(*GENERATE, *arguments, stdin=stdin)
    assert result.code == 2
    assert result.out == ""
    assert names in one_line(result.err)


def test_unreadable_prompt_file(cli: Any, model: Any, tmp_path: Path) -> None:
    result = cli(*GENERATE, "--prompt-file", str(tmp_path / "none"))
    assert result.code == 1
    assert "none: No such file" in one_line(result.err)
    result = cli(*GENERATE, "--prompt-file", str(tmp_path))
    assert result.code == 1
    one_line(result.err)


def test_huge_prompt_file_is_bounded(
    cli: Any, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from saragossa.cli import prompts

    monkeypatch.setattr(prompts, "MAX_PROMPT_BYTES", 1 << 20)
    file = tmp_path / "big"
    file.write_bytes(b"a" * (1 << 20))
    assert "context" in one_line(cli(*GENERATE, "--prompt-file", str(file)).err)
    file.write_bytes(b"a" * ((1 << 20) + 1))
    assert "more than 1 MiB" in one_line(cli(*GENERATE, "--prompt-file", str(file)).err)


def test_prompt_longer_than_the_context(cli: Any, model: Any) -> None:
    model.context = 5
    result = cli(*GENERATE, "--prompt", "much too long")
    assert result.code == 2
    assert "19 tokens, the context holds 5" in one_line(result.err)


@pytest.mark.parametrize(("terminal", "expected"), [(True, "a[2Jb\n"), (False, "a\x1b[2Jb\n")])
def test_a_model_does_not_steer_the_terminal(
    cli: Any, model: Any, monkeypatch: pytest.MonkeyPatch, terminal: bool, expected: str
) -> None:
    model.script = ["a\x1b", "[2J", "b"]
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    assert cli(*GENERATE, "--prompt", "Hi").out == expected
    shown = cli(*GENERATE, "--prompt", "Hi", "--json").out
    assert json.loads(shown)["text"] == "a\x1b[2Jb"


def test_the_line_is_ended_even_after_a_newline(cli: Any, model: Any) -> None:
    model.script = ["a", "\n"]
    assert cli(*GENERATE, "--prompt", "Hi").out == "a\n\n"


def test_ctrl_c_while_generating(cli: Any, model: Any) -> None:
    model.script = ["Hel", KeyboardInterrupt()]
    result = cli(*GENERATE, "--prompt", "Hi")
    assert result.code == 130
    assert result.out == "Hel"
    assert model.closed == 1
