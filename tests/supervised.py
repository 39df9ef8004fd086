"""A supervisor over fake workers, and clients that read replies, for the supervisor's tests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from runtime.config import EngineOptions, ServiceOptions, WatchdogOptions
from runtime.frames import Delta, Done, Failed
from runtime.request import ChatRequest
from runtime.service.calls import Call
from runtime.service.supervisor import Supervisor

FAKE_WORKER = Path(__file__).with_name("fake_worker.py")
PATIENCE_S = 30.0
# A window this short never holds two crashes: for tests that are not about switching off.
NEVER_OFF = WatchdogOptions(ping_s=0.1, hang_s=1.0, load_s=5.0, backoff_s=0.01, crashes=3, crash_window_s=0.0)


def fake_command(folder: Path, *flags: str) -> list[str]:
    # -P: beside the program lies a folder named as our package is.
    return [sys.executable, "-P", str(FAKE_WORKER), ",".join([str(folder), *flags])]


def request(id: str, **script: Any) -> ChatRequest:
    """A request that does what `script` says; see fake_worker.py."""
    return ChatRequest(id, text=json.dumps(script))


class Client:
    """Reads one reply to its end. `frames` is what arrived so far."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.frames: list[Any] = []
        self._arrived = asyncio.Condition()
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for frame in self.call:
            async with self._arrived:
                self.frames.append(frame)
                self._arrived.notify_all()

    async def saw(self, kind: type) -> None:
        """Wait for a frame of this kind."""
        async with asyncio.timeout(PATIENCE_S), self._arrived:
            await self._arrived.wait_for(lambda: any(isinstance(frame, kind) for frame in self.frames))

    async def end(self) -> Any:
        """The terminal frame, which must be the last and the only one."""
        async with asyncio.timeout(PATIENCE_S):
            await self._task
        assert self.n_terminal == 1, self.frames
        assert isinstance(self.frames[-1], Done | Failed), self.frames
        return self.frames[-1]

    @property
    def n_terminal(self) -> int:
        return sum(isinstance(frame, Done | Failed) for frame in self.frames)

    @property
    def text(self) -> str:
        return "".join(frame.text for frame in self.frames if isinstance(frame, Delta))


class Watched(Supervisor):
    """Tells when something changed, so that tests need not poll."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        super().__init__(*args, **kwargs)

    async def until(self, condition: Callable[[], bool]) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiters.append((condition, future))
        self._tell_waiters()
        async with asyncio.timeout(PATIENCE_S):
            await future

    async def send(self, id: str, **script: Any) -> Client:
        return Client(await self.submit(request(id, **script)))

    def _on_frame(self, frame: Any) -> None:
        super()._on_frame(frame)
        self._tell_waiters()

    def _set_state(self, state: str) -> None:
        super()._set_state(state)
        self._tell_waiters()

    def _tell(self, frame: Any) -> None:
        super()._tell(frame)
        self._tell_waiters()

    def _tell_waiters(self) -> None:
        for condition, future in self._waiters:
            if not future.done() and condition():
                future.set_result(None)
        self._waiters = [waiter for waiter in self._waiters if not waiter[1].done()]


@contextlib.asynccontextmanager
async def supervising(
    folder: Path,
    *,
    kind: type[Watched] = Watched,
    watchdog: WatchdogOptions = NEVER_OFF,
    load: dict[str, Any] | None = None,
    parallel: int = 1,
    waiting: int = 64,
    flags: tuple[str, ...] = (),
) -> AsyncIterator[Watched]:
    """A started supervisor of fake workers. Its books are checked at the end."""
    engine = replace(EngineOptions("no model"), parallel=parallel, chaos=json.dumps(load) if load else None)
    service = ServiceOptions("fake", "no model", waiting=waiting, watchdog=watchdog)
    supervisor = kind(engine, service, command=fake_command(folder, *flags))
    await supervisor.start()
    try:
        yield supervisor
        supervisor.check()
    finally:
        await supervisor.close()
    supervisor.check()
