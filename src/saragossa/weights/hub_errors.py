"""What the Hub's client raises, as one clear line with the cure; a token never gets into a message."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from urllib.parse import urlsplit

from huggingface_hub import constants, get_token
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from saragossa.errors import HubError

# By name: the client's HTTP library differs between its versions.
_CONNECTION = {
    "ConnectError", "ConnectTimeout", "ConnectionError", "ReadTimeout", "ReadError", "RemoteProtocolError",
    "ProxyError", "PoolTimeout", "TimeoutException", "SSLError", "ChunkedEncodingError",
}  # fmt: skip


def explain(exc: Exception, repo: str, revision: str | None = None) -> HubError:
    """The HubError that says what `exc` means for `repo`."""
    chain = list(_chain(exc))
    for error in chain:
        if isinstance(error, (HfHubHTTPError, HFValidationError, OfflineModeIsEnabled)):
            return _from_client(error, repo, revision)
    for error in chain:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return HubError(
                f"{repo}: the disk is full", cure="free space, or let HF_HOME name a folder on another disk"
            )
        if is_connection(error):
            return HubError(
                f"{repo}: no connection to {endpoint()} ({type(error).__name__})",
                cure="check network, proxy and HF_ENDPOINT; a broken download goes on where it stopped",
            )
    return HubError(f"{repo}: {type(exc).__name__}: {redact(str(exc).strip().splitlines()[:1])}")


def is_connection(error: BaseException) -> bool:
    """Whether the network failed, rather than the Hub having answered."""
    return any(kind.__name__ in _CONNECTION for kind in type(error).__mro__)


def endpoint() -> str:
    """HF_ENDPOINT without a user and password."""
    parts = urlsplit(constants.ENDPOINT)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def redact(lines: list[str]) -> str:
    """The lines as one, bounded, without the token."""
    text = " ".join(lines)[:300]
    token = get_token()
    return text.replace(token, "***") if token else text


def _chain(exc: BaseException | None) -> Iterator[BaseException]:
    """The exception and what it came from, outermost first."""
    for _ in range(16):
        if exc is None:
            return
        yield exc
        exc = exc.__cause__ or exc.__context__


def _from_client(error: Exception, repo: str, revision: str | None) -> HubError:
    if isinstance(error, OfflineModeIsEnabled):
        return offline(repo)
    if isinstance(error, HFValidationError):
        return HubError(f"{repo}: not the name of a repository", cure="a repository is ORG/NAME")
    if isinstance(error, GatedRepoError):
        return _gated(repo)
    if isinstance(error, RevisionNotFoundError):
        return HubError(f"{repo} has no revision {revision!r}", cure="give a branch, a tag or a commit hash")
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else 0
    if status == 401 and get_token() and not isinstance(error, RepositoryNotFoundError):
        return HubError(
            f"{repo}: the Hub refuses the token (401)",
            cure="export a valid HF_TOKEN, or unset it for a public one",
        )
    if status in (401, 404):
        return not_found(repo)
    return _from_status(error, status, repo)


def _gated(repo: str) -> HubError:
    page = f"{endpoint()}/{repo}"
    if get_token():
        return HubError(
            f"{repo} is gated, and the account of your token has no access",
            cure=f"accept the licence at {page} with the account that HF_TOKEN belongs to",
        )
    return HubError(
        f"{repo} is gated: its licence must be accepted first",
        cure=f"accept it at {page}, make a token at {endpoint()}/settings/tokens and export HF_TOKEN",
    )


def _from_status(error: Exception, status: int, repo: str) -> HubError:
    headers = error.response.headers if isinstance(error, HfHubHTTPError) else {}
    if status == 403:
        return HubError(
            f"{repo}: access forbidden (403)",
            cure="export an HF_TOKEN that may read this repository (its account, its scopes)",
        )
    if status == 429:
        wait = str(headers.get("Retry-After", ""))[:40]
        when = f"wait {wait} s" if wait.isdigit() else f"wait until {wait}" if wait else "wait a few minutes"
        hint = "" if get_token() else ", or export HF_TOKEN for a higher limit"
        return HubError(f"{repo}: the Hub's rate limit is reached (429)", cure=f"{when} and try again{hint}")
    if status >= 500:
        return HubError(f"{repo}: {endpoint()} is out of order ({status})", cure="try again later")
    return HubError(f"{repo}: the Hub answered {status}")


def not_found(repo: str) -> HubError:
    """The Hub does not tell a missing repository from a private one."""
    if get_token():
        return HubError(
            f"{repo}: not found on {endpoint()}, or private to others",
            cure="check the name, and that HF_TOKEN's account may read it",
        )
    return HubError(
        f"{repo}: not found on {endpoint()}, or private",
        cure="check the name; for a private repository export HF_TOKEN",
    )


def offline(repo: str, problem: str = "not in the local cache") -> HubError:
    """Nothing complete is cached and nothing may be fetched."""
    return HubError(f"{repo}: {problem}, and HF_HUB_OFFLINE is set", cure="unset HF_HUB_OFFLINE to fetch it")
