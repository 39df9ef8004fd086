"""uvicorn's HTTP protocol with the limits it lacks: header bytes while they come in, a deadline for a whole request, a
bound on connections, and an end for readers that read nothing.

Everything here runs in the event loop's callbacks of one connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from models import limits
from runtime.errors import HeadersTooLarge, HeadraceError, InvalidRequest, Overloaded

_PHRASES = {400: b"Bad Request", 429: b"Too Many Requests", 431: b"Request Header Fields Too Large"}


@dataclass(frozen=True, slots=True)
class Bounds:
    """Times in seconds. `stall_s` is how long a reader may leave a full send buffer untouched."""

    connections: int
    receive_s: float
    stall_s: float


def bounded_protocol(bounds: Bounds) -> type[asyncio.Protocol]:
    """A protocol class for uvicorn's `http` option: httptools where it is installed, else h11."""
    return type("BoundedProtocol", (_Bounded, _fastest()), {"bounds": bounds})


def _fastest() -> type[asyncio.Protocol]:
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    except ImportError:
        from uvicorn.protocols.http.h11_impl import H11Protocol

        return H11Protocol
    return HttpToolsProtocol


class _Bounded(asyncio.Protocol):
    """Put in front of one of uvicorn's protocols, whose attributes it reads: `cycle`, `connections`, `loop`."""

    bounds: ClassVar[Bounds]
    cycle: Any
    connections: set[Any]
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    url: bytes

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._since = 0.0

    @property
    def receiving(self) -> bool:
        """No complete request is being answered: the connection idles, or its client is still sending."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._since = self.loop.time()
        if len(self.connections) >= self.bounds.connections and not self._make_room():
            self.transport = transport  # type: ignore[assignment]
            self._refuse(Overloaded(f"{self.bounds.connections} connections are open, which is the limit; close some"))
            return
        super().connection_made(transport)
        self._deadline = self.loop.call_later(self.bounds.receive_s, self._too_slow)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        reading_body = before is not None and before.more_body
        if not reading_body:
            self._head_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self.cycle is not before:
            self._head_bytes = 0
        elif self._head_bytes > limits.HEADER_BYTES:
            self._refuse(_head_too_large())
            return
        self._set_deadline()

    def connection_lost(self, error: Exception | None) -> None:
        self._cancel(self._deadline)
        self._cancel(self._stall)
        super().connection_lost(error)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall = self.loop.call_later(self.bounds.stall_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel(self._stall)
        super().resume_writing()

    def on_headers_complete(self) -> None:
        """httptools takes an absolute address apart and hides whose it was; h11 leaves it to the guard."""
        if not self.url.startswith(b"/"):
            raise ValueError("the request target is not a path")
        super().on_headers_complete()  # type: ignore[misc]

    def send_400_response(self, msg: str) -> None:
        """What uvicorn calls when the parser gave up."""
        if self._head_bytes > limits.HEADER_BYTES:
            self._refuse(_head_too_large())
        else:
            self._refuse(InvalidRequest("this is not a valid HTTP/1.1 request"))

    def _set_deadline(self) -> None:
        if not self.receiving:
            self._cancel(self._deadline)
            self._deadline = None
        elif self._deadline is None:
            self._since = self.loop.time()
            self._deadline = self.loop.call_later(self.bounds.receive_s, self._too_slow)

    def _too_slow(self) -> None:
        self._deadline = None
        # A reply may have been complete before the client had sent everything: then uvicorn's keep-alive decides.
        if self.receiving and not self.transport.is_closing():
            self.transport.close()

    def _make_room(self) -> bool:
        """Close the connection that has been idle or sending for longest. False when all are being answered."""
        candidates = [other for other in self.connections if other.receiving and not other.transport.is_closing()]
        if not candidates:
            return False
        oldest = min(candidates, key=_since)
        oldest.transport.abort()
        self.connections.discard(oldest)
        return True

    def _refuse(self, error: HeadraceError) -> None:
        """Answer without the application and close."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            info = error.info()
            said = {"message": info.message, "type": info.type, "param": None, "code": info.code}
            body = msgspec.json.encode({"error": said})
            head = b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\n" % (info.status, _PHRASES[info.status])
            tail = b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            self.transport.write(head + tail + body)
        self.transport.close()

    @staticmethod
    def _cancel(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


_since: Callable[[Any], float] = lambda connection: connection._since  # noqa: E731


def _head_too_large() -> HeadersTooLarge:
    return HeadersTooLarge(f"the request's headers exceed {limits.HEADER_BYTES} bytes")
