"""The requests of one model and the frames that answer them. Here, and only here, a request gets its terminal frame.

`Call` is one request; `Calls` are the books: each open call is either waiting or sent, and leaves with its terminal
frame. `check()` proves that. Nothing here knows processes or sockets; all of it belongs to the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from runtime.errors import ErrorInfo, InvalidRequest, Overloaded
from runtime.frames import HEADER, MAX_FRAME_BYTES, Accepted, ChoiceDone, Delta, Done, Failed, Submit, Timings, encode
from runtime.request import ChatRequest
from runtime.service.backend import ReplyFrame

# A request may be given to this many workers; one that ends them all must not go on for ever.
ATTEMPTS = 2
# Frames a client may leave unread; at 50 a second a client that reads is never this far behind.
UNREAD_FRAMES = 16_384


class Call:
    """One request on its way, and the `Reply` its client reads. Only `Calls` changes it."""

    def __init__(self, request: ChatRequest, wire: bytes, on_cancel: Callable[[Call], None]) -> None:
        """`wire` is the Submit frame, encoded once for however many workers it takes.

        `accepted` is what the client has heard; `prepared` says that the present worker has accepted it too.
        """
        self.id = request.id
        self.n = request.n
        self.wire = wire
        self.attempts = 0
        self.accepted = False
        self.prepared = False
        self.emitted = False
        self.cancelled_at: float | None = None
        self.finished = False
        self._on_cancel = on_cancel
        self._frames: deque[ReplyFrame] = deque()
        self._read_all = False
        self._reader: asyncio.Future[None] | None = None

    @property
    def is_suspect(self) -> bool:
        """A worker died while it had this, and nothing has cleared it since."""
        return self.attempts > 0 and not self.emitted

    @property
    def n_unread(self) -> int:
        return len(self._frames)

    def deliver(self, frame: ReplyFrame) -> bool:
        """Pass a frame to the client, `Accepted` only once. False after the terminal frame: nothing follows it."""
        if self.finished:
            return False
        if isinstance(frame, Delta | ChoiceDone):
            self.emitted = True
        elif isinstance(frame, Accepted):
            self.prepared = True
            if self.accepted:
                return True
            self.accepted = True
        elif isinstance(frame, Done | Failed):
            self.finished = True
        self._frames.append(frame)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
        return True

    def cancel(self) -> None:
        if not self.finished:
            self._on_cancel(self)

    def __aiter__(self) -> AsyncIterator[ReplyFrame]:
        return self

    async def __anext__(self) -> ReplyFrame:
        while not self._frames:
            if self._read_all:
                raise StopAsyncIteration
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        frame = self._frames.popleft()
        self._read_all = isinstance(frame, Done | Failed)
        return frame


@dataclass(slots=True)
class Counts:
    """Since the service started."""

    submitted: int = 0
    finished: int = 0
    requeued: int = 0
    dropped: int = 0


class Calls:
    """The books of one model."""

    def __init__(
        self, *, n_waiting: int, parallel: int, stop: Callable[[str], None], clock: Callable[[], float]
    ) -> None:
        """`parallel` sequences run in the worker at once; `n_waiting` requests may wait besides.

        `stop` tells the worker that nobody wants the request any more.
        """
        self._bound = n_waiting + parallel
        self._parallel = parallel
        self._stop = stop
        self._clock = clock
        self._waiting: deque[Call] = deque()
        self._sent: dict[str, Call] = {}
        self.counts = Counts()

    @property
    def n_open(self) -> int:
        return len(self._waiting) + len(self._sent)

    @property
    def n_unsent(self) -> int:
        return len(self._waiting)

    def add(self, request: ChatRequest) -> Call:
        """Raises Overloaded, and InvalidRequest for what cannot be put into a frame."""
        if self.n_open >= self._bound:
            raise Overloaded(
                f"{self.n_open} requests are running or waiting, {self._bound} are allowed; try again in a moment",
                retry_after_s=min(60, 1 + self.n_open // self._parallel),
            )
        if request.id in self._sent or any(call.id == request.id for call in self._waiting):
            raise ValueError(f"request id {request.id} is in use")
        call = Call(request, _wire(request), self.cancel)
        self._waiting.append(call)
        self.counts.submitted += 1
        return call

    def next_to_send(self) -> Call | None:
        """Moves the oldest waiting call to the sent ones.

        Of those that may have ended a worker only one is tried at a time, until it has proved harmless: when one of
        them does it again it takes no other with it.
        """
        if not self._waiting:
            return None
        on_trial = any(call.attempts > 1 and not call.emitted for call in self._sent.values())
        for index, call in enumerate(self._waiting):
            if not (on_trial and call.is_suspect):
                del self._waiting[index]
                call.attempts += 1
                call.prepared = False
                self._sent[call.id] = call
                return call
        return None

    def receive(self, frame: ReplyFrame) -> None:
        """A frame from the worker. Late ones, and those of nobody's, are dropped and counted."""
        call = self._sent.get(frame.id)
        if call is None or not call.deliver(frame):
            self.counts.dropped += 1
            return
        if call.finished:
            del self._sent[call.id]
            self.counts.finished += 1
        elif call.n_unread > UNREAD_FRAMES:
            message = f"the client left {call.n_unread} pieces of the reply unread; read faster or ask for less"
            del self._sent[call.id]
            self._finish(call, Failed(call.id, ErrorInfo("client_too_slow", message, 500), emitted=True))
            self._stop(call.id)

    def cancel(self, call: Call) -> None:
        """The client is gone. What the worker has it ends; what waits ends here at once."""
        if call.finished or call.cancelled_at is not None:
            return
        call.cancelled_at = self._clock()
        if call.id in self._sent:
            self._stop(call.id)
            return
        self._waiting.remove(call)
        self._finish(call, _cancelled(call.id))

    def give_up(self, after_s: float) -> None:
        """End the calls that were cancelled so long ago and that the worker has not ended since."""
        latest = self._clock() - after_s
        for call in list(self._sent.values()):
            if call.cancelled_at is not None and call.cancelled_at < latest:
                del self._sent[call.id]
                self._finish(call, _cancelled(call.id))

    def worker_lost(self, lost: ErrorInfo, refused: ErrorInfo) -> None:
        """What becomes of the sent calls. `lost` tells those that had begun, `refused` those tried too often.

        The worker takes requests in the order they came. So only those that fit into it, and the first it has not
        accepted yet, can be the cause; for the others this was no attempt.
        """
        sent, self._sent = list(self._sent.values()), {}
        n_running, accepting = 0, True
        requeued = []
        for call in sent:
            touched = n_running < self._parallel or (accepting and not call.prepared)
            n_running += call.n
            accepting = accepting and call.prepared
            if call.cancelled_at is not None:
                self._finish(call, _cancelled(call.id))
            elif call.emitted:
                self._finish(call, Failed(call.id, lost, emitted=True))
            elif touched and call.attempts >= ATTEMPTS:
                self._finish(call, Failed(call.id, refused))
            else:
                call.attempts -= not touched
                requeued.append(call)
        self._requeue(requeued)

    def fail_all(self, error: ErrorInfo) -> None:
        """End every open call."""
        calls = [*self._sent.values(), *self._waiting]
        self._sent.clear()
        self._waiting.clear()
        for call in calls:
            self._finish(call, Failed(call.id, error, emitted=call.emitted))

    def fail_waiting(self, error: ErrorInfo) -> None:
        calls, self._waiting = self._waiting, deque()
        for call in calls:
            self._finish(call, Failed(call.id, error, emitted=call.emitted))

    def check(self) -> None:
        """Raises AssertionError when a call was lost, or is in the books after its end."""
        ids = [call.id for call in self._waiting] + list(self._sent)
        assert len(ids) == len(set(ids)), f"a request is in two places: {ids}"
        assert not any(call.finished for call in (*self._waiting, *self._sent.values())), "a finished request is open"
        assert all(call.cancelled_at is None for call in self._waiting), "a cancelled request waits"
        counts = self.counts
        assert counts.submitted == counts.finished + self.n_open, f"requests were lost: {counts}, {self.n_open} open"

    def _requeue(self, calls: list[Call]) -> None:
        """To the front, in their order."""
        self._waiting.extendleft(reversed(calls))
        self.counts.requeued += len(calls)

    def _finish(self, call: Call, frame: Done | Failed) -> None:
        call.deliver(frame)
        self.counts.finished += 1


def _wire(request: ChatRequest) -> bytes:
    try:
        wire = encode(Submit(request))
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError) as error:
        raise InvalidRequest(f"the request holds text or numbers that cannot be passed on: {error}") from error
    size = len(wire) - HEADER.size
    if size > MAX_FRAME_BYTES:
        raise InvalidRequest(f"the request has {size} bytes, {MAX_FRAME_BYTES} are allowed; shorten it")
    return wire


def _cancelled(id: str) -> Done:
    return Done(id, 0, 0, 0, Timings(0.0, 0.0, 0.0, 0, 0), cancelled=True)
