"""One order from submit to its ending: frames are followed, the client's leaving cancels the work, metrics are kept.

Until every prompt of the order is accepted an error is an ordinary HTTP error. After that a stream ends with one of two
things: `[DONE]`, or an error event.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from runtime.config import ServiceOptions
from runtime.errors import EngineCrashed, ErrorInfo, HeadraceError, RemoteError, ShuttingDown
from runtime.frames import Accepted, ChoiceDone, Delta, Done, Failed
from runtime.service.backend import Backend, Reply
from runtime.service.chunks import Shape
from runtime.service.line import Line
from runtime.service.metrics import Meter, Metrics
from runtime.service.problems import Problems
from runtime.service.sinks import Sink, StreamSink, WholeSink
from runtime.service.wire import Order

LOG = logging.getLogger(__name__)
INTERNAL = ErrorInfo("internal_error", "Headrace failed in a way it does not know; its log says more", 500)


@dataclass(frozen=True, slots=True)
class Desk:
    """What every request is served with. `comment_s` is the longest silence of an open stream."""

    options: ServiceOptions
    backend: Backend
    metrics: Metrics
    problems: Problems
    model: str
    comment_s: float
    clock: Callable[[], float] = time.monotonic


class Answer(Response):
    """The response of a generating route. Raises HeadraceError while there is still a status to send."""

    def __init__(self, desk: Desk, order: Order, shape: Shape, began: float) -> None:
        self.background = None
        self._desk = desk
        self._order = order
        self._shape = shape
        self._began = began

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        line = Line(receive, send, self._desk.comment_s)
        tracks = await self._submit()

        def leave() -> None:
            for track in tracks:
                track.cancel()

        watch = asyncio.create_task(line.watch(leave))
        try:
            await self._write(line, tracks)
        finally:
            watch.cancel()
            leave()
            self._desk.metrics.duration.observe(self._desk.clock() - self._began)
            await asyncio.gather(watch, return_exceptions=True)

    async def _write(self, line: Line, tracks: list[Track]) -> None:
        sink = self._sink(line)
        try:
            dones = await _follow_all(tracks, sink)
            if not line.gone:
                await sink.finish(dones)
        except HeadraceError as error:
            if line.gone:
                return
            if not line.started:
                raise
            await sink.fail(error.info())
        except Exception:
            if not line.started:
                raise
            LOG.exception("a reply failed after it had begun")
            await sink.fail(INTERNAL)

    def _sink(self, line: Line) -> Sink:
        if self._order.stream:
            return StreamSink(line, self._order, self._shape, self._desk.problems)
        return WholeSink(line, self._order, self._shape)

    async def _submit(self) -> list[Track]:
        """All prompts or none."""
        backend = self._desk.backend
        tracks: list[Track] = []
        base = 0
        try:
            for request in self._order.requests:
                if backend.state == "closed":
                    raise ShuttingDown("Headrace is shutting down; send the request again when it is back")
                reply = await backend.submit(request)
                meter = self._desk.metrics.meter(request.n, self._began, self._desk.clock)
                tracks.append(Track(reply, meter, base))
                base += request.n
        except BaseException:
            for track in tracks:
                track.cancel()
                track.end()
            raise
        return tracks


class Track:
    """One prompt of an order. Its choices are numbered from `base`."""

    def __init__(self, reply: Reply, meter: Meter, base: int) -> None:
        self._reply = reply
        self._meter = meter
        self._base = base
        self._ended = False

    def cancel(self) -> None:
        if not self._ended:
            self._reply.cancel()

    def end(self) -> None:
        if not self._ended:
            self._ended = True
            self._meter.end()

    async def follow(self, sink: Sink) -> Done:
        """Until the terminal frame. Raises what the worker failed with."""
        accepted = False
        try:
            async for frame in self._reply:
                self._meter.on(frame)
                if isinstance(frame, Delta):
                    await sink.delta(self._base + frame.index, frame)
                elif isinstance(frame, Accepted):
                    accepted = True
                    await sink.accepted(frame)
                elif isinstance(frame, ChoiceDone):
                    await sink.choice_done(self._base + frame.index, frame)
                elif isinstance(frame, Done):
                    self.end()
                    return _complete(frame, accepted)
                elif isinstance(frame, Failed):
                    self.end()
                    raise RemoteError(frame.error)
            raise EngineCrashed("the reply ended without saying how; send the request again")
        finally:
            self.cancel()
            self.end()


def _complete(done: Done, accepted: bool) -> Done:
    """A reply that was cut off must end with an error, also to let go of prompts that wait for it to begin."""
    if done.cancelled:
        raise ShuttingDown("the reply was cancelled before it was complete; send the request again")
    if not accepted:
        raise EngineCrashed("the reply ended before it began; send the request again")
    return done


async def _follow_all(tracks: list[Track], sink: Sink) -> list[Done]:
    if len(tracks) == 1:
        return [await tracks[0].follow(sink)]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(track.follow(sink)) for track in tracks]
    except* HeadraceError as errors:
        raise _first(errors) from None
    return [task.result() for task in tasks]


def _first(errors: BaseExceptionGroup[HeadraceError]) -> HeadraceError:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, HeadraceError)
    return error
