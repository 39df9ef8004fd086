"""The client's end of one request while its reply is written.

Owns the only `receive` call of that time: it returns when the client has left. Breaks the silence of an open stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from starlette.types import Receive, Send

from runtime.service.chunks import COMMENT

Headers = Sequence[tuple[bytes, bytes]]


class Line:
    """`gone` is true once the client has left; what is written then goes nowhere."""

    def __init__(self, receive: Receive, send: Send, comment_s: float) -> None:
        self.gone = False
        self.started = False
        self._receive = receive
        self._send = send
        self._comment_s = comment_s
        self._loop = asyncio.get_running_loop()
        self._open = False
        self._writing = False
        self._wrote_at = 0.0

    async def start(self, status: int, headers: Headers) -> None:
        """Status and headers of a stream; they go out at once."""
        self.started = self._open = True
        self._wrote_at = self._loop.time()
        await self._send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def write(self, data: bytes) -> None:
        self._writing = True
        try:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            self._writing = False
            self._wrote_at = self._loop.time()

    async def end(self, data: bytes) -> None:
        """The last of the stream."""
        self._open = False
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def whole(self, status: int, headers: Headers, body: bytes) -> None:
        """A reply in one piece."""
        self.started = True
        length = (b"content-length", b"%d" % len(body))
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def watch(self, on_gone: Callable[[], None]) -> None:
        """Runs beside the reply until it is cancelled or the client leaves."""
        left = asyncio.ensure_future(self._until_left())
        try:
            while not (await asyncio.wait({left}, timeout=self._patience()))[0]:
                if self._open and not self._writing and self._patience() <= 0:
                    await self.write(COMMENT)
            self.gone = True
            on_gone()
        finally:
            left.cancel()

    def _patience(self) -> float:
        if not self._open or self._writing:
            return self._comment_s
        return max(0.0, self._wrote_at + self._comment_s - self._loop.time())

    async def _until_left(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
