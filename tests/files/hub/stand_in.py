"""A hub on this machine: answers /REPO/resolve/REVISION/FILE as the Hugging Face hub does.

Knows commits and branches, gated and private repositories, tokens, and large files that lie on
another host; writes down every request for a file. Leaves out the hub's other interfaces.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import pytest

from npgpt.files.hub import find_model

TOKEN = "hf_good"
SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
INDEX = "model.safetensors.index.json"
VOCABULARY = {"vocab.json": b'{"a": 0}', "merges.txt": b"#version: 0.2\n"}
RESOLVE = re.compile(r"/((?:[^/]+/)?[^/]+)/resolve/([^/]+)/(.+)")


@dataclass
class Repository:
    """Files by commit, and what the names of revisions stand for; "open", "gated" or "private"."""

    files: dict[str, dict[str, bytes]]
    revisions: dict[str, str]
    access: str = "open"


@dataclass
class Request:
    """One line of the hub's log."""

    method: str
    host: str
    path: str
    token: str | None


@dataclass
class HubStandIn:
    """The server, as a context manager; `url` is its address."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    log: list[Request] = field(default_factory=list)
    delay: float = 0.0  # seconds before an answer

    def add(self, name: str, files: dict[str, bytes], access: str = "open") -> Repository:
        """A repository with one commit, `main`."""
        commit = hashlib.sha1(name.encode()).hexdigest()
        repository = Repository({commit: files}, {"main": commit, commit: commit}, access)
        self.repositories[name] = repository
        return repository

    def asked(self, method: str = "HEAD") -> list[str]:
        """The files asked for, in order, without what was asked twice in a row to reach the hub."""
        paths = [r.path for r in self.log if r.method == method]
        files = [m[3] for m in map(RESOLVE.fullmatch, paths) if m]
        return files[1:] if method == "HEAD" and files[:1] == files[1:2] else files

    def __enter__(self) -> HubStandIn:
        handler = type("BoundHandler", (Handler,), {"hub": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.other_host = f"http://localhost:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.server.shutdown()
        self.server.server_close()


class Handler(BaseHTTPRequestHandler):
    """One request."""

    hub: HubStandIn

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing on stderr."""

    def answer(self) -> None:
        time.sleep(self.hub.delay)
        token = (self.headers["Authorization"] or "").removeprefix("Bearer ") or None
        host = self.headers["Host"].split(":")[0]
        match = RESOLVE.fullmatch(self.path)
        if not match and not self.path.startswith("/large/"):
            self.send(404, {})
            return
        self.hub.log.append(Request(self.command, host, self.path, token))
        if match:
            self.answer_resolve(match[1], match[2], match[3], token)
        else:
            self.answer_large(self.path.removeprefix("/large/"))

    def answer_resolve(self, name: str, revision: str, file: str, token: str | None) -> None:
        repository = self.hub.repositories.get(name)
        if token not in (None, TOKEN):
            self.send(401, {"X-Error-Message": "Invalid credentials in Authorization header"})
        elif not repository or (repository.access == "private" and token != TOKEN):
            self.send(401, {"X-Error-Code": "RepoNotFound"})
        elif repository.access == "gated":
            self.send(403 if token else 401, {"X-Error-Code": "GatedRepo"})
        elif revision not in repository.revisions:
            self.send(404, {"X-Error-Code": "RevisionNotFound"})
        else:
            commit = repository.revisions[revision]
            content = repository.files[commit].get(file)
            self.answer_file(file, content, {"X-Repo-Commit": commit})

    def answer_file(self, file: str, content: bytes | None, headers: dict[str, str]) -> None:
        if content is None:
            self.send(404, {**headers, "X-Error-Code": "EntryNotFound"})
            return
        digest = hashlib.sha256(content).hexdigest()
        if file.endswith(".safetensors"):
            where = f"{self.hub.other_host}/large/{digest}"
            linked = {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(content))}
            self.send(302, {**headers, **linked, "Location": where})
        else:
            self.send(200, {**headers, "ETag": f'"{digest}"'}, content)

    def answer_large(self, digest: str) -> None:
        contents = (
            content
            for repository in self.hub.repositories.values()
            for files in repository.files.values()
            for content in files.values()
        )
        self.send(200, {}, next(c for c in contents if hashlib.sha256(c).hexdigest() == digest))

    def send(self, status: int, headers: dict[str, str], content: bytes = b"") -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)


def refusal(kind: type[Exception], name: str, *args: Any, **options: Any) -> str:
    """The one sentence with which a name is refused."""
    with pytest.raises(kind) as caught:
        find_model(name, *args, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)
