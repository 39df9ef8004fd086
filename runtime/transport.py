"""The channel between service and worker: frames over one stream socket.

`Splitter` turns bytes into frames on both ends. `Transport` is the worker's end, for threads; the service's end, for
the event loop, is `runtime/service/channel.py`. What is not a whole, known frame of the agreed size ends the channel.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from runtime.errors import EngineCrashed
from runtime.frames import HEADER, MAX_FRAME_BYTES, Frame, decoder, encode

READ_BYTES = 256 * 1024
# What may wait for a peer that does not read. More means that it hangs, and the channel ends.
OUTGOING_BYTES = 64 * 1024 * 1024
# Windows has no flag for one send that must not block; there the writer thread sends everything.
_DONT_WAIT: int | None = getattr(socket, "MSG_DONTWAIT", None)


class BadFrame(EngineCrashed):
    """The peer sent what is no frame: too long, malformed, or of the other direction."""


class Splitter:
    """Bytes in, frames out to `sink`. Owned by whoever reads the socket."""

    def __init__(self, union: Any, sink: Callable[[Any], None], *, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._decode = decoder(union).decode
        self._sink = sink
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        self._wanted = HEADER.size

    def feed(self, data: bytes) -> None:
        """Hand over every frame that is now whole. Raises BadFrame, after the good frames in front of it."""
        buffer = self._buffer
        buffer += data
        if len(buffer) < self._wanted:
            return
        start, n_held = 0, len(buffer)
        with memoryview(buffer) as view:
            while True:
                body = start + HEADER.size
                self._wanted = HEADER.size
                if body > n_held:
                    break
                (size,) = HEADER.unpack_from(view, start)
                if size > self._max_bytes:
                    raise BadFrame(f"a frame of {size} bytes, {self._max_bytes} are allowed")
                self._wanted += size
                if body + size > n_held:
                    break
                with view[body : body + size] as raw:
                    frame = self._one(raw)
                start = body + size
                self._sink(frame)
        del buffer[:start]

    def end(self) -> None:
        """The peer closed. Raises BadFrame if it did so inside a frame."""
        if self._buffer:
            raise BadFrame(f"the channel ended inside a frame, after {len(self._buffer)} of {self._wanted} bytes")

    def _one(self, raw: memoryview) -> Any:
        try:
            return self._decode(raw)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise BadFrame(f"a frame of {len(raw)} bytes that cannot be read: {error}") from error


class Transport:
    """One end for threads. One thread iterates; any thread sends. `close` may be called twice, from any thread."""

    def __init__(
        self,
        sock: socket.socket,
        union: Any,
        *,
        max_bytes: int = MAX_FRAME_BYTES,
        outgoing_bytes: int = OUTGOING_BYTES,
    ) -> None:
        """Takes over `sock`. `union` is what the peer may send."""
        self._socket = sock
        self._received: deque[Any] = deque()
        self._splitter = Splitter(union, self._received.append, max_bytes=max_bytes)
        self._outgoing_bytes = outgoing_bytes
        self._changed = threading.Condition()
        self._outgoing: list[bytes] = []
        self._n_outgoing = 0
        self._open = True
        self._writer = threading.Thread(target=self._write, name="frames-out", daemon=True)
        self._writer.start()

    def __iter__(self) -> Iterator[Any]:
        """Frames until the peer closes or the channel breaks. Raises BadFrame."""
        while True:
            while self._received:
                yield self._received.popleft()
            try:
                data = self._socket.recv(READ_BYTES)
            except OSError:
                data = b""
            if not data:
                self._splitter.end()
                return
            try:
                self._splitter.feed(data)
            except BadFrame:
                yield from self._received
                self._received.clear()
                raise

    def send(self, frame: Frame) -> None:
        """Never blocks. What the socket does not take at once waits for the writer thread; after the end it is dropped.

        A peer that leaves more than `outgoing_bytes` unread loses the channel.
        """
        data = encode(frame)
        with self._changed:
            if not self._open:
                return
            if not self._n_outgoing:
                data = self._send_now(data)
            if not data:
                return
            self._outgoing.append(data)
            self._n_outgoing += len(data)
            if self._n_outgoing > self._outgoing_bytes:
                self._break()
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything sent has reached the socket. False if it has not in time."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while self._open and self._n_outgoing:
                if not self._changed.wait(deadline - time.monotonic()):
                    return False
            return not self._n_outgoing

    def close(self) -> None:
        with self._changed:
            self._break()
        if threading.current_thread() is not self._writer:
            self._writer.join()
        self._socket.close()

    def _send_now(self, data: bytes) -> bytes:
        """What is left to send."""
        if _DONT_WAIT is None:
            return data
        try:
            return data[self._socket.send(data, _DONT_WAIT) :]
        except BlockingIOError:
            return data
        except OSError:
            self._break()
            return b""

    def _write(self) -> None:
        while True:
            with self._changed:
                while self._open and not self._outgoing:
                    self._changed.wait()
                if not self._open:
                    return
                chunk, self._outgoing = b"".join(self._outgoing), []
            try:
                self._socket.sendall(chunk)
            except OSError:
                with self._changed:
                    self._break()
                return
            with self._changed:
                self._n_outgoing -= len(chunk)
                self._changed.notify_all()

    def _break(self) -> None:
        """Ends reading too: the iteration sees the end of the channel."""
        self._open = False
        self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
