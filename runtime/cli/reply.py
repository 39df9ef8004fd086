"""Getting one reply: the network on a thread of its own, the terminal and Ctrl-C on the main one."""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Protocol

from runtime.client import ReplyStream
from runtime.errors import ErrorInfo
from runtime.stream import End, Event, Failed, Reasoning, Terminal, Text, Usage

TICK_S = 0.05


class View(Protocol):
    """Where a reply goes while it is being written."""

    def think(self, text: str) -> None: ...
    def write(self, text: str) -> None: ...
    def draw(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Reply:
    """What came, and how it ended. `first_token_s` is counted from sending the request, by this side's clock."""

    text: str
    usage: Usage
    first_token_s: float | None
    end: Terminal

    @property
    def stopped(self) -> bool:
        return self.end == End("cancelled")

    @property
    def error(self) -> ErrorInfo | None:
        return self.end.error if isinstance(self.end, Failed) else None


def receive(stream: ReplyStream, view: View) -> Reply:
    """Run the reply to its terminal event. Ctrl-C stops the reply, not the program."""
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    reader = threading.Thread(target=_read, args=(stream, events.put), daemon=True)
    start = time.monotonic()
    text, usage, first_token_s = "", Usage(), None
    with _ctrl_c(stream.cancel):
        reader.start()
        for event in _arriving(events, view.draw):
            if first_token_s is None and isinstance(event, Text | Reasoning):
                first_token_s = time.monotonic() - start
            match event:
                case Text():
                    text += event.text
                    view.write(event.text)
                case Reasoning():
                    view.think(event.text)
                case Usage():
                    usage = event
                case End() | Failed():
                    reader.join()
                    return Reply(text, usage, first_token_s, event)
    raise AssertionError("a reply stream ended without a terminal event")


def _read(stream: ReplyStream, put: Callable[[Event], None]) -> None:
    try:
        for event in stream:
            put(event)
    except BaseException as error:
        put(Failed(ErrorInfo("client_error", f"{type(error).__name__}: {error}", 500)))
    finally:
        stream.close()


def _arriving(events: queue.SimpleQueue[Event], idle: Callable[[], None]) -> Iterator[Event]:
    """Events as they come, with `idle` called at least every tick between them."""
    while True:
        event = None
        with suppress(queue.Empty):
            event = events.get(timeout=TICK_S)
        if event is not None:
            yield event
        idle()


@contextmanager
def _ctrl_c(stop: Callable[[], None]) -> Iterator[None]:
    """While the block runs, Ctrl-C calls `stop` instead of raising KeyboardInterrupt somewhere in the middle."""

    def handler(_signal: int, _frame: FrameType | None) -> None:
        stop()

    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
