"""Models of the Hugging Face Hub in the cache that all tools share.

HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_HUB_OFFLINE and HF_TOKEN work as everywhere: the Hub's own client reads
them. A model that is cached completely is used without asking the network.
"""

from __future__ import annotations

import difflib
import re
import shutil
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, constants, scan_cache_dir, snapshot_download
from huggingface_hub.errors import CacheNotFound, LocalEntryNotFoundError
from huggingface_hub.hf_api import ModelInfo, RepoSibling
from tqdm.auto import tqdm

from saragossa.errors import HubError, ModelError, WeightsError
from saragossa.weights.hub_errors import explain, offline
from saragossa.weights.hub_fetch import fetch_weights, partial_file
from saragossa.weights.safetensors import SafetensorsIndex

# Nothing but the requests themselves: the client would look up which program drives it.
constants.HF_HUB_DISABLE_TELEMETRY = True

# What a model folder needs; other subfolders hold the same model in other formats. A `*` matches a `/`.
_SUFFIXES = ["*.json", "*.safetensors", "*.model", "*.tiktoken", "*.txt"]
ALLOW = [*_SUFFIXES, "tokenizer*", "chat_template.jinja", "additional_chat_templates/*.jinja"]
IGNORE = [
    *(f"*/{suffix}" for suffix in _SUFFIXES),
    "tokenizer*/*",
    "consolidated*.safetensors",
    "adapter_*",
    "*adapters.safetensors",
    "training_args*",
    "trainer_state.json",
]

_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9][\w./-]{0,254}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A model in the cache: `path` is its snapshot folder, `nbytes` what all its revisions take on disk."""

    repo: str
    revision: str
    path: Path
    nbytes: int
    last_modified: float


class _Quiet(tqdm):  # type: ignore[type-arg]  # generic in the stubs alone
    """A progress bar that shows nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("name", None)
        super().__init__(*args, **{**kwargs, "disable": True})


def resolve(
    path_or_repo: str | Path,
    *,
    revision: str | None = None,
    allow_download: bool = True,
    progress: bool = True,
) -> Path:
    """The folder of a local path or of a Hub repository `org/name` or `org/name@REV`.

    A complete cached snapshot is taken as it is; otherwise the repository is fetched, going on where an
    interrupted download stopped.

    Raises ModelError (no such folder) and HubError (gated, missing, offline, no space, not allowed to fetch).
    """
    path = Path(path_or_repo).expanduser()
    if path.exists():
        if revision is not None:
            raise ModelError(f"{path}: a local path has no revision {revision!r}")
        return path
    if isinstance(path_or_repo, Path) or looks_like_path(path_or_repo):
        raise ModelError(f"{path_or_repo}: no such folder", cure=_nearest(str(path_or_repo)))
    repo, revision = split_repo(path_or_repo, revision)
    cached, problem = _cached(repo, revision)
    if cached is not None:
        return cached
    if constants.HF_HUB_OFFLINE:
        raise offline(repo, problem)
    if not allow_download:
        near = _nearest(repo)
        raise HubError(
            f"{repo}: {problem}", cure=f"fetch it: `saragossa pull {repo}`{f'; {near}' if near else ''}"
        )
    return pull(repo, revision=revision, progress=progress)


def pull(repo: str, *, revision: str | None = None, progress: bool = True) -> Path:
    """Fetch a repository's newest (or the given) revision; files that are there already are kept.

    Raises HubError: gated, missing, offline, rate-limited, too little disk space, no model that can be used.
    """
    repo, revision = split_repo(repo, revision)
    if constants.HF_HUB_OFFLINE:
        raise offline(repo, "cannot be fetched")
    try:
        api = HfApi(endpoint=constants.ENDPOINT, library_name="saragossa")
        info = api.model_info(repo, revision=revision, files_metadata=True)
        _check_usable(repo, info)
        _check_space(repo, info)
        if info.sha:
            fetch_weights(repo, info.sha, _weights(info), _storage(repo), progress=progress)
        folder = snapshot_download(
            repo,
            revision=info.sha or revision,  # the branch may have moved on since the listing
            cache_dir=constants.HF_HUB_CACHE,
            endpoint=constants.ENDPOINT,
            library_name="saragossa",
            allow_patterns=ALLOW,
            ignore_patterns=IGNORE,
            tqdm_class=None if progress else _Quiet,
        )
        if info.sha and not _COMMIT.fullmatch(revision or "main"):
            _write_ref(_storage(repo) / "refs" / (revision or "main"), info.sha)
    except HubError:
        raise
    except Exception as exc:
        error = explain(exc, repo, revision)
        near = _nearest(repo)
        if near and "not found" in error.message:
            error = HubError(error.message, cure=f"{error.cure}; {near}")
        raise error from exc
    return Path(folder)


def looks_like_path(text: str) -> bool:
    """Whether an argument that does not exist was meant as a path rather than as org/name."""
    return text.startswith(("/", "./", "../", "~", "\\")) or text in ("", ".", "..") or text.endswith("/")


def split_repo(text: str, revision: str | None = None) -> tuple[str, str | None]:
    """`org/name[@REV]` and a separately given revision as (repository, revision). Raises HubError."""
    repo, at, found = text.partition("@")
    if not _REPO.fullmatch(repo) or ".." in repo or "--" in repo:
        raise HubError(
            f"{text!r:.200} is no folder that exists and no repository's name",
            cure=_join("give the path of a model folder, or ORG/NAME[@REVISION]", _nearest(text)),
        )
    if at:
        if revision is not None and revision != found:
            raise HubError(f"{text}: its revision and the option's, {revision!r}, differ")
        revision = found
    if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise HubError(
            f"{repo}: not a revision: {revision!r:.100}", cure="give a branch, a tag or a commit hash"
        )
    return repo, revision


# --- the cache ---


def list_cached() -> list[CachedModel]:
    """The models in the Hub's cache, by name."""
    try:
        scan = scan_cache_dir(constants.HF_HUB_CACHE)
    except CacheNotFound:
        return []
    models = []
    for repo in scan.repos:
        revisions = sorted(repo.revisions, key=lambda item: ("main" in item.refs, item.last_modified))
        if repo.repo_type == "model" and revisions:
            best = revisions[-1]
            models.append(
                CachedModel(
                    repo.repo_id, best.commit_hash, best.snapshot_path, repo.size_on_disk, repo.last_modified
                )
            )
    return sorted(models, key=lambda item: item.repo)


def remove(repo: str) -> int:
    """Delete `org/name` (everything, interrupted downloads too) or `org/name@REV` from the cache.

    Returns the bytes that became free. Raises HubError when it is not there.
    """
    repo, revision = split_repo(repo)
    storage = _storage(repo)
    if not storage.is_dir():
        raise HubError(f"{repo}: not in the local cache", cure=_nearest(repo))
    if revision is None:
        freed = sum(
            path.lstat().st_size for path in storage.rglob("*") if path.is_file() and not path.is_symlink()
        )
        shutil.rmtree(storage)
        shutil.rmtree(storage.parent / ".locks" / storage.name, ignore_errors=True)
        return freed
    commit = _commit(storage, revision)
    if commit is None or not (storage / "snapshots" / commit).is_dir():
        raise HubError(f"{repo}: revision {revision!r} is not in the local cache")
    strategy = scan_cache_dir(constants.HF_HUB_CACHE).delete_revisions(commit)
    strategy.execute()
    return strategy.expected_freed_size


def _storage(repo: str) -> Path:
    return Path(constants.HF_HUB_CACHE).expanduser() / f"models--{repo.replace('/', '--')}"


def _commit(storage: Path, revision: str | None) -> str | None:
    """The commit that a revision means in the cache."""
    if revision is not None and _COMMIT.fullmatch(revision):
        return revision
    try:
        return (storage / "refs" / (revision or "main")).read_text(encoding="utf-8").strip()
    except OSError:
        return None


def _write_ref(path: Path, commit: str) -> None:
    """Say in the cache what a branch or tag means, now that all its files are there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.saragossa.tmp")
    fresh.write_text(commit, encoding="utf-8")
    fresh.replace(path)


def _cached(repo: str, revision: str | None) -> tuple[Path | None, str]:
    """A complete snapshot, or None and what is wrong."""
    if _commit(_storage(repo), revision) is None:
        return None, "not in the local cache"
    try:
        folder = snapshot_download(
            repo,
            revision=revision,
            cache_dir=constants.HF_HUB_CACHE,
            local_files_only=True,
            allow_patterns=ALLOW,
            ignore_patterns=IGNORE,
        )
        SafetensorsIndex.open(folder)
    except LocalEntryNotFoundError:
        return None, "only a part of it is in the local cache"
    except WeightsError as exc:
        return None, f"only a part of it is in the local cache ({exc.message})"
    return Path(folder), ""


def _nearest(name: str) -> str | None:
    """A line that names the cached models most like `name`, None when there is none."""
    folders = Path(constants.HF_HUB_CACHE).expanduser().glob("models--*--*")
    cached = [folder.name.removeprefix("models--").replace("--", "/", 1) for folder in folders]
    short = {repo.partition("/")[2].lower(): repo for repo in cached}
    wanted = name.partition("@")[0].rstrip("/").rpartition("/")[2].lower()
    found = [short[match] for match in difflib.get_close_matches(wanted, short, n=3, cutoff=0.6)]
    return f"the nearest cached models: {', '.join(found)}" if found else None


def _join(*parts: str | None) -> str:
    return "; ".join(part for part in parts if part)


# --- before a download ---


def _wanted(info: ModelInfo) -> list[RepoSibling]:
    """The files that ALLOW and IGNORE choose."""

    def matches(name: str, patterns: list[str]) -> bool:
        return any(fnmatch(name, pattern) for pattern in patterns)

    return [
        item
        for item in info.siblings or []
        if matches(item.rfilename, ALLOW) and not matches(item.rfilename, IGNORE)
    ]


def _weights(info: ModelInfo) -> list[RepoSibling]:
    return [item for item in _wanted(info) if item.rfilename.endswith(".safetensors")]


def _check_usable(repo: str, info: ModelInfo) -> None:
    """Refuse what cannot be loaded before gigabytes are fetched."""
    from saragossa.models import ADAPTER, ADAPTER_CURE, is_adapter, supported

    names = [item.rfilename for item in info.siblings or []]
    if is_adapter(name for name in names if "/" not in name):
        raise HubError(f"{repo}: {ADAPTER}", cure=ADAPTER_CURE)
    if not _weights(info):
        others = next((name for name in names if name.endswith(".gguf")), None)
        if others:
            raise HubError(
                f"{repo}: holds GGUF files and no safetensors",
                cure=f"fetch {others} yourself and import it: `saragossa convert FILE.gguf OUT`",
            )
        raise HubError(
            f"{repo}: holds no safetensors file", cure="choose a repository with safetensors weights"
        )
    model_type = info.config.get("model_type") if isinstance(info.config, dict) else None
    if isinstance(model_type, str) and model_type not in supported():
        raise HubError(
            f"{repo}: architecture {model_type!r:.80} is not supported",
            cure=f"supported: {', '.join(supported())}",
        )


def _check_space(repo: str, info: ModelInfo) -> None:
    """Compare what is still to be fetched with the free space of the cache's disk."""
    blobs = _storage(repo) / "blobs"
    needed = 0
    for item in _wanted(info):
        name = item.lfs.sha256 if item.lfs is not None else item.blob_id
        there = [blobs / name, partial_file(blobs / name)] if name else []
        kept = max((path.stat().st_size for path in there if path.is_file()), default=0)
        needed += max(0, (item.size or 0) - kept)
    disk = next(folder for folder in (blobs, *blobs.parents) if folder.exists())
    free = shutil.disk_usage(disk).free
    if needed > free:
        raise HubError(
            f"{repo}: {needed / 1e9:.1f} GB to fetch, {free / 1e9:.1f} GB free at {disk}",
            cure="free space, or let HF_HOME name a folder on another disk",
        )
