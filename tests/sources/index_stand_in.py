"""A package index: a real HTTP server on this machine, and pip configured for it."""

from __future__ import annotations

import hashlib
import http.server
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from curate.sources import index


@dataclass
class Index:
    """A simple index; ``cuts`` and ``failures`` say how many requests for files go wrong.

    ``yanked`` has the reasons by file.
    """

    files: dict[str, bytes]
    yanked: dict[str, str] = field(default_factory=dict)
    root: str = ""
    cuts: int = 0
    failures: int = 0
    ranges: bool = True
    hashes: bool = True
    page_status: int = 200
    requests: list[str] = field(default_factory=list)

    def page(self) -> bytes:
        links = [
            f'<a href="/files/{name}{f"#sha256={sha(body)}" if self.hashes else ""}"'
            f"{self._yank(name)}>{name}</a>"
            for name, body in self.files.items()
        ]
        return "<!DOCTYPE html><html><body>{}</body></html>".format("\n".join(links)).encode()

    def _yank(self, name: str) -> str:
        return f' data-yanked="{self.yanked[name]}"' if name in self.yanked else ""


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextmanager
def serve(state: Index, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Answer as ``state`` says, and let pip's configuration name this index alone."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests.append(f"{self.path} {self.headers.get('Range', '')}".strip())
            if self.path == "/simple/demo-pkg/":
                self.answer(state.page_status, state.page(), {"Content-Type": "text/html"})
            elif self.path.startswith("/files/"):
                self.file(state.files[self.path.removeprefix("/files/")])
            else:
                self.answer(404, b"")

        def file(self, body: bytes) -> None:
            if state.failures:
                state.failures -= 1
                return self.answer(503, b"")
            asked = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
            if not asked or not state.ranges:
                return self.answer(200, body)
            start = int(asked[1])
            if start >= len(body):
                return self.answer(416, b"")
            span = f"bytes {start}-{len(body) - 1}/{len(body)}"
            return self.answer(206, body[start:], {"Content-Range": span})

        def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(key, value)
            self.end_headers()
            if state.cuts and status in (200, 206) and self.path.startswith("/files/"):
                state.cuts -= 1
                self.wfile.write(body[: len(body) // 2])
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    state.root = f"127.0.0.1:{server.server_port}"
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"http://{state.root}/simple/")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(index, "_wait", lambda attempt: None)
    yield
    server.shutdown()
    server.server_close()
