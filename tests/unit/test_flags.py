"""Switches and settings: values, bounds, names, messages."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from saragossa import runtime_flags, settings
from saragossa.errors import UsageError
from saragossa.runtime_flags import FLAGS, BadValue, parse_bytes, suspects, switches, unknown_variable

CORE_FIELDS = {
    "fused",
    "activations",
    "isa",
    "threads",
    "spin_us",
    "cpu_fetch_ahead",
    "chunked_delta",
    "run_ahead",
    "metal_resident",
    "metal_matmul",
    "metal_tensor_ops",
    "metal_statistics",
    "metal_split_matmul",
    "metal_sorted_experts",
    "metal_simdgroup_attention",
    "metal_command_macs",
}


def test_defaults() -> None:
    assert switches({}) == {
        "fused": True,
        "activations": "int15",
        "isa": "auto",
        "threads": 0,
        "spin_us": 50,
        "cpu_fetch_ahead": True,
        "chunked_delta": True,
        "prefill_chunk": 512,
        "kv_dtype": "bf16",
        "run_ahead": True,
        "metal_resident": True,
        "metal_matmul": True,
        "metal_tensor_ops": True,
        "metal_statistics": True,
        "metal_split_matmul": True,
        "metal_sorted_experts": True,
        "metal_simdgroup_attention": True,
        "metal_command_macs": 0,
    }


def test_fields_match_the_core() -> None:
    header = Path(__file__).parents[2] / "csrc/core/switches.h"
    body = header.read_text().split("struct Switches {")[1].split("};")[0]
    fields = dict(re.findall(r"^\s*[\w:]+ (\w+) = ([^;]+);", body, re.MULTILINE))
    assert set(fields) - {"poison_scratch"} == CORE_FIELDS  # that one is for the core's own tests
    for name in CORE_FIELDS:
        cpp = fields[name].strip('"').removeprefix("Activations::")
        assert str(switches({})[name]).lower() == cpp


def test_defaults_parse() -> None:
    for flag in FLAGS:
        assert flag.parse(flag.default_text) == flag.default
        assert flag.name.startswith("SARAGOSSA_")
        assert flag.effect
        assert flag.why


@pytest.mark.parametrize("text", ["1", "on", "ON", "true", "True"])
def test_booleans_on(text: str) -> None:
    assert switches({"SARAGOSSA_FUSED": text})["fused"] is True


@pytest.mark.parametrize("text", ["0", "off", "false", "FALSE"])
def test_booleans_off(text: str) -> None:
    assert switches({"SARAGOSSA_FUSED": text})["fused"] is False


def test_environment_and_overrides() -> None:
    environ = {"SARAGOSSA_THREADS": "3", "SARAGOSSA_ACTIVATIONS": "int8", "SARAGOSSA_KV_DTYPE": "F32"}
    assert switches(environ)["threads"] == 3
    assert switches(environ)["kv_dtype"] == "f32"
    values = switches(environ, threads=5, activations="f32", isa=None)
    assert (values["threads"], values["activations"], values["isa"]) == (5, "f32", "auto")


def test_empty_is_unset() -> None:
    assert switches({"SARAGOSSA_THREADS": " "})["threads"] == 0


@pytest.mark.parametrize(
    ("name", "text", "accepted"),
    [
        ("SARAGOSSA_FUSED", "maybe", "1, 0, on, off, true or false"),
        ("SARAGOSSA_ACTIVATIONS", "int16", "one of int15, f32, int8"),
        ("SARAGOSSA_ISA", "sse2", "one of auto, scalar, avx2, avx512, neon"),
        ("SARAGOSSA_THREADS", "-1", "a whole number from 0 to 1024"),
        ("SARAGOSSA_THREADS", "nan", "a whole number from 0 to 1024"),
        ("SARAGOSSA_THREADS", "9" * 5000, "a whole number from 0 to 1024"),
        ("SARAGOSSA_SPIN_US", "1.5", "a whole number from 0 to 100000"),
        ("SARAGOSSA_PREFILL_CHUNK", "0", "a whole number from 1 to 65536"),
        ("SARAGOSSA_KV_DTYPE", "int8", "one of bf16, u8, f32"),
    ],
)
def test_bad_values_name_variable_found_accepted(name: str, text: str, accepted: str) -> None:
    with pytest.raises(UsageError) as caught:
        switches({name: text})
    assert caught.value.exit_code == 2
    assert str(caught.value).startswith(f"{name}: found {text!r}, accepted is {accepted}")


def test_bad_override_names_the_field() -> None:
    with pytest.raises(UsageError, match="threads: found -4, accepted is a whole number"):
        switches({}, threads=-4)
    with pytest.raises(TypeError, match="no 'thread'"):
        switches({}, thread=1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("1000", 1000),
        ("512MiB", 512 << 20),
        ("2 GiB", 2 << 30),
        ("1.5gib", 3 << 29),
        ("4KiB", 4096),
        ("1TiB", 1 << 40),
    ],
)
def test_bytes(text: str, value: int) -> None:
    assert parse_bytes(text) == value


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1e9", "12MB", "1.5", "nan", "1..5GiB", "٣", "9" * 40])
def test_bytes_refused(text: str) -> None:
    with pytest.raises(BadValue, match="512MiB"):
        parse_bytes(text)


def test_unknown_names_and_the_nearest() -> None:
    environ = {
        "SARAGOSSA_FUSED": "1",
        "SARAGOSSA_TREADS": "2",
        "RETI_X": "1",
        "HOME": "/",
        "SARAGOSSA_CACHE_DIR": "/c",
    }
    assert suspects(environ) == ["RETI_X", "SARAGOSSA_CACHE_DIR", "SARAGOSSA_TREADS"]
    assert "SARAGOSSA_THREADS" in unknown_variable("SARAGOSSA_TREADS")
    assert "SARAGOSSA_CACHE_DIR" in unknown_variable("SARAGOSSA_CACHEDIR", settings.variables())


def test_settings_defaults_follow_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in settings.variables():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/ignored")
    got = settings.load()
    assert got.cache_dir == tmp_path / "x" / "saragossa"
    assert got.state_dir == tmp_path / ".local" / "state" / "saragossa"


def test_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SARAGOSSA_CACHE_DIR", "~/cache")
    assert settings.load().cache_dir == tmp_path / "cache"
    monkeypatch.setenv("SARAGOSSA_CACHE_DIR", "")
    assert settings.load().cache_dir.name == "saragossa"
    monkeypatch.setenv("SARAGOSSA_CACHE_DIR", "not/absolute")
    with pytest.raises(
        UsageError, match="SARAGOSSA_CACHE_DIR: found 'not/absolute', accepted is an absolute path"
    ):
        settings.load()


def test_flags_import_is_light() -> None:
    heavy = "('pydantic', 'numpy', 'jinja2', 'tokenizers', 'huggingface_hub', 'gguf')"
    code = f"import saragossa.runtime_flags, sys; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_every_flag_is_documented() -> None:
    docs = (Path(__file__).parents[2] / "docs/flags.md").read_text()
    for flag in runtime_flags.FLAGS:
        assert f"| `{flag.name}` | {flag.default_text} | {flag.effect} | {flag.why} |" in docs
    for name in settings.variables():
        assert f"`{name}`" in docs
