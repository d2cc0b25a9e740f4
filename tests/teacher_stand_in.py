"""An OpenAI-compatible endpoint on loopback that answers as a script says, well or badly."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-stand-in-0123456789abcdef"


@dataclass(frozen=True)
class Reply:
    """What the endpoint sends back; the default is a good answer without code."""

    text: str | None = "Hello."
    finish: str | None = "stop"
    refusal: str | None = None
    tokens: tuple[int, int] | None = (100, 10)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: str | None = None  # the body, where it is not made from the fields above
    wait_s: float = 0.0
    cut: bool = False  # close the connection in the middle of the body

    def body(self) -> str:
        if self.raw is not None:
            return self.raw
        if self.status != 200:
            return json.dumps({"error": {"message": self.text, "code": None, "type": None}})
        message = {"role": "assistant", "content": self.text, "refusal": self.refusal}
        usage = self.tokens and dict(
            zip(("prompt_tokens", "completion_tokens"), self.tokens, strict=True)
        )
        choice = {"index": 0, "message": message, "finish_reason": self.finish}
        return json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage})

    def events(self) -> str:
        """The body of a good answer that is asked for as a stream: a few letters at a time."""
        text = self.text or ""
        deltas = [({"content": text[i : i + 9]}, None) for i in range(0, len(text), 9)]
        chunks = [
            {
                "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
            }
            for delta, finish in [*deltas, ({}, self.finish)]
        ]
        return "".join(f"data: {data}\n\n" for data in [*map(json.dumps, chunks), "[DONE]"])


@dataclass(frozen=True)
class Asked:
    """A request as it came in."""

    key: str  # Idempotency-Key
    authorization: str
    body: dict[str, Any]

    @property
    def prompt(self) -> str:
        return str(self.body["messages"][-1]["content"])


class StandIn:
    """The endpoint: what it was asked, in order, and the script that it follows.

    The script gets the request and how often it has come, the first time 1.
    """

    def __init__(self, script: Callable[[Asked, int], Reply]) -> None:
        self.script = script
        self.asked: list[Asked] = []
        self._lock = threading.Lock()
        self._times: Counter[str] = Counter()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def take(self, asked: Asked) -> Reply:
        with self._lock:
            self.asked.append(asked)
            self._times[asked.key] += 1
            times = self._times[asked.key]
        if asked.authorization != f"Bearer {KEY}":
            return Reply(f"Incorrect API key: {asked.authorization}", status=401)
        return self.script(asked, times)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                body = json.loads(self.rfile.read(length))
                key, word = self.headers["Idempotency-Key"], self.headers["Authorization"]
                reply = stand_in.take(Asked(key, word, body))
                time.sleep(reply.wait_s)
                streamed = body.get("stream") and reply.status == 200
                content = (reply.events() if streamed else reply.body()).encode()
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header(
                    "Content-Type", "text/event-stream" if streamed else "application/json"
                )
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if reply.cut else content)
                self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler

    @contextmanager
    def serving(self) -> Iterator[StandIn]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()
