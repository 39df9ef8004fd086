"""The text thread: events of the engine become frames for the service, one step behind decoding.

It owns the state of every reply from `Begin` to its terminal frame and is the only sender of terminal frames, so each
request gets exactly one. Frames of a reply are at least 30 ms apart (the first is not delayed), and after sending the
thread sleeps that long: every time it wakes it takes a core that decoding waits for.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from runtime.errors import ErrorInfo
from runtime.frames import ChoiceDone, Delta, Done, Failed, Frame, Progress, Timings, TokenLogprob
from runtime.worker.detokenizer import Detokenizer
from runtime.worker.plan import Event, PrefillEvent

FRAME_GAP_S = 0.030
PROGRESS_GAP_S = 0.25
FINISHED = {"stop", "length"}


@dataclass(frozen=True, slots=True)
class Begin:
    """A request was accepted. `queued_at` is its submit time on this process's monotonic clock."""

    request_id: str
    n_choices: int
    n_prompt: int
    stops: tuple[str, ...]
    queued_at: float
    echo: str = ""


@dataclass(frozen=True, slots=True)
class Refuse:
    """A request that never reached the engine, or was lost by it."""

    request_id: str
    error: ErrorInfo


@dataclass(frozen=True, slots=True)
class Step:
    """What one engine step brought, and when it began and ended."""

    events: list[Event | PrefillEvent]
    began: float
    at: float


class End:
    """Ends the thread after everything before it was sent."""


Item = Begin | Refuse | Step | End


@dataclass(slots=True)
class _Choice:
    detokenizer: Detokenizer
    text: str = ""
    n_tokens: int = 0
    logprobs: list[TokenLogprob] = field(default_factory=list)
    reason: str = ""
    stop: str | None = None


@dataclass(slots=True)
class _Reply:
    begin: Begin
    choices: list[_Choice]
    sent_at: float = 0.0
    progress_at: float = 0.0
    first_step_at: float = 0.0
    first_token_at: float = 0.0
    last_token_at: float = 0.0
    n_generated: int = 0
    emitted: bool = False


class TextThread:
    """`put` may be called from any thread; everything else runs in `run`.

    `piece` gives a token's bytes; `stop_met(request_id, index)` tells the engine to generate no more for a choice.
    """

    def __init__(
        self,
        send: Callable[[Frame], None],
        piece: Callable[[int], bytes],
        stop_met: Callable[[str, int], None],
        *,
        error: Callable[[str], ErrorInfo],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._urgent = threading.Event()
        # Requests whose first token was not put yet. Added to by the prompt thread, taken from by the engine thread.
        self._unheard: set[str] = set()
        self._send = send
        self._piece = piece
        self._stop_met = stop_met
        self._error = error
        self._clock = clock
        self._items: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._replies: dict[str, _Reply] = {}
        self._dirty: dict[str, _Reply] = {}

    def put(self, item: Item) -> None:
        """First tokens and endings wake the thread at once; other tokens wait until it wakes by itself."""
        self._items.put(item)
        if self._is_urgent(item):
            self._urgent.set()

    def _is_urgent(self, item: Item) -> bool:
        if isinstance(item, Begin):
            self._unheard.add(item.request_id)
        if not isinstance(item, Step):
            return True
        urgent = False
        for event in item.events:
            if isinstance(event, Event) and (event.reason or event.request_id in self._unheard):
                self._unheard.discard(event.request_id)
                urgent = True
        return urgent

    def run(self) -> None:
        while True:
            for item in self._next():
                if isinstance(item, End):
                    return
                self.handle(item)
            if self._flush_due() and self._replies:
                self._urgent.wait(FRAME_GAP_S)

    def _next(self) -> Iterator[Item]:
        """Waits for one item, then yields all there are."""
        self._urgent.clear()
        with contextlib.suppress(queue.Empty):
            yield self._items.get(timeout=self._patience())
            while True:
                yield self._items.get_nowait()

    def handle(self, item: Begin | Refuse | Step) -> None:
        """One item; public so that tests can drive it without a thread."""
        match item:
            case Begin():
                choices = [_Choice(Detokenizer(item.stops)) for _ in range(item.n_choices)]
                self._replies[item.request_id] = reply = _Reply(item, choices)
                if item.echo:
                    for choice in choices:
                        choice.text = item.echo
                    self._mark(reply)
            case Refuse():
                self._fail(item.request_id, item.error)
            case Step():
                for event in item.events:
                    self._on_event(event, item)

    # events

    def _on_event(self, event: Event | PrefillEvent, step: Step) -> None:
        reply = self._replies.get(event.request_id)
        if reply is None:
            return  # it ended: a late token after a stop string or a cancellation
        at = step.at
        reply.first_step_at = reply.first_step_at or step.began
        if isinstance(event, PrefillEvent):
            self._on_prefill(reply, event, at)
            return
        choice = reply.choices[event.index]
        if choice.reason:
            return
        reply.n_generated += event.sampled
        if event.sampled:
            reply.first_token_at = reply.first_token_at or at
            reply.last_token_at = at
        if event.token >= 0:
            self._on_token(reply, choice, event)
        if event.reason and not choice.reason:
            self._on_end(reply, choice, event.reason)

    def _on_prefill(self, reply: _Reply, event: PrefillEvent, at: float) -> None:
        if at - reply.progress_at >= PROGRESS_GAP_S:
            reply.progress_at = at
            self._send(Progress(event.request_id, event.done, reply.begin.n_prompt))

    def _on_token(self, reply: _Reply, choice: _Choice, event: Event) -> None:
        piece = choice.detokenizer.push(self._piece(event.token))
        choice.text += piece.text
        choice.n_tokens += 1
        if event.logprob is not None:
            choice.logprobs.append(event.logprob)
        if piece.stop is not None:
            choice.stop = piece.stop
            self._stop_met(event.request_id, event.index)
            self._on_end(reply, choice, "stop")
        else:
            self._mark(reply)

    def _on_end(self, reply: _Reply, choice: _Choice, reason: str) -> None:
        if choice.stop is None:
            choice.text += choice.detokenizer.finish().text
        choice.reason = reason
        self._flush(reply)
        request_id = reply.begin.request_id
        if reason in FINISHED:
            self._send(ChoiceDone(request_id, reply.choices.index(choice), reason, choice.stop))
        elif reason != "cancelled":
            self._fail(request_id, self._error(reason))
            return
        if all(other.reason for other in reply.choices):
            self._finish(reply)

    # frames

    def _mark(self, reply: _Reply) -> None:
        self._dirty[reply.begin.request_id] = reply

    def _patience(self) -> float | None:
        if not self._dirty:
            return None
        due = min(reply.sent_at for reply in self._dirty.values()) + FRAME_GAP_S
        return max(0.0, due - self._clock())

    def _flush_due(self) -> bool:
        """Whether anything was sent."""
        now, sent = self._clock(), False
        for reply in list(self._dirty.values()):
            if now - reply.sent_at >= FRAME_GAP_S:
                self._flush(reply)
                sent = True
        return sent

    def _flush(self, reply: _Reply) -> None:
        self._dirty.pop(reply.begin.request_id, None)
        for index, choice in enumerate(reply.choices):
            if choice.text or (choice.logprobs and choice.reason):
                delta = Delta(reply.begin.request_id, index, choice.text, choice.n_tokens, tuple(choice.logprobs))
                choice.text, choice.n_tokens, choice.logprobs = "", 0, []
                reply.sent_at = self._clock()
                reply.emitted = True
                self._send(delta)

    def _finish(self, reply: _Reply) -> None:
        begin = reply.begin
        first_step = reply.first_step_at or self._clock()
        first_token = reply.first_token_at or first_step
        timings = Timings(
            queued_ms=1000 * max(0.0, first_step - begin.queued_at),
            prompt_ms=1000 * max(0.0, first_token - first_step),
            predicted_ms=1000 * (reply.last_token_at - first_token) if reply.last_token_at else 0.0,
            prompt_n=begin.n_prompt,
            predicted_n=reply.n_generated,
        )
        cancelled = any(choice.reason == "cancelled" for choice in reply.choices)
        del self._replies[begin.request_id]
        self._send(Done(begin.request_id, begin.n_prompt, 0, reply.n_generated, timings, cancelled))

    def _fail(self, request_id: str, error: ErrorInfo) -> None:
        reply = self._replies.pop(request_id, None)
        self._dirty.pop(request_id, None)
        self._send(Failed(request_id, error, emitted=reply.emitted if reply else False))
