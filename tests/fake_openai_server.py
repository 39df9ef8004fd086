"""A server that speaks OpenAI's wire format from a script: no model, no timing of its own.

`mode` plants one fault at a time. A `gate` holds the reply back after that many words until `release` is set or the
client goes away, so that a test can act in the middle of a reply without sleeping.
"""

from __future__ import annotations

import json
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODES = (
    "complete",  # words, finish, usage, [DONE]
    "cut",  # words, then the connection closes as if all were well
    "drop",  # words, then the connection is reset inside a chunk
    "error_midway",  # words, then data: {"error": …}
    "refuse",  # 400 with both numbers before any header of a stream
    "garbage",  # data: that is not JSON
    "not_a_stream",  # 200 with a JSON body
)
USAGE = {
    "prompt_tokens": 12,
    "completion_tokens": 3,
    "total_tokens": 15,
    "prompt_tokens_details": {"cached_tokens": 5},
}
TIMINGS = {
    "prompt_n": 7,
    "prompt_ms": 50.0,
    "prompt_per_second": 140.0,
    "predicted_n": 3,
    "predicted_ms": 60.0,
    "predicted_per_second": 50.0,
    "cache_n": 5,
}
TOO_LONG = {
    "message": "the request (9000 tokens) exceeds the available context size (8192 tokens)",
    "type": "exceed_context_size_error",
    "param": None,
    "code": "context_length_exceeded",
    "n_prompt_tokens": 9000,
    "n_ctx": 8192,
}
HEADRACE = {"name": "headrace", "version": "0.1.0"}


class FakeOpenAiServer:
    """Listens on a free port of 127.0.0.1 while the `with` block runs. Attributes may be changed between requests."""

    def __init__(
        self,
        *,
        words: tuple[str, ...] = ("Hello", " there", "!"),
        mode: str = "complete",
        gate: int | None = None,
        about: dict[str, Any] | None = None,
        models: tuple[str, ...] = ("fake-model",),
        api_key: str | None = None,
        loading: list[float] | None = None,
    ) -> None:
        assert mode in MODES
        self.words = words
        self.mode = mode
        self.gate = gate
        self.about = HEADRACE if about is None else about
        self.models = models
        self.api_key = api_key
        self.loading = loading or []
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.release = threading.Event()
        self.at_gate = threading.Event()
        self.disconnected = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._http.fake = self  # type: ignore[attr-defined]
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> FakeOpenAiServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def fake(self) -> FakeOpenAiServer:
        return self.server.fake  # type: ignore[attr-defined,no-any-return]

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        fake = self.fake
        if self.path == "/":
            self._json(200, fake.about)
        elif self.path == "/health" and fake.loading:
            error = {
                "message": "Loading model",
                "type": "unavailable_error",
                "code": 503,
                "loaded": fake.loading.pop(0),
            }
            self._json(503, {"error": error})
        elif self.path == "/health":
            self._json(200, {"status": "ok"})
        elif self.path == "/v1/models" and self._allowed():
            self._json(200, {"object": "list", "data": [_entry(name) for name in fake.models]})
        elif self.path == "/v1/models":
            self._json(401, {"error": {"message": "wrong API key", "type": "authentication_error", "code": "invalid"}})
        else:
            self._json(404, {"error": {"message": f"no route {self.path}", "type": "not_found_error", "code": 404}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.fake.bodies.append(body)
        self.fake.headers.append(dict(self.headers))
        if not self._allowed():
            self._json(401, {"error": {"message": "wrong API key", "type": "authentication_error", "code": "invalid"}})
        elif self.fake.mode == "refuse":
            self._json(400, {"error": TOO_LONG})
        elif self.fake.mode == "not_a_stream":
            self._json(200, {"choices": []})
        else:
            self._stream("messages" in body)

    def _allowed(self) -> bool:
        return self.fake.api_key is None or self.headers.get("Authorization") == f"Bearer {self.fake.api_key}"

    def _json(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, chat: bool) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for data in self._script(chat):
                self._chunk(data)
            if self.fake.mode == "drop":
                self.wfile.write(b"400\r\nhalf a chunk")
                return
            self.wfile.write(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            self.fake.disconnected.set()

    def _script(self, chat: bool) -> Iterator[str]:
        fake = self.fake
        if chat:
            yield _line({"choices": [_choice({"role": "assistant", "content": None})]})
        yield ": keep-alive\n\n"
        for count, word in enumerate(fake.words):
            if count == fake.gate and not self._passed_gate():
                return
            yield _line({"choices": [_choice({"content": word}) if chat else {"index": 0, "text": word}]})
        if fake.mode == "error_midway":
            error = {"message": "the model process stopped", "type": "engine_error", "code": "engine_crashed"}
            yield _line({"error": error})
        elif fake.mode == "garbage":
            yield "data: {not json\n\n"
        elif fake.mode == "complete":
            yield _line(
                {"choices": [_choice({}, "stop") if chat else {"index": 0, "text": "", "finish_reason": "stop"}]}
            )
            yield _line({"choices": [], "usage": USAGE, "timings": TIMINGS})
            yield "data: [DONE]\n\n"

    def _passed_gate(self) -> bool:
        """Waits for release; False when the client went away first."""
        self.fake.at_gate.set()
        while not self.fake.release.is_set():
            readable, _, _ = select.select([self.connection], [], [], 0.02)
            if readable and self._peer_gone():
                self.fake.disconnected.set()
                return False
        return True

    def _peer_gone(self) -> bool:
        with suppress(ConnectionResetError):
            return self.connection.recv(1, socket.MSG_PEEK) == b""
        return True

    def _chunk(self, data: str) -> None:
        raw = data.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(raw), raw))
        self.wfile.flush()


def _choice(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": reason}


def _entry(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "context_length": 4096}


def _line(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body)}\n\n"
