"""Fetch the weights of a repository into the Hub's cache, so that a killed download goes on where it stopped.

The Hub's client starts a file anew after its process has died. Weights are large, so they are fetched here:
into `blobs/HASH` of the shared cache, where the client finds them and links them into the snapshot. What has
arrived is kept in `HASH.saragossa.incomplete`; the finished file is checked against its hash.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from huggingface_hub import constants, get_session, hf_hub_url, hf_raise_for_status
from huggingface_hub.hf_api import RepoSibling
from huggingface_hub.utils import WeakFileLock, build_hf_headers  # type: ignore[attr-defined]  # both documented
from tqdm.auto import tqdm

from saragossa.errors import HubError
from saragossa.weights.hub_errors import is_connection

WORKERS = 4
ATTEMPTS = 5  # in a row without a byte
LARGEST = 50_000_000_000  # above it the Hub serves no plain HTTP; its client fetches by other means
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Blob:
    """A file to fetch; `path` is where it belongs, `sha256` its hash and name."""

    name: str
    url: str
    path: Path
    nbytes: int
    sha256: str

    @property
    def part(self) -> Path:
        return partial_file(self.path)


def partial_file(blob: Path) -> Path:
    """Where the bytes of an unfinished download are kept."""
    return blob.with_name(f"{blob.name}.saragossa.incomplete")


def fetch_weights(
    repo: str, commit: str, files: Sequence[RepoSibling], storage: Path, *, progress: bool
) -> None:
    """Fetch the large files among `files` into the blobs of `storage`, the repository's folder in the cache.

    Raises HubError on a broken file, else what the Hub's client and its HTTP library raise.
    """
    blobs = [
        Blob(
            item.rfilename,
            hf_hub_url(repo, item.rfilename, revision=commit, endpoint=constants.ENDPOINT),
            storage / "blobs" / item.lfs.sha256,
            item.size,
            item.lfs.sha256,
        )
        for item in files
        if item.lfs is not None and item.size is not None and item.size <= LARGEST
    ]
    blobs = [blob for blob in blobs if not blob.path.exists()]
    if not blobs:
        return
    (storage / "blobs").mkdir(parents=True, exist_ok=True)
    locks = storage.parent / ".locks" / storage.name
    locks.mkdir(parents=True, exist_ok=True)
    bar = tqdm(
        total=sum(blob.nbytes for blob in blobs),
        unit="B",
        unit_scale=True,
        desc=repo,
        disable=not progress,
    )
    stop = threading.Event()

    def fetch(blob: Blob) -> None:
        with WeakFileLock(locks / f"{blob.sha256}.lock"):
            if not blob.path.exists():
                _fetch(blob, bar, stop)

    with bar, ThreadPoolExecutor(WORKERS) as pool:
        try:
            for done in [pool.submit(fetch, blob) for blob in blobs]:
                done.result()
        except BaseException:
            stop.set()  # Ctrl-C or an error: the others stop at their next chunk
            pool.shutdown(cancel_futures=True)
            raise


class _Part:
    """The bytes that have arrived, their number and running hash always in step with the file."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.have = 0
        self.digest = hashlib.sha256()
        file.seek(0)
        while data := file.read(_CHUNK):
            self.digest.update(data)
            self.have += len(data)

    def write(self, data: bytes) -> None:
        self.file.write(data)
        self.digest.update(data)
        self.have += len(data)

    def restart(self) -> None:
        self.file.seek(0)
        self.file.truncate()
        self.have = 0
        self.digest = hashlib.sha256()


def _fetch(blob: Blob, bar: tqdm, stop: threading.Event) -> None:  # type: ignore[type-arg]
    """Fetch what is missing of one file, check it, and give it its name."""
    with blob.part.open("a+b") as file:
        part = _Part(file)
        bar.update(part.have)
        failures = 0
        while part.have < blob.nbytes:
            before = part.have
            problem: Exception | None = None
            try:
                _stream(blob, part, bar, stop)
            except Exception as exc:
                if not is_connection(exc):
                    raise
                problem = exc
            if part.have >= blob.nbytes:
                break
            failures = 1 if part.have > before else failures + 1
            if failures >= ATTEMPTS:
                raise problem or HubError(
                    f"{blob.name}: the Hub sent {part.have} of {blob.nbytes} bytes",
                    cure="fetch it again: it goes on where it stopped",
                )
            time.sleep(min(0.5 * 2**failures, 8))
    if part.have != blob.nbytes or part.digest.hexdigest() != blob.sha256:
        blob.part.unlink()
        raise HubError(
            f"{blob.name}: {part.have} bytes arrived that are not the file of {blob.nbytes} bytes",
            cure="fetch it again",
        )
    blob.part.replace(blob.path)


def _stream(blob: Blob, part: _Part, bar: tqdm, stop: threading.Event) -> None:  # type: ignore[type-arg]
    """One request for the rest of a file. The client drops the token on a redirect to another host."""
    headers = {**build_hf_headers(library_name="saragossa"), "Accept-Encoding": "identity"}
    if part.have:
        headers["Range"] = f"bytes={part.have}-"
    with get_session().stream("GET", blob.url, headers=headers, follow_redirects=True) as response:
        hf_raise_for_status(response)
        if part.have and not _continues(response.headers.get("Content-Range"), part.have):
            bar.update(-part.have)
            part.restart()
        for data in response.iter_bytes():
            if stop.is_set():
                raise HubError(f"{blob.name}: stopped")
            if part.have + len(data) > blob.nbytes:
                raise HubError(f"{blob.name}: the Hub sends more than the {blob.nbytes} bytes it announced")
            part.write(data)
            bar.update(len(data))


def _continues(content_range: str | None, have: int) -> bool:
    """Whether an answer goes on at the byte that was asked for, rather than being the whole file."""
    return content_range is not None and content_range.startswith(f"bytes {have}-")
