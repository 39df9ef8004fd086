"""One request to an ASGI application without a server: every message it sends is seen when it is sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

PATIENCE_S = 20.0
HOST = (b"host", b"127.0.0.1:8033")
JSON = (b"content-type", b"application/json")


class AsgiCall:
    """`leave` is the client closing its connection. Headers are sent as given, repeated ones too."""

    def __init__(
        self,
        app: Any,
        method: str,
        path: str,
        body: Any = b"",
        *,
        headers: Sequence[tuple[bytes, bytes]] = (HOST, JSON),
        server: tuple[str, int] = ("127.0.0.1", 8033),
    ) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.sent: list[dict[str, Any]] = []
        self.n_receives_waiting = 0
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": list(headers),
            "server": server,
            "client": ("127.0.0.1", 50000),
        }
        self._inbox: list[dict[str, Any]] = [{"type": "http.request", "body": raw, "more_body": False}]
        self._left = asyncio.Event()
        self._changed = asyncio.Condition()
        self._task = asyncio.create_task(app(self._scope, self._receive, self._send))

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode().lower(): value.decode("latin-1") for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])

    @property
    def complete(self) -> bool:
        return len(self.sent) > 1 and not self.sent[-1].get("more_body", False)

    def json(self) -> Any:
        return json.loads(self.body)

    def leave(self) -> None:
        self._left.set()

    async def end(self) -> AsgiCall:
        """Wait until the application is done with the request."""
        async with asyncio.timeout(PATIENCE_S):
            await self._task
        return self

    async def until(self, holds: Callable[[AsgiCall], bool]) -> AsgiCall:
        """Wait until what was sent satisfies `holds`."""
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(lambda: holds(self))
        return self

    async def _receive(self) -> dict[str, Any]:
        if self._inbox:
            return self._inbox.pop(0)
        self.n_receives_waiting += 1
        try:
            await self._left.wait()
        finally:
            self.n_receives_waiting -= 1
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        assert not self.complete, f"sent after the end: {message}"
        self.sent.append(message)
        async with self._changed:
            self._changed.notify_all()


async def call(app: Any, method: str, path: str, body: Any = b"", **how: Any) -> AsgiCall:
    return await AsgiCall(app, method, path, body, **how).end()
