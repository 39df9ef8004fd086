"""The service over a `FakeBackend`: as an ASGI application, and as a real server on a free port of 127.0.0.1."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from fakes import FakeBackend
from fastapi import FastAPI

from runtime.config import ServiceOptions
from runtime.service.app import create_app
from runtime.service.listen import listen, port_of
from runtime.service.server import Server, loop_factory

OPTIONS = ServiceOptions("fake-model", "/somewhere/private/fake-model.gguf")
USER = [{"role": "user", "content": "hi there"}]
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


def application(backend: FakeBackend, *, comment_s: float = 60.0, **options: Any) -> FastAPI:
    return create_app(replace(OPTIONS, **options), backend, comment_s=comment_s)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run the body of a test in an event loop of its own."""
    asyncio.run(test())


class LiveServer:
    """uvicorn with our protocol in a thread while the `with` block runs. `backend` lives in that thread's loop."""

    def __init__(self, backend: FakeBackend | None = None, *, comment_s: float = 60.0, **options: Any) -> None:
        self.backend = backend or FakeBackend()
        self._options = replace(OPTIONS, **options)
        self._comment_s = comment_s
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.listeners = listen("127.0.0.1", 0)
        self.port = port_of(self.listeners[0])
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> LiveServer:
        self._thread.start()
        assert self._listening.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._thread.join(20)
        assert not self._thread.is_alive()

    def stop(self) -> None:
        assert self._loop is not None
        assert self._server is not None
        self.soon(self._server.stop)

    def soon(self, act: Callable[[], Any]) -> None:
        """Do something to the backend in its own thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(act)

    def wait(self, thing: Coroutine[Any, Any, Any]) -> Any:
        """Wait for something in the backend's loop."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(thing, 20), self._loop).result(30)

    def connect(self) -> socket.socket:
        """A raw connection to the server."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def exchange(self, *pieces: bytes) -> bytes:
        """Send raw bytes and read until the server closes or answers with a whole response."""
        with self.connect() as connection:
            for piece in pieces:
                connection.sendall(piece)
            return read_response(connection)

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        options = replace(self._options, port=self.port)
        app = create_app(options, self.backend, comment_s=self._comment_s)
        self._server = Server(app, options, self.backend, self._listening.set)
        await self._server.serve(sockets=self.listeners)


def read_response(connection: socket.socket) -> bytes:
    """One response with a Content-Length, or whatever comes before the server closes."""
    data = b""
    while True:
        try:
            piece = connection.recv(65536)
        except ConnectionResetError:
            return data
        if not piece:
            return data
        data += piece
        head, found, body = data.partition(b"\r\n\r\n")
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if found and lengths and len(body) >= int(lengths[0].partition(b":")[2]):
            return data


def status_of(response: bytes) -> int:
    return int(response.split(b" ", 2)[1]) if response else 0
