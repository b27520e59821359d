"""Where a model lies: a folder, the demo model, or a repository of the Hub."""

from __future__ import annotations

from pathlib import Path

from saragossa.errors import HubError, UsageError

DEMO = "demo"


def locate(
    path_or_repo: str | Path,
    *,
    revision: str | None = None,
    allow_download: bool = True,
    progress: bool = False,
) -> Path:
    """The folder of a model, fetched where it is missing if allowed. Raises HubError or ModelError."""
    if not isinstance(path_or_repo, str | Path):
        raise UsageError(f"a model is a path or a repository's name, not {type(path_or_repo).__name__}")
    if not str(path_or_repo).strip():
        raise UsageError("the model's name is empty", cure="give a folder, ORG/NAME, or demo")
    if revision is not None and not isinstance(revision, str):
        raise UsageError(f"revision: found {revision!r}, accepted is a branch, a tag or a commit hash")
    if path_or_repo == DEMO:
        from saragossa.weights.demo import demo_folder, demo_model

        if not allow_download and not demo_folder().is_dir():
            raise HubError("demo: not in the local cache", cure="fetch it: `saragossa pull demo`")
        return demo_model(progress=progress)
    if revision is None and (folder := Path(path_or_repo).expanduser()).is_dir():
        return folder  # without the Hub's client, whose import takes longer than all else
    from saragossa.weights.hub import resolve

    return resolve(path_or_repo, revision=revision, allow_download=allow_download, progress=progress)
