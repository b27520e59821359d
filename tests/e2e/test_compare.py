"""`saragossa doctor --compare`: what is equal, what parts at a near tie, the first wrong layer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saragossa.cli.main import main
from saragossa.weights.safetensors import SafetensorsIndex

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoints"
NAME, LAYERS = "qwen3", 3
CLOSE = "2 9 18 51 108 189 44 173 76"  # margins of what follows are small
Doctor = Callable[..., tuple[int, str, str]]


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Exit code, what was printed, and the error."""

    def run(a: str, b: str, *arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["doctor", "--compare", a, b, *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def compared(doctor: Doctor, a: str, b: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, err = doctor(a, b, "--json", *arguments)
    assert err == ""
    return code, json.loads(out)


def changed(folder: Path, tensor: str, source: Path = GOLDEN / NAME) -> Path:
    """A copy of a golden checkpoint in which one tensor has its rows in another order."""
    shutil.copytree(source, folder)
    entry = SafetensorsIndex.open(folder)[tensor]
    with Path(entry.file).open("r+b") as file:
        file.seek(entry.offset)
        rows = np.frombuffer(file.read(entry.nbytes), np.uint8).reshape(entry.shape[0], -1)
        file.seek(entry.offset)
        file.write(np.roll(rows, 1, axis=0).tobytes())
    return folder


def test_a_way_is_identical_to_itself(doctor: Doctor) -> None:
    code, found = compared(doctor, "cpu", "cpu", "--model-dir", GOLDEN / NAME)
    assert (code, found["verdict"], found["partings"]) == (0, "identical", [])
    assert found["greedy_md5"]["a"] == found["greedy_md5"]["b"]
    assert found["largest_logit_difference"]["value"] == 0
    assert found["model"] == NAME
    assert len(found["layers"]["difference"]) == LAYERS
    code, out, _ = doctor("cpu", "cpu", "--model-dir", GOLDEN / NAME, "--ids", "2 5 6 7", "--max-tokens", "4")
    assert code == 0
    assert "4 of the prompt, 4 greedy" in out
    assert out.endswith("verdict: identical\n")


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(("way", "verdict"), [("cpu:exact", "equal"), ("cpu", "equal")])
def test_a_golden_file(doctor: Doctor, way: str, verdict: str, order: int) -> None:
    pair = (way, str(GOLDEN / f"{NAME}.npz"))[::order]
    code, found = compared(doctor, *pair, "--model-dir", GOLDEN / NAME)
    assert (code, found["verdict"]) == (0, verdict)
    assert "golden" in (found["a"], found["b"])
    with np.load(GOLDEN / f"{NAME}.npz") as golden:
        assert found["prompt"] == golden["prompt"].tolist()
        assert found["max_tokens"] == len(golden["greedy"])
    assert 0 < found["largest_logit_difference"]["value"] < (5e-5 if way == "cpu:exact" else 5e-2)
    assert found["largest_logit_difference"]["positions"] == len(found["prompt"]) + 1


@pytest.mark.parametrize("layer", range(LAYERS))
@pytest.mark.parametrize("tensor", ["mlp.down_proj.weight", "self_attn.v_proj.weight"])
def test_the_first_wrong_layer_is_told(doctor: Doctor, tmp_path: Path, layer: int, tensor: str) -> None:
    wrong = changed(tmp_path / "wrong", f"model.layers.{layer}.{tensor}")
    for a, b in (
        (f"cpu:exact@{GOLDEN / NAME}", f"cpu:exact@{wrong}"),
        (f"cpu@{wrong}", f"cpu@{GOLDEN / NAME}"),
        (f"cpu@{wrong}", str(GOLDEN / f"{NAME}.npz")),
    ):
        code, found = compared(doctor, a, b)
        assert (code, found["verdict"]) == (1, "different")
        assert found["layers"]["first"] == layer
        assert max(found["layers"]["difference"][:layer], default=0) < 0.01
        prints = found["layers"]["fingerprints"]
        assert prints["a"][layer]["first8"] != prints["b"][layer]["first8"]
        assert len(prints["a"][layer]["first8"]) == 8
    code, out, _ = doctor(f"cpu@{wrong}", str(GOLDEN / f"{NAME}.npz"))
    assert code == 1
    assert f"layer {layer} is the first that differs" in out
    assert "golden of qwen3" in out


@pytest.mark.parametrize(
    ("name", "layer", "tensor"),
    [
        ("qwen3_5", 1, "linear_attn.in_proj_a.weight"),
        ("qwen3_5", 0, "linear_attn.conv1d.weight"),
        ("gemma4-moe", 1, "experts.down_proj"),
        ("gemma4-moe", 2, "self_attn.k_proj.weight"),
    ],
)
def test_the_first_wrong_layer_of_a_family(
    doctor: Doctor, tmp_path: Path, name: str, layer: int, tensor: str
) -> None:
    folder = GOLDEN.parent / "families" / name
    wrong = changed(tmp_path / "wrong", f"model.language_model.layers.{layer}.{tensor}", folder)
    code, found = compared(doctor, f"cpu:exact@{wrong}", str(folder.with_suffix(".npz")))
    assert (code, found["layers"]["first"]) == (1, layer)
    assert compared(doctor, f"cpu:exact@{folder}", str(folder.with_suffix(".npz")))[0] == 0


def test_a_wrong_head_is_told_by_its_tokens(doctor: Doctor, tmp_path: Path) -> None:
    """All layers agree; no margin excuses it."""
    wrong = changed(tmp_path / "wrong", "model.norm.weight")
    code, found = compared(doctor, f"cpu@{GOLDEN / NAME}", f"cpu@{wrong}")
    assert (code, found["verdict"], found["layers"]["first"]) == (1, "different", None)
    first = found["partings"][0]
    assert not all(parting["near_tie"] for parting in found["partings"])
    assert [first["top"][side][0][0] for side in "ab"] == [first["ids"][side] for side in "ab"]
    assert all(len(first["top"][side]) == 5 for side in "ab")
    assert first["margins"]["a"] >= first["top"]["a"][0][1] - first["top"]["a"][1][1] > 0


def test_a_near_tie_is_told_and_recorded(doctor: Doctor, tmp_path: Path) -> None:
    """Activations of 8 bits move what stands close; with a bound above those margins it is a near tie."""
    record = tmp_path / "near_ties.json"
    model = ("--model-dir", GOLDEN / "llama-q4g32", "--ids", CLOSE, "--max-tokens", "64", "--tolerance", "1")
    pair = ("cpu:isa=scalar", "cpu:activations=int8,isa=scalar")
    code, found = compared(doctor, *pair, *model, "--near-tie", "1e-9")
    assert (code, found["verdict"]) == (1, "different")
    margin = max(max(parting["margins"].values()) for parting in found["partings"])
    code, found = compared(doctor, *pair, *model, "--near-tie", f"{2 * margin}", "--record", record)
    assert (code, found["verdict"]) == (0, "near tie")
    assert found["greedy_md5"]["a"] != found["greedy_md5"]["b"]
    assert (found["a"], found["b"]) == pair
    fingerprints = found["layers"].pop("fingerprints")
    assert len(fingerprints["a"]) == len(fingerprints["b"]) == 3
    assert json.loads(record.read_text()) == {"records": [found]}
    assert str(tmp_path) not in record.read_text()
    compared(doctor, *pair[::-1], *model, "--record", record)
    assert len(json.loads(record.read_text())["records"]) == 2
    _, again = compared(doctor, *pair, *model, "--record", record)  # of the same: in its place
    del again["layers"]["fingerprints"]
    assert again != found  # its bound
    assert json.loads(record.read_text())["records"][0] == again
    assert len(json.loads(record.read_text())["records"]) == 2


def test_logits_that_are_no_numbers_are_followed_to_their_layer(doctor: Doctor, tmp_path: Path) -> None:
    folder = tmp_path / "nan"
    shutil.copytree(GOLDEN / NAME, folder)
    entry = SafetensorsIndex.open(folder)["model.layers.1.mlp.up_proj.weight"]
    with Path(entry.file).open("r+b") as file:
        file.seek(entry.offset)
        file.write(b"\xff" * entry.nbytes)
    code, found = compared(doctor, f"cpu@{folder}", f"cpu@{GOLDEN / NAME}")
    assert (code, found["verdict"], found["layers"]["first"]) == (1, "different", 1)
    assert "not finite" in found["failure_a"]
    assert found["layers"]["difference"][1] == "inf"
    code, out, _ = doctor(f"cpu@{folder}", f"cpu@{GOLDEN / NAME}")
    assert code == 1
    assert "failed:  A: the model's logits are not finite" in out


def test_environment_and_switches_are_in_the_name(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARAGOSSA_PREFILL_CHUNK", "16")
    arguments = ("--model-dir", GOLDEN / NAME, "--ids", "2 5 6 7", "--max-tokens", "2")
    _, found = compared(doctor, "cpu:isa=scalar", "cpu:exact,isa=scalar,fused=off", *arguments)
    assert found["a"] == "cpu:isa=scalar,prefill_chunk=16"
    assert found["b"] == "cpu:exact,fused=off,isa=scalar,prefill_chunk=16"


def test_a_file_of_tokens(doctor: Doctor, tmp_path: Path) -> None:
    for text in ("2 5 6\n7", "[2, 5, 6, 7]\n"):
        (tmp_path / "ids").write_text(text)
        arguments = ("--model-dir", GOLDEN / NAME, "--tokens-file", tmp_path / "ids", "--max-tokens", "2")
        assert compared(doctor, "cpu", "cpu", *arguments)[1]["prompt"] == [2, 5, 6, 7]


MODEL = ("--model-dir", str(GOLDEN / NAME))
GOLDEN_FILE = str(GOLDEN / f"{NAME}.npz")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cpu", "cpu"), "--compare: no model (give --model-dir"),
        (("cpu", "", *MODEL), "found an empty text"),
        (("cpu", "cpu:fussed=off", *MODEL), "found 'fussed=off', accepted are exact and SWITCH=VALUE; the n"),
        (("cpu", "cpu:exakt", *MODEL), "the nearest is exact"),
        (("cpu", "cpu:fused", *MODEL), "the nearest is fused=on"),
        (("cpu", "cpu:", *MODEL), "found ''"),
        (("cpu", "cpu:isa=mmx", *MODEL), "isa: found 'mmx', accepted is one of auto, scalar"),
        (("cpu", "cpu:exact,exact", *MODEL), "exact is given twice"),
        (("cpu", "cpu@", *MODEL), "no model behind @"),
        (("cpu", "no/such-model"), "no model"),
        ((GOLDEN_FILE, GOLDEN_FILE, *MODEL), "both are golden files"),
        ((GOLDEN_FILE, "cpu", *MODEL, "--ids", "2"), "--ids does not go with a golden file"),
        ((GOLDEN_FILE, "cpu", *MODEL, "--max-tokens", "2"), "--max-tokens does not go with a golden file"),
        (("nowhere.npz", "cpu", *MODEL), "nowhere.npz: cannot be read: No such file"),
        ((str(GOLDEN.parent / "quantize.npz"), "cpu", *MODEL), "no golden file: it has no array prompt"),
        ((GOLDEN_FILE, "cpu", "--model-dir", str(GOLDEN / "gemma3_text")), "layers: 3 in A, 6 in B"),
        (("cpu", "cpu", *MODEL, "--max-tokens", "257"), "--max-tokens: found 257, accepted is 1 to 256"),
        (("cpu", "cpu", *MODEL, "--ids", "2 999"), "token id 999"),
        (("cpu", "cpu", *MODEL, "--ids", "2 x"), "--ids: found 'x'"),
        (("cpu", "cpu", *MODEL, "--tokens-file", "nowhere"), "nowhere"),
        (("cpu", "cpu", *MODEL, "--prompt", ""), "the prompt is empty"),
        (("cpu", "cpu", *MODEL, "--ids", "5 " * 2030), "the context holds"),
        (("cpu", "cpu", *MODEL, "--near-tie", "0"), "--near-tie: found 0, accepted is a number above 0"),
        (("cpu", "cpu", *MODEL, "--tolerance", "nan"), "--tolerance: found nan"),
        (("cpu", "cpu", *MODEL, "--record", "no/folder/x.json"), "the folder no/folder does not exist"),
        (("cpu", "cpu", *MODEL, "--record", str(GOLDEN / "manifest.json")), "has no list of records"),
        (("cpu", "cpu", *MODEL, "--record", str(GOLDEN / NAME / "chat_template.jinja")), "is no JSON"),
        (("cpu", "cpu", *MODEL, "--context", "5"), "--context and --memory go with --fits"),
        (("cpu", "cpu", *MODEL, "--fits", "x"), "not allowed with argument"),
    ],
)  # fmt: skip
def test_errors_name_what_is_wrong(doctor: Doctor, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = doctor(*arguments)
    assert (code in (1, 2), out) == (True, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "option", ["--ids", "--prompt", "--tokens-file", "--max-tokens", "--record", "--near-tie"]
)
def test_options_without_compare(capsys: pytest.CaptureFixture[str], option: str) -> None:
    assert main(["doctor", option, "1"]) == 2
    assert f"{option} goes with --compare A B" in capsys.readouterr().err
