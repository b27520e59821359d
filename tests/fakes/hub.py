"""A fake Hugging Face Hub on loopback: the few routes that a download takes, and what it was asked."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]


@dataclass
class FakeHub:
    """`repos` is name -> file -> bytes; `answers` overrides a path prefix by a status and headers.

    `storage` is another host's address that files are redirected to; `cut` breaks a file's first answers
    off after so many bytes, as often as it says, and `short` ends them there as if that were all (after the
    cuts); `whole` lets the server ignore ranges. `commits` are the branch's, listing by listing.
    """

    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    answers: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)
    configs: dict[str, dict[str, Any]] = field(default_factory=dict)
    storage: str | None = None
    cut: dict[str, tuple[int, int]] = field(default_factory=dict)
    short: dict[str, tuple[int, int]] = field(default_factory=dict)
    commits: list[str] = field(default_factory=list)
    whole: bool = False
    requests: list[Request] = field(default_factory=list)
    url: str = ""

    def paths(self, method: str) -> list[str]:
        return [request.path for request in self.requests if request.method == method]

    def fetched(self) -> list[str]:
        """Names of the files that were sent."""
        return sorted(path.rpartition("/")[2] for path in self.paths("GET") if "/resolve/" in path)


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _listing(files: Mapping[str, bytes]) -> list[dict[str, Any]]:
    listing: list[dict[str, Any]] = []
    for name, data in files.items():
        oid = hashlib.sha1(data, usedforsecurity=False).hexdigest()
        item = {"type": "file", "path": name, "rfilename": name, "size": len(data), "oid": oid, "blobId": oid}
        if name.endswith(".safetensors"):
            digest = _etag(name, data)
            item["lfs"] = {"sha256": digest, "oid": digest, "size": len(data), "pointerSize": 130}
        listing.append(item)
    return listing


def _etag(name: str, data: bytes) -> str:
    """Weights are large files, named by SHA-256; the rest are git blobs."""
    large = name.endswith(".safetensors")
    return (
        hashlib.sha256(data).hexdigest() if large else hashlib.sha1(data, usedforsecurity=False).hexdigest()
    )


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer()

        def do_GET(self) -> None:
            self.answer()

        def answer(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.requests.append(Request(self.command, path, {k.lower(): v for k, v in self.headers.items()}))
            for prefix, (status, headers) in hub.answers.items():
                if path.startswith(prefix):
                    return self.send(status, headers=headers)
            parts = path.strip("/").split("/")
            if parts[:2] == ["api", "models"]:
                return self.api("/".join(parts[2:4]), parts[4:])
            if len(parts) > 4 and parts[2] == "resolve":
                return self.file("/".join(parts[:2]), "/".join(parts[4:]))
            return self.send(404)

        def api(self, repo: str, rest: list[str]) -> None:
            if repo not in hub.repos:
                return self.send(401, headers={"X-Error-Code": "RepoNotFound"})
            if rest[:1] == ["revision"] and rest[1] not in ("main", COMMIT):
                return self.send(404, headers={"X-Error-Code": "RevisionNotFound"})
            files = _listing(hub.repos[repo])
            if rest[:1] == ["tree"]:
                return self.send(200, json.dumps(files).encode())
            sha = hub.commits.pop(0) if hub.commits else COMMIT
            info = {"id": repo, "sha": sha, "siblings": files, "config": hub.configs.get(repo)}
            return self.send(200, json.dumps(info).encode())

        def file(self, repo: str, name: str) -> None:
            data = hub.repos.get(repo, {}).get(name)
            if data is None:
                return self.send(404, headers={"X-Error-Code": "EntryNotFound"})
            headers = {"ETag": f'"{_etag(name, data)}"', "X-Repo-Commit": COMMIT}
            if hub.storage:
                headers |= {"Location": hub.storage + self.path, "X-Linked-Size": str(len(data))}
                return self.send(302, headers={**headers, "X-Linked-Etag": headers["ETag"]})
            wanted = self.headers.get("Range")
            if wanted and not hub.whole:
                start = int(wanted.removeprefix("bytes=").partition("-")[0])
                headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
                return self.send(206, data[start:], headers, name)
            return self.send(200, data, headers, name)

        def send(
            self, status: int, data: bytes = b"", headers: Mapping[str, str] | None = None, name: str = ""
        ) -> None:
            size, times = hub.short.get(name, (0, 0))
            if times and self.command == "GET" and not hub.cut.get(name, (0, 0))[1]:
                hub.short[name] = (size, times - 1)
                data = data[:size]
            self.send_response(status)
            for key, value in (headers or {}).items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "HEAD":
                return
            size, times = hub.cut.get(name, (0, 0))
            if times:
                hub.cut[name] = (size, times - 1)
                data = data[:size]
                self.close_connection = True
            self.wfile.write(data)

    return Handler
