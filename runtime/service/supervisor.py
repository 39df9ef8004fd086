"""Keeps one worker alive for one model, and every request answered once whatever becomes of workers.

One task lives through worker after worker: start, load, serve, find out how it ended, wait, again. The requests are in
the books of `calls.py`; when a worker counts as hung is decided in `watchdog.py`, when the model is switched off in
`crashes.py`, and what people are told about it in `deaths.py`. Everything here belongs to the event loop's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence

from runtime import commands
from runtime.config import EngineOptions, ServiceOptions
from runtime.errors import ErrorInfo, ModelDisabled, ShuttingDown
from runtime.frames import (
    Accepted,
    Cancel,
    ChoiceDone,
    Delta,
    Done,
    EngineStats,
    Failed,
    Frame,
    Load,
    LoadFailed,
    Loading,
    Pong,
    Progress,
    Ready,
    Stop,
)
from runtime.request import ChatRequest
from runtime.service import deaths
from runtime.service.calls import Call, Calls
from runtime.service.channel import Channel
from runtime.service.crashes import Crashes
from runtime.service.deaths import Death
from runtime.service.spawn import Spawner, WorkerProcess
from runtime.service.watchdog import Watchdog
from runtime.transport import BadFrame

# What a worker gets to answer what it still has, once it was asked to stop.
STOP_S = 3.0
# What it gets to end by itself after its channel ended.
EXIT_S = 1.0

SHUTTING_DOWN = ShuttingDown("the server is shutting down; send the request again later").info()

logger = logging.getLogger(__name__)


class Supervisor:
    """One model as the service sees it: the `Backend` of the routes. Its attributes are for reading.

    `problem` is why the model is disabled.
    """

    def __init__(
        self,
        engine: EngineOptions,
        service: ServiceOptions,
        *,
        command: Sequence[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`command` replaces the worker program; the channel and our process id are appended to it."""
        self.facts: Ready | None = None
        self.loading = 0.0
        self.stats = EngineStats()
        self.problem: ErrorInfo | None = None
        self._engine = engine
        self._options = service.watchdog
        self._clock = clock
        self._calls = Calls(
            n_waiting=service.waiting, parallel=engine.parallel, stop=lambda id: self._tell(Cancel(id)), clock=clock
        )
        self._crashes = Crashes(service.watchdog)
        self._spawner = Spawner(command or commands.argv("worker"), os.environ)
        self._state = "loading"
        self._settled = asyncio.Event()
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._n_workers = 0
        # The present worker's, None between workers.
        self._process: WorkerProcess | None = None
        self._channel: Channel | None = None
        self._watchdog: Watchdog | None = None
        self._over: asyncio.Future[Death | None] | None = None

    # what the routes use

    @property
    def state(self) -> str:
        return self._state

    @property
    def n_restarts(self) -> int:
        """Workers started after the first."""
        return max(0, self._n_workers - 1)

    @property
    def worker_pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Begin to load. Returns at once; `settled` waits."""
        assert self._task is None, "a supervisor is started once"
        self._task = asyncio.create_task(self._supervise(), name="supervisor")

    async def settled(self) -> str:
        """Wait until the model is ready, or will not be: the state then."""
        await self._settled.wait()
        return self._state

    async def submit(self, request: ChatRequest) -> Call:
        """Queue a request, also while no worker is ready. Raises Overloaded, ModelDisabled, ShuttingDown."""
        if self._state == "closed":
            raise ShuttingDown("the server is shutting down")
        if self.problem is not None:
            raise ModelDisabled(self.problem.message)
        call = self._calls.add(request)
        self._dispatch()
        return call

    def enable(self) -> None:
        """Try a disabled model again."""
        if self._state == "disabled":
            self._crashes.clear()
            self.problem = None
            self._set_state("loading")
            self._woken.set()

    async def close(self) -> None:
        """End the worker. Every open request gets its terminal frame. May be called twice."""
        self._set_state("closed")
        self._woken.set()
        self._calls.fail_waiting(SHUTTING_DOWN)
        self._tell(Stop())
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=STOP_S)
            self._end(Death("did not stop in time", kill=True))
            await asyncio.wait({self._task})
        self._calls.fail_all(SHUTTING_DOWN)
        self._spawner.close()

    def check(self) -> None:
        """Raises AssertionError when a request was lost, or is in the books after its end."""
        self._calls.check()

    # one worker after another

    async def _supervise(self) -> None:
        while self._state != "closed":
            try:
                death = await self._live()
            except Exception as error:  # a bug of ours is one more way to end; clients must not wait for it
                logger.exception("the supervisor failed")
                death = Death(f"could not be supervised: {error!r}")
            if self._state != "closed":
                await self._recover(death)

    async def _live(self) -> Death:
        """One worker, from start to end."""
        self._over = over = asyncio.get_running_loop().create_future()
        self._n_workers += 1
        try:
            process = await self._spawner.start()
        except OSError as error:
            return Death(f"could not be started: {error.strerror or error}")
        self._process, self._watchdog = process, Watchdog(self._options, self._clock())
        watching = asyncio.create_task(self._watch(self._watchdog), name="watchdog")
        try:
            self._channel = await Channel.open(process.socket, self._on_frame, self._on_channel_end, self._dispatch)
            self._tell(Stop() if self._state == "closed" else Load(self._engine))
            death = await over
        except BaseException:
            process.kill()
            raise
        finally:
            watching.cancel()
            self._leave()
        if death is not None and death.kill:
            process.kill()
        code = await self._spawner.wait(process, EXIT_S)
        return death or deaths.by_itself(process.last_words(), code, was_killed=process.was_killed)

    async def _recover(self, death: Death) -> None:
        """Settle what the worker leaves behind, and wait as long as another one must."""
        logger.warning("the engine %s", death.how)
        if not death.refused:
            self._crashes.add(self._clock())
            self._calls.worker_lost(lost=deaths.lost(death), refused=deaths.refused(death))
            if self._crashes.too_many:
                self._disable(deaths.switched_off(death, self._options))
            else:
                await self._sleep(self._crashes.wait_s)
        while self._state == "disabled":
            await self._sleep(None)

    async def _watch(self, watchdog: Watchdog) -> None:
        while (why := watchdog.verdict()) is None:
            await asyncio.sleep(watchdog.tick_s)
            ping = watchdog.tick(self._clock())
            if ping is not None:
                self._tell(ping)
            self._calls.give_up(after_s=watchdog.limit_s)
        self._end(Death(f"{why} and was killed", hung=True, kill=True))

    def _end(self, death: Death | None) -> None:
        """The present worker is over; None when its exit code will tell why. Only the first call counts."""
        if self._over is not None and not self._over.done():
            self._over.set_result(death)
            if self._channel is not None:
                self._channel.close()
            if self._state != "disabled":
                self._set_state("restarting")

    def _leave(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._process = self._channel = self._watchdog = None
        self.loading, self.stats = 0.0, EngineStats()

    def _disable(self, error: ErrorInfo) -> None:
        self.problem = error
        self._set_state("disabled")
        self._calls.fail_all(ModelDisabled(error.message).info())

    def _set_state(self, state: str) -> None:
        if self._state != "closed":
            self._state = state
        if self._state in ("ready", "disabled", "closed"):
            self._settled.set()
        else:
            self._settled.clear()

    async def _sleep(self, seconds: float | None) -> None:
        """For that long, or until something was asked of us."""
        self._woken.clear()
        if self._state != "closed":
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), seconds)

    # what the worker says

    def _on_frame(self, frame: Frame) -> None:
        if self._watchdog is not None:
            self._watchdog.heard(frame)
        match frame:
            case Delta() | Accepted() | Progress() | ChoiceDone() | Done() | Failed():
                self._calls.receive(frame)
                if self._calls.n_unsent:
                    self._dispatch()
            case Pong():
                self.stats = frame.stats
            case Loading():
                self.loading = frame.fraction
            case Ready():
                self._on_ready(frame)
            case LoadFailed():
                self._disable(frame.error)
                self._end(Death(f"refused the model: {frame.error.message}", refused=True))

    def _on_ready(self, facts: Ready) -> None:
        if self._state not in ("loading", "restarting"):
            return
        self.facts, self.loading = facts, 1.0
        if self._watchdog is not None:
            self._watchdog.ready()
        self._set_state("ready")
        self._dispatch()

    def _on_channel_end(self, error: BadFrame | None) -> None:
        self._end(Death(f"sent {error.message} and was killed", kill=True) if error else None)

    def _tell(self, frame: Frame) -> None:
        if self._channel is not None:
            self._channel.send(frame)

    def _dispatch(self) -> None:
        """Send what may be sent."""
        channel = self._channel
        if self._state != "ready" or channel is None:
            return
        while not channel.is_congested and (call := self._calls.next_to_send()) is not None:
            channel.send(call.wire)
