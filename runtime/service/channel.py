"""The service's end of a worker's channel, on the event loop.

Reading costs one callback for all frames that arrived together; writing never blocks. The channel ends once, with the
reason, and says nothing after that.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast

from runtime.frames import Frame, ToService, encode
from runtime.transport import BadFrame, Splitter

# While this much is unread by the worker no further requests are sent; pings and cancellations still are.
UNREAD_BYTES = 1024 * 1024


class Channel(asyncio.Protocol):
    """Owns its socket from `open` on. All of it belongs to the loop's thread."""

    def __init__(
        self,
        on_frame: Callable[[Frame], None],
        on_end: Callable[[BadFrame | None], None],
        on_drained: Callable[[], None],
    ) -> None:
        """`on_end` is called once: with None when the peer closed between frames, and never after `close`.

        `on_drained` is called when the channel is no longer congested.
        """
        self._on_end = on_end
        self._on_drained = on_drained
        self._splitter = Splitter(ToService, on_frame)
        self._transport: asyncio.Transport | None = None
        self._paused = False

    @classmethod
    async def open(
        cls,
        sock: socket.socket,
        on_frame: Callable[[Frame], None],
        on_end: Callable[[BadFrame | None], None],
        on_drained: Callable[[], None],
    ) -> Channel:
        loop = asyncio.get_running_loop()
        _, channel = await loop.create_connection(lambda: cls(on_frame, on_end, on_drained), sock=sock)
        return channel

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    @property
    def is_congested(self) -> bool:
        """The worker does not read as fast as we write."""
        return self._paused

    def send(self, data: bytes | Frame) -> None:
        """A frame, or one that was encoded before. Dropped once the channel has ended."""
        if self._transport is not None:
            self._transport.write(data if isinstance(data, bytes) else encode(data))

    def close(self) -> None:
        """Drops what is unsent. May be called twice."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    # called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=UNREAD_BYTES)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        try:
            self._splitter.feed(data)
        except BadFrame as error:
            self._end(error)

    def eof_received(self) -> bool:
        try:
            self._splitter.end()
        except BadFrame as error:
            self._end(error)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(None)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._on_drained()

    def _end(self, error: BadFrame | None) -> None:
        if self._transport is not None:
            self.close()
            self._on_end(error)
