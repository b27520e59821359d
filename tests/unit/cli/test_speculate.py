"""--speculate, --draft-model, --draft-tokens: what is printed is what is printed without them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[2] / "golden"
QWEN = GOLDEN / "families" / "qwen3_5"
IDS = " ".join(str(4 + (7 * i * i + 13 * i + 5) % 250) for i in range(20))


def saragossa(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "saragossa", *arguments], capture_output=True, text=True, timeout=120
    )


def test_generate_prints_the_same() -> None:
    base = ("generate", "--model-dir", str(QWEN), "--device", "cpu", "--ids", IDS, "--ignore-eos", "--json")
    texts = []
    for more in ((), ("--speculate", "mtp"), ("--draft-model", str(QWEN), "--draft-tokens", "3")):
        result = saragossa(*base, "--max-tokens", "30", "--temperature", "0.8", "--seed", "5", *more)
        assert result.returncode == 0, result.stderr
        texts.append(json.loads(result.stdout)["token_ids"])
    assert texts[0] == texts[1] == texts[2]


def test_bench_shows_both_speeds(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("ab ab ab ab ab ab ab ab")
    base = ("bench", str(QWEN), "--device", "cpu", "--speculate", "lookup", "--tokens", "40", "--repeat", "2")
    result = saragossa(*base, "--prompt-file", str(tmp_path / "text"))
    assert result.returncode == 0, result.stderr
    for row in ("plain:", "lookup:", "drafts accepted:", "tokens per verification:", "40 in each of 2 runs"):
        assert row in result.stdout
    values = json.loads(saragossa(*base, "--json").stdout)
    assert values["method"] == "lookup"
    assert values["plain_tok_s"] > 0 < values["tok_s"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--speculate", "medusa"), "invalid choice: 'medusa'"),
        (("--speculate", "draft"), "no draft model is named"),
        (("--draft-model", "x", "--speculate", "mtp"), "a draft model is named, but speculate is 'mtp'"),
        (("--draft-tokens", "9"), "draft_tokens: found 9, accepted is a whole number 1 to 7"),
    ],
)
def test_what_is_refused_before_a_model_is_looked_for(more: tuple[str, ...], message: str) -> None:
    result = saragossa("generate", "--model-dir", "/nowhere", "--prompt", "a", *more)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
