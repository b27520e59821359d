"""The Hub's cache and downloads, against a fake hub on loopback."""

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import constants

from fakes.hub import COMMIT, FakeHub, serving
from saragossa.errors import HubError, ModelError
from saragossa.weights.hub import CachedModel, list_cached, pull, remove, resolve, split_repo

TOKEN = "hf_secretsecretsecret"
HEADER = b'{"a":{"dtype":"U8","shape":[2000],"data_offsets":[0,2000]}}'
WEIGHTS = len(HEADER).to_bytes(8, "little") + HEADER + bytes(2000)
NEEDED = {
    "config.json": b'{"model_type": "llama"}',
    "model.safetensors": WEIGHTS,
    "tokenizer.json": b"{}",
    "tokenizer.model": b"sp",
    "chat_template.jinja": b"{{ messages }}",
    "additional_chat_templates/tool_use.jinja": b"{{ tools }}",
    "merges.txt": b"a b",
}
NAMES = sorted(name.rpartition("/")[2] for name in NEEDED)  # as FakeHub.fetched() lists them
USELESS = {
    "README.md": b"# hi",
    "consolidated.safetensors": b"x" * 50,
    "pytorch_model.bin": b"x" * 50,
    "onnx/model.safetensors": b"x",
    "original/params.json": b"{}",
    "original/tokenizer.model": b"x",
    "tokenizer/merges.bin": b"x",
    "examples/chat_template.jinja": b"x",
    ".gitattributes": b"",
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return folder


def use(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """What HF_ENDPOINT sets when the client is imported."""
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}"
    )


@pytest.fixture
def hub(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with serving(FakeHub({"org/tiny": {**NEEDED, **USELESS}})) as server:
        use(monkeypatch, server.url)
        yield server
        huggingface_hub.close_session()


def error_of(name: str = "org/tiny", revision: str | None = None) -> HubError:
    with pytest.raises(HubError) as error:
        resolve(name, revision=revision, progress=False)
    assert TOKEN not in str(error.value)
    return error.value


# --- download ---


def test_pull_fetches_what_a_model_needs(hub: FakeHub, cache: Path) -> None:
    folder = resolve("org/tiny", progress=False)
    assert folder == cache / "models--org--tiny" / "snapshots" / COMMIT
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {path.relative_to(folder).as_posix(): path.read_bytes() for path in files} == NEEDED
    assert hub.fetched() == NAMES
    assert all(path.startswith(("/api/models/org/tiny", "/org/tiny/resolve/")) for path in hub.paths("GET"))


def test_a_complete_snapshot_needs_no_network(hub: FakeHub) -> None:
    folder = resolve("org/tiny", progress=False)
    hub.requests.clear()
    assert resolve("org/tiny") == folder
    assert resolve("org/tiny", allow_download=False) == folder
    assert resolve(f"org/tiny@{COMMIT}") == folder
    assert resolve("org/tiny", revision="main") == folder
    assert hub.requests == []


@pytest.mark.parametrize("gone", ["model.safetensors", "tokenizer.json"])
def test_a_partial_snapshot_is_completed(hub: FakeHub, gone: str) -> None:
    folder = resolve("org/tiny", progress=False)
    blob = (folder / gone).resolve()
    (folder / gone).unlink()
    blob.unlink()
    hub.requests.clear()
    assert error_without_download() == "org/tiny: only a part of it is in the local cache"
    assert resolve("org/tiny", progress=False) == folder
    assert hub.fetched() == [gone]


def test_a_partial_snapshot_of_an_older_client(
    hub: FakeHub, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a stored listing the weights themselves tell."""
    commit = resolve("org/tiny", progress=False).name
    moved = cache.rename(cache.with_name("older"))  # the client also remembers listings by their place
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(moved))
    storage = moved / "models--org--tiny"
    shutil.rmtree(storage / "trees", ignore_errors=True)
    weights = storage / "snapshots" / commit / "model.safetensors"
    weights.resolve().unlink()
    weights.unlink()
    assert error_without_download() == "org/tiny: only a part of it is in the local cache"
    assert resolve("org/tiny", progress=False) == weights.parent
    assert weights.read_bytes() == WEIGHTS


def error_without_download() -> str:
    with pytest.raises(HubError) as error:
        resolve("org/tiny", allow_download=False)
    return error.value.message.partition(" (")[0]


def ranges(hub: FakeHub) -> list[str | None]:
    """What was asked of the weights, request by request."""
    paths = [
        item for item in hub.requests if item.method == "GET" and item.path.endswith("model.safetensors")
    ]
    return [request.headers.get("range") for request in paths]


@pytest.mark.parametrize("whole", [False, True], ids=["ranges", "no ranges"])
def test_a_broken_download_goes_on(hub: FakeHub, monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    hub.cut["model.safetensors"] = (700, 2)
    hub.whole = whole
    folder = resolve("org/tiny", progress=False)
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert ranges(hub) == [None, "bytes=700-", "bytes=700-" if whole else "bytes=1400-"]
    assert not list(folder.parents[1].rglob("*.incomplete"))


def test_a_killed_download_goes_on_in_the_next_process(
    hub: FakeHub, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    hub.cut["model.safetensors"] = (700, 1)
    hub.answers["/org/tiny/resolve"] = (503, {})
    part = (
        cache / "models--org--tiny" / "blobs" / f"{hashlib.sha256(WEIGHTS).hexdigest()}.saragossa.incomplete"
    )
    part.parent.mkdir(parents=True)
    part.write_bytes(WEIGHTS[:1200])
    assert "out of order (503)" in error_of().message
    assert part.read_bytes() == WEIGHTS[:1200]
    hub.answers.clear()
    hub.cut.clear()
    hub.requests.clear()
    folder = resolve("org/tiny", progress=False)
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert ranges(hub) == ["bytes=1200-"]


def test_a_short_answer_is_gone_on_from(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that ends an answer early with a Content-Length to match."""
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    hub.short["model.safetensors"] = (700, 2)
    folder = resolve("org/tiny", progress=False)
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert ranges(hub) == [None, "bytes=700-", "bytes=1400-"]


def test_what_arrived_of_short_answers_is_kept(
    hub: FakeHub, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    hub.cut["model.safetensors"] = (700, 1)
    hub.short["model.safetensors"] = (0, 99)
    error = error_of()
    assert error.message == "model.safetensors: the Hub sent 700 of 2067 bytes"
    assert "goes on" in (error.cure or "")
    (part,) = cache.rglob("*.saragossa.incomplete")
    assert part.read_bytes() == WEIGHTS[:700]


def test_one_commit_for_all_files(hub: FakeHub, cache: Path) -> None:
    """The branch moves on while its files are fetched."""
    later = "f" * 40
    hub.commits = [COMMIT, later, later]
    assert resolve("org/tiny", progress=False).name == COMMIT
    fetched = [path for path in hub.paths("GET") if "/resolve/" in path]
    assert len(fetched) == len(NEEDED)
    assert {path.split("/")[4] for path in fetched} == {COMMIT}
    assert (cache / "models--org--tiny" / "refs" / "main").read_text() == COMMIT
    hub.requests.clear()
    assert resolve("org/tiny", progress=False).name == COMMIT
    assert hub.requests == []


def test_what_arrived_is_checked(hub: FakeHub, cache: Path) -> None:
    part = (
        cache / "models--org--tiny" / "blobs" / f"{hashlib.sha256(WEIGHTS).hexdigest()}.saragossa.incomplete"
    )
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 1200)
    error = error_of()
    assert "model.safetensors: 2067 bytes arrived that are not the file of 2067 bytes" in error.message
    assert not part.exists()
    assert resolve("org/tiny", progress=False).is_dir()


def test_a_connection_that_stays_broken(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    hub.cut["model.safetensors"] = (0, 99)
    error = error_of()
    assert "no connection to" in error.message
    assert len(ranges(hub)) == 5


def test_pinned_revision(hub: FakeHub) -> None:
    assert pull(f"org/tiny@{COMMIT}", progress=False).name == COMMIT
    error = error_of("org/tiny@v9")
    assert error.message == "org/tiny has no revision 'v9'"
    assert "commit hash" in (error.cure or "")


def test_no_progress_means_silence(hub: FakeHub, capfd: pytest.CaptureFixture[str]) -> None:
    resolve("org/tiny", progress=False)
    assert capfd.readouterr() == ("", "")


# --- what can go wrong ---


def test_gated_without_a_token(hub: FakeHub) -> None:
    hub.answers["/api/models/org/tiny"] = (401, {"X-Error-Code": "GatedRepo"})
    error = error_of()
    assert error.message == "org/tiny is gated: its licence must be accepted first"
    assert f"accept it at {hub.url}/org/tiny" in (error.cure or "")
    assert "export HF_TOKEN" in (error.cure or "")


def test_gated_for_this_token(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.answers["/api/models/org/tiny"] = (403, {"X-Error-Code": "GatedRepo"})
    error = error_of()
    assert "the account of your token has no access" in error.message
    assert hub.requests[0].headers["authorization"] == f"Bearer {TOKEN}"


def test_gated_files_of_a_visible_repository(hub: FakeHub) -> None:
    hub.answers["/org/tiny/resolve"] = (401, {"X-Error-Code": "GatedRepo"})
    assert "is gated" in error_of().message


@pytest.mark.parametrize("token", [None, TOKEN])
def test_missing_or_private(hub: FakeHub, monkeypatch: pytest.MonkeyPatch, token: str | None) -> None:
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    error = error_of("org/nothing")
    assert error.message.startswith(f"org/nothing: not found on {hub.url}, or private")
    assert "HF_TOKEN" in (error.cure or "")
    assert "check the name" in (error.cure or "")
    assert ("account" in (error.cure or "")) == bool(token)


def test_404(hub: FakeHub) -> None:
    hub.answers["/api/models/org/tiny"] = (404, {})
    assert "not found" in error_of().message


def test_403(hub: FakeHub) -> None:
    hub.answers["/api/models/org/tiny"] = (403, {"X-Error-Message": "no"})
    error = error_of()
    assert "access forbidden (403)" in error.message
    assert "HF_TOKEN" in (error.cure or "")


@pytest.mark.parametrize(
    ("headers", "cure"),
    [
        ({"Retry-After": "120"}, "wait 120 s and try again"),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, "wait until Wed, 21 Oct 2026 07:28:00 GMT"),
        ({}, "wait a few minutes"),
    ],
)
def test_429(hub: FakeHub, headers: dict[str, str], cure: str) -> None:
    hub.answers["/api/models/org/tiny"] = (429, headers)
    error = error_of()
    assert "rate limit is reached (429)" in error.message
    assert cure in (error.cure or "")


def test_invalid_token(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.answers["/api/models"] = (401, {"X-Error-Message": "Invalid credentials in Authorization header"})
    assert "refuses the token (401)" in error_of().message


def test_hub_out_of_order(hub: FakeHub) -> None:
    hub.answers["/api/models/org/tiny"] = (503, {})
    assert "out of order (503)" in error_of().message


def test_connection_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    use(monkeypatch, f"http://user:{TOKEN}@127.0.0.1:{port}")
    error = error_of()
    assert error.message.startswith(f"org/tiny: no connection to http://127.0.0.1:{port} (")
    assert "HF_ENDPOINT" in (error.cure or "")


def test_offline(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    error = error_of()
    assert error.message == "org/tiny: not in the local cache, and HF_HUB_OFFLINE is set"
    with pytest.raises(HubError, match="cannot be fetched, and HF_HUB_OFFLINE is set"):
        pull("org/tiny")
    assert hub.requests == []


def test_not_allowed_to_fetch(hub: FakeHub) -> None:
    with pytest.raises(HubError, match="not in the local cache") as error:
        resolve("org/tiny", allow_download=False)
    assert "saragossa pull org/tiny" in (error.value.cure or "")
    assert hub.requests == []


def test_disk_space(hub: FakeHub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum(map(len, NEEDED.values()))
    asked = []

    def usage(path: Path) -> SimpleNamespace:
        asked.append(path)
        return SimpleNamespace(free=free)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    free = size - 1
    error = error_of()
    assert "GB to fetch, 0.0 GB free at" in error.message
    assert "HF_HOME" in (error.cure or "")
    assert asked == [cache.parent]
    assert hub.fetched() == []
    assert not cache.exists()
    free = size
    folder = resolve("org/tiny", progress=False)
    # What is there already needs no space.
    (folder / "tokenizer.json").unlink()
    free = 0
    assert resolve("org/tiny", progress=False) == folder


@pytest.mark.parametrize(
    ("files", "message", "cure"),
    [
        ({"model.gguf": b"GGUF"}, "holds GGUF files and no safetensors", "saragossa convert"),
        ({"pytorch_model.bin": b"x", "config.json": b"{}"}, "holds no safetensors file", "choose"),
        ({"unet/model.safetensors": b"x"}, "holds no safetensors file", "choose"),
        (
            {"adapter_config.json": b"{}", "adapter_model.safetensors": b"x"},
            "a LoRA adapter without its model",
            "merge it into its base model first",
        ),
        (
            {"adapter_config.json": b"{}", "adapters.safetensors": b"x", "config.json": b"{}"},
            "a LoRA adapter without its model",
            "merge it into its base model first",
        ),
    ],
)
def test_nothing_useful_is_not_fetched(
    hub: FakeHub, files: dict[str, bytes], message: str, cure: str
) -> None:
    hub.repos["org/other"] = files
    error = error_of("org/other")
    assert message in error.message
    assert cure in (error.cure or "")
    assert hub.fetched() == []


def test_unsupported_architecture_is_not_fetched(hub: FakeHub) -> None:
    hub.configs["org/tiny"] = {"model_type": "mamba2"}
    error = error_of()
    assert "architecture 'mamba2' is not supported" in error.message
    assert "qwen3" in (error.cure or "")
    assert hub.fetched() == []


# --- the token ---


def test_token_stays_with_the_hub(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with serving(FakeHub({"org/tiny": NEEDED})) as storage:
        hub.storage = storage.url.replace("127.0.0.1", "localhost")
        folder = resolve("org/tiny", progress=False)
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert storage.fetched() == NAMES
    assert all("authorization" not in request.headers for request in storage.requests)
    assert all(request.headers.get("authorization") == f"Bearer {TOKEN}" for request in hub.requests)


def test_token_does_not_follow_a_redirect_of_the_api(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with serving(FakeHub({"org/tiny": NEEDED})) as other:
        where = {"Location": f"{other.url}/api/models/org/tiny"}
        hub.answers["/api/models/org/tiny"] = (307, where)
        other.answers["/"] = (404, {})
        error_of()
    assert other.requests
    assert all("authorization" not in request.headers for request in other.requests)


def test_the_environment_alone_is_enough(hub: FakeHub, tmp_path: Path) -> None:
    """HF_ENDPOINT, HF_HOME and HF_TOKEN as a shell sets them; the token is in no output."""
    hub.answers["/api/models/org/gated"] = (401, {"X-Error-Code": "GatedRepo"})
    code = (
        "from saragossa.weights.hub import resolve\n"
        "print(resolve('org/tiny'))\n"
        "try: resolve('org/gated')\n"
        "except Exception as error: print(error)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HF_ENDPOINT": hub.url}
    environment |= {"HF_HOME": str(tmp_path / "home"), "HF_TOKEN": TOKEN, "NO_PROXY": "127.0.0.1"}
    environment.pop("HF_HUB_CACHE", None)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    lines = result.stdout.splitlines()
    assert lines[0] == str(tmp_path / "home" / "hub" / "models--org--tiny" / "snapshots" / COMMIT), (
        result.stderr
    )
    assert lines[1].startswith("org/gated is gated")
    assert TOKEN not in result.stdout + result.stderr
    assert all(request.headers["authorization"] == f"Bearer {TOKEN}" for request in hub.requests)


# --- names ---


def test_local_folder(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "org" / "tiny"
    folder.mkdir(parents=True)
    assert resolve(folder) == folder
    assert resolve(str(folder)) == folder
    monkeypatch.chdir(tmp_path)
    assert resolve("org/tiny") == Path("org/tiny")  # a folder wins over a repository
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("~/org/tiny") == folder
    with pytest.raises(ModelError, match="a local path has no revision"):
        resolve(folder, revision="main")


@pytest.mark.parametrize(
    "name", ["./nothing", "../nothing", "/nothing/here", "~/nothing", "nothing/", "x/y/"]
)
def test_paths_that_do_not_exist(name: str, cache: Path) -> None:
    with pytest.raises(ModelError, match="no such folder") as error:
        resolve(name)
    assert error.value.message.startswith(name)


def test_path_objects_are_never_repositories(cache: Path) -> None:
    with pytest.raises(ModelError, match="no such folder"):
        resolve(Path("org/nothing"))


@pytest.mark.parametrize(
    "name",
    [
        "tiny",
        "a/b/c",
        "org/../x",
        "org/",
        "org/ti ny",
        "-x/y",
        "org/x--y",
        "org/x@",
        "org/x@../y",
        "@v1",
    ],
)
def test_what_is_no_repository(name: str, cache: Path) -> None:
    with pytest.raises((HubError, ModelError)) as error:
        resolve(name)
    assert "\n" not in str(error.value)


def test_split_repo() -> None:
    assert split_repo("org/name") == ("org/name", None)
    assert split_repo("org/name@v1.0") == ("org/name", "v1.0")
    assert split_repo("org/name", "refs/pr/1") == ("org/name", "refs/pr/1")
    assert split_repo("org/name@v1", "v1") == ("org/name", "v1")
    with pytest.raises(HubError, match="differ"):
        split_repo("org/name@v1", "v2")


# --- the cache ---


def test_list_and_remove(hub: FakeHub, cache: Path) -> None:
    assert list_cached() == []
    hub.repos["org/another"] = dict(NEEDED)
    folder = resolve("org/tiny", progress=False)
    pull("org/another", progress=False)
    models = list_cached()
    assert [model.repo for model in models] == ["org/another", "org/tiny"]
    assert isinstance(models[1], CachedModel)
    assert (models[1].path, models[1].revision) == (folder, COMMIT)
    size = sum(map(len, NEEDED.values()))
    assert models[1].nbytes == size
    assert remove("org/tiny") >= size
    assert [model.repo for model in list_cached()] == ["org/another"]
    assert not (cache / "models--org--tiny").exists()
    with pytest.raises(HubError, match="org/tiny: not in the local cache"):
        remove("org/tiny")


def test_remove_one_revision(hub: FakeHub, cache: Path) -> None:
    resolve("org/tiny", progress=False)
    with pytest.raises(HubError, match="revision 'v2' is not in the local cache"):
        remove("org/tiny@v2")
    assert remove("org/tiny@main") >= len(WEIGHTS)
    assert list_cached() == []


def test_remove_an_interrupted_download(cache: Path) -> None:
    blob = cache / "models--org--tiny" / "blobs" / "abc.incomplete"
    blob.parent.mkdir(parents=True)
    blob.write_bytes(bytes(100))
    assert remove("org/tiny") == 100
    assert not blob.parent.exists()


@pytest.mark.parametrize("name", ["../../etc", "/", "org/..", "tiny"])
def test_remove_takes_repositories_only(name: str, cache: Path) -> None:
    with pytest.raises(HubError, match="no repository's name"):
        remove(name)


def test_nearest_cached_models_are_named(hub: FakeHub) -> None:
    hub.repos["org/SmolLM2-135M-Instruct"] = dict(NEEDED)
    pull("org/SmolLM2-135M-Instruct", progress=False)
    near = "the nearest cached models: org/SmolLM2-135M-Instruct"
    for name in ("SmolLM2-135M", "other/SmolLM2-135M-instruct", "./SmolLM2-135M-Instuct"):
        with pytest.raises((HubError, ModelError)) as error:
            resolve(name, progress=False)
        assert near in (error.value.cure or ""), name
