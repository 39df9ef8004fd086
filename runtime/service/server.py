"""uvicorn over sockets that are already open, and its ending: replies first, within seconds, exit code 0.

The first signal ends the service in order; the second ends it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from models import limits
from runtime.config import ServiceOptions
from runtime.service.backend import Backend
from runtime.service.protocol import Bounds, bounded_protocol

# Longer than the backend takes to end its worker, shorter than who waits for us has patience.
GRACE_S = 4
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed: least time per streamed frame."""
    return uvicorn.Config(lambda: None, log_config=None).get_loop_factory()


class Server(uvicorn.Server):
    """`stop` may be called from the loop's thread at any time, also before `serve`."""

    def __init__(
        self, app: ASGIApp, options: ServiceOptions, backend: Backend, on_listening: Callable[[], None] = lambda: None
    ) -> None:
        bounds = Bounds(options.connections, options.receive_s, options.keep_alive_s)
        super().__init__(
            uvicorn.Config(
                app,
                http=bounded_protocol(bounds),
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=max(1, round(options.keep_alive_s)),
                timeout_graceful_shutdown=GRACE_S,
                h11_max_incomplete_event_size=limits.HEADER_BYTES,
            )
        )
        self._backend = backend
        self._on_listening = on_listening

    def stop(self) -> None:
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_listening()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Streams end because the backend gives each its terminal frame; uvicorn only waits for them.
        closing = asyncio.create_task(self._backend.close())
        await super().shutdown(sockets)
        await closing

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # What we were started to ignore, under nohup say, stays ignored.
        heeded = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        before = {number: signal.signal(number, self.handle_exit) for number in heeded}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            os._exit(128 + sig)  # asked twice: the worker ends itself when our end of its channel is gone
        self.should_exit = True
