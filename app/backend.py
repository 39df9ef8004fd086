"""The window's one worker thread: it finds or starts a service, reads replies from it, and ends it.

No Qt here. What happens is told through `tell`, called on the worker thread; `ask`, `cancel`, `reopen` and `close` may
be called from any other thread. A reply is named by its ticket and always ends with one `End` or `Failed`.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from runtime.config import EngineOptions
from runtime.errors import ErrorInfo, HeadraceError
from runtime.stream import End, Event, Failed

# The HTTP client and its kin are imported on the worker thread, when the window is on the screen already.
if TYPE_CHECKING:
    from runtime.cli.connect import Connection, Progress
    from runtime.client import ReplyStream

# A service needs a moment to end its worker; a window that is closed does not wait longer than this for it.
CLOSE_S = 15.0
LOST = ("connection_failed", "connection_lost", "stream_cut_short")


@dataclass(frozen=True, slots=True)
class Loading:
    """`fraction` is 0 to 1, or None while nobody knows."""

    model: str
    fraction: float | None


@dataclass(frozen=True, slots=True)
class Ready:
    """`context` is how many tokens one chat can use, where the service says so."""

    model: str
    where: str
    plan: str
    context: int | None


@dataclass(frozen=True, slots=True)
class Unavailable:
    message: str


@dataclass(frozen=True, slots=True)
class Heard:
    """One event of the reply `ticket`; `at_s` is when it came, by time.monotonic."""

    ticket: int
    event: Event
    at_s: float


Said = Loading | Ready | Unavailable | Heard
Connect = Callable[["Progress"], AbstractContextManager["Connection"]]


class WindowClosed(Exception):
    """Raised inside a start that is no longer wanted."""


def starter_service(progress: Progress) -> AbstractContextManager[Connection]:
    """This user's running service, or a private one with the starter model."""
    from runtime.cli.connect import connected

    return connected(model=None, url=None, api_key=None, engine_for=EngineOptions, progress=progress)


class Backend:
    """Owns the thread, the connection and the reply that is being read."""

    def __init__(self, tell: Callable[[Said], None], connect: Connect = starter_service) -> None:
        self._tell = tell
        self._connect = connect
        self._orders: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._newest = 0
        self._cancelled = 0
        self._reading: tuple[int, ReplyStream] | None = None
        # The next three belong to the worker thread.
        self._open = ExitStack()
        self._connection: Connection | None = None
        self._problem = "the model has not been started"
        self._thread = threading.Thread(target=self._run, name="backend", daemon=True)

        # First of all orders, so that a question asked before the start waits for it like any other.
        self.reopen()

    def start(self) -> None:
        self._thread.start()

    def reopen(self) -> None:
        """Connect anew, unless the connection still works."""
        self._orders.put(self._reopen)

    def ask(self, messages: Sequence[Mapping[str, str]]) -> int:
        """Queue a reply and return its ticket. It waits until the model is loaded."""
        with self._lock:
            self._newest += 1
            ticket = self._newest
        self._orders.put(partial(self._reply, ticket, messages))
        return ticket

    def cancel(self, ticket: int) -> None:
        """Stop that reply and those before it, begun or not."""
        with self._lock:
            self._cancelled = max(self._cancelled, ticket)
            if self._reading is not None and self._reading[0] <= ticket:
                self._reading[1].cancel()

    def close(self, timeout_s: float = CLOSE_S) -> bool:
        """Stop everything and end a private service. Whether the thread has ended; may be called twice."""
        self._closing.set()
        self.cancel(self._newest)
        self._orders.put(None)
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        with suppress(WindowClosed):
            while (order := self._orders.get()) is not None and not self._closing.is_set():
                order()
        self._open.close()

    def _reopen(self) -> None:
        if self._connection is not None:
            if self._connection.client.health().state != "failed":
                self._tell_ready(self._connection)
                return
            self._connection = None
            self._open.close()
        from runtime.cli.problems import Problem

        try:
            self._connection = self._open.enter_context(self._connect(self._progress))
        except WindowClosed:
            raise
        except (Problem, HeadraceError) as error:
            self._unavailable(str(error))
        except Exception as error:
            self._unavailable(f"the model could not be started ({type(error).__name__}: {error})")
        else:
            self._tell_ready(self._connection)

    def _unavailable(self, message: str) -> None:
        self._problem = message
        self._tell(Unavailable(message))

    def _tell_ready(self, connection: Connection) -> None:
        context = None
        with suppress(HeadraceError):
            context = connection.client.context_length(connection.model)
        self._tell(Ready(connection.model, connection.where, connection.plan, context))

    def _progress(self, model: str, fraction: float | None) -> None:
        if self._closing.is_set():
            raise WindowClosed
        self._tell(Loading(model, fraction))

    def _reply(self, ticket: int, messages: Sequence[Mapping[str, str]]) -> None:
        stream = self._begin(ticket, messages)
        if stream is None:
            return
        event: Event | None = None
        try:
            for event in stream:
                self._tell(Heard(ticket, event, time.monotonic()))
        except Exception as error:
            event = None
            self._fail(ticket, "client_error", f"the reply could not be read ({type(error).__name__}: {error})")
        finally:
            stream.close()
            with self._lock:
                self._reading = None
        if isinstance(event, Failed) and event.error.code in LOST:
            self._note_loss()

    def _begin(self, ticket: int, messages: Sequence[Mapping[str, str]]) -> ReplyStream | None:
        connection = self._connection
        if connection is None:
            self._fail(ticket, "unavailable", self._problem)
            return None
        with self._lock:
            if ticket <= self._cancelled:
                self._tell(Heard(ticket, End("cancelled"), time.monotonic()))
                return None
            stream = connection.client.stream_chat(messages, model=connection.model, truncate="oldest")
            self._reading = (ticket, stream)
        return stream

    def _note_loss(self) -> None:
        """The connection broke: if nobody is there any more, say so; a retry then starts a service anew."""
        if self._connection is not None and self._connection.client.health().state == "failed":
            self._connection = None
            self._open.close()
            self._unavailable("the model's service has stopped; your messages are safe, try again")

    def _fail(self, ticket: int, code: str, message: str) -> None:
        self._tell(Heard(ticket, Failed(ErrorInfo(code, message, 503)), time.monotonic()))
