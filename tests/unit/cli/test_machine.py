"""Memory and its limits, tables, what fits."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import families
from saragossa.cli import machine
from saragossa.cli.fits import WORKING_BYTES, fit
from saragossa.cli.tables import size, table
from saragossa.errors import ModelError, ParameterError
from tiny_checkpoints import write_model

GIB = 1 << 30
CHECKPOINTS = Path(__file__).parents[2] / "golden" / "checkpoints"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = {"proc/meminfo": "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    8388608 kB\n"}


def test_memory_without_a_limit(tmp_path: Path) -> None:
    root = write(tmp_path, {**MEMINFO, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"})
    assert machine.cgroup_memory(root) is None
    assert machine.total_memory(root) == 16 * GIB
    assert machine.available_memory(root) == 8 * GIB


def test_the_tightest_cgroup_counts_and_its_page_cache_does_not(tmp_path: Path) -> None:
    files = {
        **MEMINFO,
        "proc/self/cgroup": "0::/a/b\n",
        "sys/fs/cgroup/a/memory.max": str(4 * GIB),
        "sys/fs/cgroup/a/memory.current": str(3 * GIB),
        "sys/fs/cgroup/a/memory.stat": f"anon 5\ninactive_file {GIB}\n",
        "sys/fs/cgroup/a/b/memory.max": str(6 * GIB),
        "sys/fs/cgroup/a/b/memory.current": str(GIB),
    }
    root = write(tmp_path, files)
    assert machine.cgroup_memory(root) == (4 * GIB, 2 * GIB)
    assert machine.total_memory(root) == 4 * GIB
    assert machine.available_memory(root) == 2 * GIB


def test_cgroup_version_1(tmp_path: Path) -> None:
    files = {
        **MEMINFO,
        "proc/self/cgroup": "5:cpu:/x\n3:memory:/box\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "5",
        "sys/fs/cgroup/memory/box/memory.limit_in_bytes": str(2 * GIB),
        "sys/fs/cgroup/memory/box/memory.usage_in_bytes": str(3 * GIB),
    }
    root = write(tmp_path, files)
    assert machine.total_memory(root) == 2 * GIB
    assert machine.available_memory(root) == 0


def test_processor(tmp_path: Path) -> None:
    root = write(tmp_path, {"proc/cpuinfo": "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\n"})
    assert machine.processor(root) == "A CPU @ 2 GHz"


def test_this_machine() -> None:
    assert 0 < machine.available_memory() <= machine.total_memory()


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (270_100_000, "270 MB"),
        (1_230_000_000, "1.2 GB"),
        (999_600, "1 MB"),
    ],
)
def test_size(nbytes: int, text: str) -> None:
    assert size(nbytes) == text


def test_table() -> None:
    assert table(["a", "n"], [["bb", "1"], ["c", "22"]], right=[1]) == "a    n\nbb   1\nc   22"


# --- what fits --------------------------------------------------------------------------------------


def test_fit_counts_weights_and_cache() -> None:
    import json

    folder = CHECKPOINTS / "llama"
    config = json.loads((folder / "config.json").read_text())
    result = fit("x", folder, 1 << 40, None, "bf16")
    per_token = 2 * 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"]
    assert result.kv_bytes_per_token == per_token
    assert fit("x", folder, 1 << 40, None, "f32").kv_bytes_per_token == 2 * per_token
    codes = 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * (config["head_dim"] + 4)
    assert config["head_dim"] <= 64
    assert fit("x", folder, 1 << 40, None, "u8").kv_bytes_per_token == codes
    file = (folder / "model.safetensors").stat().st_size
    assert 0.9 * file < result.weight_bytes < file
    assert result.fits
    assert result.context == result.model_context == result.max_context == config["max_position_embeddings"]


def test_fit_finds_the_largest_context() -> None:
    folder = CHECKPOINTS / "llama"
    whole = fit("x", folder, 1 << 40, None, "bf16")
    base = whole.weight_bytes + WORKING_BYTES
    memory = base + 7 * whole.kv_bytes_per_token
    result = fit("x", folder, memory, None, "bf16")
    assert (result.fits, result.max_context) == (False, 7)
    assert fit("x", folder, memory, 7, "bf16").fits
    assert not fit("x", folder, memory - 1, 7, "bf16").fits
    assert fit("x", folder, base - 1, 1, "bf16").max_context == 0
    with pytest.raises(ParameterError, match="--context"):
        fit("x", folder, memory, whole.model_context + 1, "bf16")


def test_doctor_fits(cli: Any) -> None:
    import json

    folder = str(CHECKPOINTS / "llama")
    result = cli("doctor", "--fits", folder, "--memory", "1GiB")
    assert result.code == 0
    assert "It fits with a context of" in result.out
    result = cli("doctor", "--fits", folder, "--memory", "1MiB")
    assert result.code == 1
    assert "does not fit with any context" in result.out
    result = cli("doctor", "--fits", folder, "--memory", "1GiB", "--json")
    data = json.loads(result.out)
    assert data["fits"] is True
    assert data["memory"] == GIB


def test_doctor_fits_counts_experts_windows_and_states(cli: Any, tmp_path: Path) -> None:
    shapes = families.qwen_tensors("qwen3_5_moe", "fused")
    write_model(tmp_path / "qwen", families.qwen3_5(moe=True), families.floats(shapes))
    out = cli("doctor", "--fits", str(tmp_path / "qwen"), "--memory", "1GiB").out
    total = sum(math.prod(shape) for shape in shapes.values())
    active = total - 4 * 3 * 3 * 32 * 64  # four layers, three of five experts sleep
    assert f"qwen3_5_moe, {total / 1e6:.1f}M, {active / 1e6:.1f}M active, context of 512 tokens" in out
    assert "cache:     256 B a token\n" in out  # one layer of two heads of 32 channels
    assert f"state:     {size(3 * 4 * (6 * 8 * 12 + 2 * 104))} a sequence\n" in out
    shapes = families.gemma_tensors("model.")
    raw = families.gemma4_text(max_position_embeddings=4096)
    write_model(tmp_path / "gemma", raw, families.floats(shapes))
    out = cli("doctor", "--fits", str(tmp_path / "gemma"), "--memory", "1GiB").out
    per_token, kept = 3 * 2 * 32 * 4 + 3 * 2 * 48 * 4, 3 * 2 * 32 * 4 * 768 + 3 * 2 * 48 * 4 * 4096
    assert f"cache:     {size(per_token)} a token, {size(kept)} for 4096" in out
    assert "state:" not in out


@pytest.mark.parametrize(
    ("arguments", "code", "names"),
    [
        (["--fits", str(CHECKPOINTS / "llama"), "--memory", "lots"], 2, "--memory"),
        (["--memory", "1GiB"], 2, "--fits"),
        (["--fits", "no/such-model"], 1, "no/such-model"),
        (["--fits", str(CHECKPOINTS)], 1, "config.json"),
        (["--fits", "demo"], 1, "saragossa pull demo"),
    ],
)
def test_doctor_fits_bad_input(cli: Any, arguments: list[str], code: int, names: str) -> None:
    result = cli("doctor", *arguments)
    assert result.code == code
    assert result.err.count("\n") == 1
    assert names in result.err


def test_fit_refuses_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        fit("x", tmp_path, GIB, None, "bf16")
