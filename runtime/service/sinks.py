"""Where the frames of a reply go: into a stream as they come, or into one JSON object at the end.

A sink serves all choices of one HTTP request. It hears of frames in order and sends exactly one ending.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec

from runtime.errors import EngineCrashed, ErrorInfo
from runtime.frames import Accepted, ChoiceDone, Delta, Done, TokenLogprob
from runtime.service.chunks import DONE, Choice, Shape
from runtime.service.line import Line
from runtime.service.problems import Problems
from runtime.service.tally import Tally
from runtime.service.wire import Order

STREAM_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
DROPPED_HEADER = b"x-headrace-dropped-turns"
WHOLE_HEADERS = ((b"content-type", b"application/json"),)


class Sink(Protocol):
    async def accepted(self, frame: Accepted) -> None:
        """One prompt was accepted. Returns when the reply may begin."""

    async def delta(self, index: int, frame: Delta) -> None: ...

    async def choice_done(self, index: int, frame: ChoiceDone) -> None: ...

    async def finish(self, dones: list[Done]) -> None:
        """All prompts are done. Raises a HeadraceError when the reply is not complete after all."""

    async def fail(self, info: ErrorInfo) -> None:
        """The reply was lost after it had begun."""


class StreamSink:
    """Server-sent events. Headers wait until all prompts of the order are accepted, so that errors have a status."""

    def __init__(self, line: Line, order: Order, shape: Shape, problems: Problems) -> None:
        self._line = line
        self._order = order
        self._shape = shape
        self._problems = problems
        self._to_accept = len(order.requests)
        self._n_dropped = 0
        self._opened = asyncio.Event()
        self._held: dict[int, tuple[TokenLogprob, ...]] = {}
        self._unfinished = set(range(order.n_choices))

    async def accepted(self, frame: Accepted) -> None:
        self._n_dropped += frame.dropped
        self._to_accept -= 1
        if self._to_accept:
            await self._opened.wait()
            return
        await self._line.start(200, (*STREAM_HEADERS, *_dropped(self._n_dropped)))
        if first := b"".join(self._shape.first(index) for index in range(self._order.n_choices)):
            await self._line.write(first)
        self._opened.set()

    async def delta(self, index: int, frame: Delta) -> None:
        entries = frame.logprobs
        if entries and index in self._held:
            entries = self._held.pop(index) + entries
        if frame.text:
            await self._line.write(self._shape.text(index, frame.text, entries))
        elif entries:
            # Their text is still held back; they go out with it.
            self._held[index] = entries

    async def choice_done(self, index: int, frame: ChoiceDone) -> None:
        if index not in self._unfinished:
            return
        self._unfinished.discard(index)
        held = self._held.pop(index, ())
        # Of a stop string nothing is shown, so its tokens are not reported; an end token has no text to show.
        last = self._shape.text(index, "", held) if held and frame.stop is None else b""
        await self._line.write(last + self._shape.finish(index, frame.reason))

    async def finish(self, dones: list[Done]) -> None:
        check_complete(self._unfinished)
        tally = Tally(dones, self._order.n_choices, self._n_dropped)
        usage = self._shape.usage(tally) if self._order.include_usage else b""
        await self._line.end(usage + DONE)

    async def fail(self, info: ErrorInfo) -> None:
        await self._line.end(self._problems.event(info))


class WholeSink:
    """One JSON object."""

    def __init__(self, line: Line, order: Order, shape: Shape) -> None:
        self._line = line
        self._shape = shape
        self._choices = [Choice(index) for index in range(order.n_choices)]
        self._n_dropped = 0

    async def accepted(self, frame: Accepted) -> None:
        self._n_dropped += frame.dropped

    async def delta(self, index: int, frame: Delta) -> None:
        choice = self._choices[index]
        choice.texts.append(frame.text)
        if frame.text:
            choice.logprobs += choice.held
            choice.held.clear()
        (choice.logprobs if frame.text else choice.held).extend(frame.logprobs)

    async def choice_done(self, index: int, frame: ChoiceDone) -> None:
        choice = self._choices[index]
        choice.reason = choice.reason or frame.reason
        if frame.stop is None:
            choice.logprobs += choice.held

    async def finish(self, dones: list[Done]) -> None:
        check_complete({choice.index for choice in self._choices if choice.reason is None})
        body = self._shape.whole(self._choices, Tally(dones, len(self._choices), self._n_dropped))
        await self._line.whole(200, (*WHOLE_HEADERS, *_dropped(self._n_dropped)), msgspec.json.encode(body))

    async def fail(self, info: ErrorInfo) -> None:
        raise AssertionError("a whole reply has not begun before it is complete")


def _dropped(n_turns: int) -> tuple[tuple[bytes, bytes], ...]:
    """Said where every client can see it: the model did not read all of the chat."""
    return ((DROPPED_HEADER, b"%d" % n_turns),) if n_turns else ()


def check_complete(unfinished: set[int]) -> None:
    """A reply that looks complete must be complete."""
    if unfinished:
        raise EngineCrashed(f"the model ended the reply with {len(unfinished)} choices unfinished; send it again")
