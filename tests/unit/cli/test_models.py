"""pull, list, rm against a cache in a temporary folder; bench's output; convert's options."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from .test_main import one_line

CHECKPOINTS = Path(__file__).parents[2] / "golden" / "checkpoints"
COMMIT = "a" * 40


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Hub cache that holds the tiny llama as org/tiny, and is offline."""
    from huggingface_hub import constants

    cache = tmp_path / "hub"
    storage = cache / "models--org--tiny"
    snapshot = storage / "snapshots" / COMMIT
    (storage / "blobs").mkdir(parents=True)
    (storage / "refs").mkdir()
    (storage / "refs" / "main").write_text(COMMIT)
    snapshot.mkdir(parents=True)
    for file in (CHECKPOINTS / "llama").iterdir():
        blob = storage / "blobs" / file.name
        shutil.copyfile(file, blob)
        (snapshot / file.name).symlink_to(blob)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return cache


def test_list(cli: Any, hub_cache: Path) -> None:
    out = cli("list").out.splitlines()
    assert out[0].split() == ["model", "architecture", "quantisation", "parameters", "size", "supported"]
    assert out[1].split()[:2] == ["org/tiny", "llama"]
    assert out[1].endswith("yes")
    data = json.loads(cli("list", "--json").out)
    assert [(row["model"], row["revision"], row["supported"]) for row in data] == [("org/tiny", COMMIT, True)]
    count = data[0]["parameters"]
    assert data[0]["active_parameters"] == count
    assert f"{count / 1e6:.1f}M" in out[1]


def test_list_says_why_a_model_does_not_load(cli: Any, hub_cache: Path) -> None:
    config = hub_cache / "models--org--tiny" / "blobs" / "config.json"
    config.write_text(json.dumps({"model_type": "mamba"}))
    row = cli("list").out.splitlines()[1]
    assert "no: " in row
    assert "mamba" in row


def test_list_of_an_empty_cache(cli: Any, hub_cache: Path) -> None:
    shutil.rmtree(hub_cache)
    assert "saragossa pull" in cli("list").out
    assert json.loads(cli("list", "--json").out) == []


def test_rm(cli: Any, hub_cache: Path) -> None:
    result = cli("rm", "org/tiny")
    assert result.code == 0
    assert result.out.startswith("org/tiny: ")
    assert result.out.endswith("freed\n")
    assert not (hub_cache / "models--org--tiny").exists()
    result = cli("rm", "org/tiny")
    assert result.code == 1
    assert "org/tiny" in one_line(result.err)


def test_rm_demo(cli: Any, hub_cache: Path) -> None:
    assert "demo" in one_line(cli("rm", "demo").err)
    from saragossa.weights.demo import demo_folder

    shutil.copytree(CHECKPOINTS / "llama", demo_folder())
    assert cli("list").out.splitlines()[1].split()[0] == "demo"
    assert cli("rm", "demo").code == 0
    assert not demo_folder().exists()


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["pull", "org/other"], "HF_HUB_OFFLINE"),
        (["pull", "org/tiny@"], "revision"),
        (["pull", "not a repository"], "not a repository"),
        (["run", "org/other", "hi"], "HF_HUB_OFFLINE"),
    ],
)
def test_offline_and_bad_names(cli: Any, hub_cache: Path, arguments: list[str], names: str) -> None:
    result = cli(*arguments)
    assert result.code == 1
    assert names in one_line(result.err)


# --- bench ------------------------------------------------------------------------------------------

BENCH = ("bench", "m", "--prefill", "8,16", "--depths", "0,4", "--tokens", "3", "--repeat", "2")


def test_bench_table(cli: Any, model: Any) -> None:
    lines = cli(*BENCH).out.splitlines()
    assert lines[0] == "m on cpu (scripted)"
    assert lines[1].split() == ["tokens", "depth", "tok/s", "min", "max"]
    assert [line.split()[:3] for line in lines[2:6]] == [
        ["prefill", "8", "0"],
        ["prefill", "16", "0"],
        ["decode", "3", "0"],
        ["decode", "3", "4"],
    ]
    assert lines[6].startswith("load 0.250 s, peak memory ")
    assert len(lines) == 7
    assert model.closed == 2


def test_bench_leaves_out_what_does_not_fit_where_nothing_was_asked(cli: Any, model: Any) -> None:
    lines = cli("bench", "m", "--tokens", "3", "--repeat", "1").out.splitlines()
    assert [line.split()[:3] for line in lines[2:6]] == [
        ["prefill", "128", "0"],
        ["prefill", "512", "0"],
        ["decode", "3", "0"],
        ["decode", "3", "512"],
    ]
    assert lines[7:] == [
        "skipped prefill 2048: the context has 1000 tokens",
        "skipped decode at 2048: the context has 1000 tokens",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--prefill", "8,99999999"), "--prefill: found 99999999, accepted is 1 to 1000, the context"),
        (("--depths", "0,997", "--tokens", "3"), "--depths: found 997 with 3 tokens to decode"),
        (("--tokens", "1000"), "--tokens: found 1000, accepted is 1 to 999, the context"),
    ],
)
def test_bench_refuses_what_does_not_fit(
    cli: Any, model: Any, options: tuple[str, ...], message: str
) -> None:
    result = cli("bench", "m", *options)
    assert (result.code, result.out) == (2, "")
    assert one_line(result.err).startswith(message)
    assert "--context" in result.err
    assert model.asked == []


def test_bench_json_and_csv(cli: Any, model: Any) -> None:
    data = json.loads(cli(*BENCH, "--json").out)
    assert [row["kind"] for row in data["rows"]] == ["prefill", "prefill", "decode", "decode"]
    assert all(row["tok_s_min"] <= row["tok_s"] <= row["tok_s_max"] for row in data["rows"])
    assert data["peak_rss_bytes"] > 1_000_000
    assert data["machine"]["processor"]
    text = cli(*BENCH, "--csv").out
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert any(line.startswith("# processor: ") for line in comments)
    rows = list(csv.DictReader(io.StringIO("\n".join(x for x in text.splitlines() if x not in comments))))
    assert [row["kind"] for row in rows] == ["prefill", "prefill", "decode", "decode"]
    assert float(rows[0]["tok_s"]) > 0


def test_bench_counts_tokens(model: Any) -> None:
    """What is timed: the prompt of each length, and `tokens` steps after each depth."""
    from saragossa.engine import bench

    sessions: list[Any] = []
    original = model.session

    def session() -> Any:
        sessions.append(original())
        return sessions[-1]

    model.session = session
    report = bench.measure(model, prefill=[8], depths=[5], tokens=3, repeat=2)
    # The warm-up, two prefills of 8, and one session for decode: 5, the first token, its draw, 3 steps.
    assert [s.length for s in sessions[1:]] == [8, 8, 5 + 1 + 1 + 3]
    assert [(row.runs, row.tokens, row.depth) for row in report.rows] == [(2, 8, 0), (2, 3, 5)]


def test_plot_needs_its_extra(cli: Any, model: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = cli(*BENCH, "--plot", str(tmp_path / "x.png"))
    assert result.code == 1
    assert "saragossa[devtools]" in one_line(result.err)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert "x.txt" in one_line(cli(*BENCH, "--plot", str(tmp_path / "x.txt")).err)
    assert "none" in one_line(cli(*BENCH, "--plot", str(tmp_path / "none" / "x.png")).err)
    assert model.closed == 0


# --- convert ----------------------------------------------------------------------------------------


def test_convert_demo(cli: Any, tmp_path: Path) -> None:
    result = cli("convert", "demo", str(tmp_path / "out"))
    assert result.code == 1
    assert "demo is converted already when it is fetched" in one_line(result.err)
    assert not (tmp_path / "out").exists()


def test_convert(cli: Any, tmp_path: Path) -> None:
    result = cli(
        "convert", str(CHECKPOINTS / "llama"), str(tmp_path / "u4"), "--bits", "4", "--group-size", "32"
    )
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"{tmp_path / 'u4'}: llama, ")
    config = json.loads((tmp_path / "u4" / "config.json").read_text())
    assert config["quantization"]["bits"] == 4
    result = cli("convert", str(CHECKPOINTS / "llama"), str(tmp_path / "mx"), "--mode", "mxfp8")
    assert (result.code, result.err) == (0, "")
    config = json.loads((tmp_path / "mx" / "config.json").read_text())
    assert config["quantization"] == {"group_size": 32, "bits": 8, "mode": "mxfp8"}
    again = cli("convert", str(CHECKPOINTS / "llama"), str(tmp_path / "u4"), "--bits", "4")
    assert again.code == 1
    assert "exists" in one_line(again.err)


def test_convert_options_of_single_modules_and_of_the_prediction(cli: Any, tmp_path: Path) -> None:
    source, out = str(CHECKPOINTS.parent / "families" / "qwen3_5"), tmp_path / "out"
    options = ["--bits", "4", "--group-size", "32", "--override", "layers.*=6", "--override", "lm_head=8"]
    result = cli("convert", source, str(out), *options, "--no-mtp")
    assert result.code == 0
    assert "not quantised, as the group size does not divide their rows: " in result.out
    block = json.loads((out / "config.json").read_text())["quantization"]
    assert block["language_model.lm_head"] == {"group_size": 32, "bits": 8}
    assert block["language_model.model.layers.0.mlp.up_proj"]["bits"] == 6
    assert b"mtp." not in (out / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("source", "options", "code", "names"),
    [
        ("llama", ["--group-size", "32"], 2, "--bits"),
        ("llama", ["--override", "lm_head=8"], 2, "--bits"),
        ("llama", ["--bits", "4", "--override", "lm_hat=8"], 2, "lm_hat=8"),
        ("llama", ["--mode", "affine"], 2, "--bits"),
        ("llama", ["--mode", "mxfp4", "--bits", "8"], 2, "mxfp4"),
        ("none", [], 1, "none"),
        ("llama/config.json", [], 1, "config.json"),
    ],
)
def test_convert_bad_input(
    cli: Any, tmp_path: Path, source: str, options: list[str], code: int, names: str
) -> None:
    result = cli("convert", str(CHECKPOINTS / source), str(tmp_path / "out"), *options)
    assert result.code == code
    assert names in one_line(result.err)
    assert list(tmp_path.iterdir()) == []
