"""Named fakes that several tests share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from runtime.errors import EngineCrashed, ErrorInfo, HeadraceError
from runtime.frames import (
    Accepted,
    ChoiceDone,
    Delta,
    Done,
    EngineStats,
    Failed,
    Progress,
    Ready,
    Timings,
    TokenLogprob,
)
from runtime.request import ChatRequest
from runtime.service.backend import ReplyFrame

READY = Ready(
    n_ctx=4096,
    n_ctx_train=8192,
    n_vocab=1000,
    parallel=8,
    n_params=135_000_000,
    size_bytes=91_000_000,
    description="fake 135M Q4_1",
    plan="fake 135M Q4_1: CPU, 2 threads, context 4096",
    build="b1234-abcdef0",
)
WORDS = ("Hello", " there", ",", " friend", "!")


@dataclass(frozen=True, slots=True)
class Script:
    """How `FakeBackend` answers. A word is a token.

    `hold_accept` waits before Accepted, `hold_at` before that word; both until `FakeBackend.release` or a cancellation.
    `refuse` fails before Accepted, `fail_at` before that word. `per_delta` words travel in one frame.
    """

    words: tuple[str, ...] = WORDS
    per_delta: int = 1
    refuse: ErrorInfo | None = None
    fail_at: int | None = None
    error: ErrorInfo = field(default_factory=EngineCrashed("the model process ended by signal 11").info)
    hold_accept: bool = False
    hold_at: int | None = None
    gap_s: float = 0.0
    n_cached: int = 2
    dropped: int = 0
    skip_choice_done: bool = False
    skip_terminal: bool = False
    end_token: bool = False


class FakeBackend:
    """A `Backend` that plays scripts instead of running a model. Attributes may be changed between requests."""

    def __init__(
        self, script: Script | None = None, *, script_for: Callable[[ChatRequest], Script] | None = None
    ) -> None:
        self.script = script or Script()
        self.script_for = script_for
        self.state = "ready"
        self.facts: Ready | None = READY
        self.loading = 1.0
        self.stats = EngineStats()
        self.n_restarts = 0
        self.problem: ErrorInfo | None = None
        self.refusal: HeadraceError | None = None
        self.refuse_after: int | None = None
        self.requests: list[ChatRequest] = []
        self.replies: list[FakeReply] = []
        self.release = asyncio.Event()
        self.submitted = asyncio.Event()
        self.n_closed = 0

    async def submit(self, request: ChatRequest) -> FakeReply:
        if self.refusal is not None and len(self.requests) >= (self.refuse_after or 0):
            raise self.refusal
        self.requests.append(request)
        script = self.script_for(request) if self.script_for else self.script
        reply = FakeReply(request, script, self.release)
        self.replies.append(reply)
        self.submitted.set()
        return reply

    async def close(self) -> None:
        self.n_closed += 1
        self.state = "closed"
        for reply in self.replies:
            reply.fail(ErrorInfo("shutting_down", "Headrace is shutting down", 503, "unavailable_error"))

    @property
    def n_cancelled(self) -> int:
        return sum(reply.cancelled.is_set() for reply in self.replies)


class FakeReply:
    """One scripted reply. `at_hold` is set when it waits, `cancelled` when somebody cancelled it while it ran."""

    def __init__(self, request: ChatRequest, script: Script, release: asyncio.Event) -> None:
        self.request = request
        self.script = script
        self.cancelled = asyncio.Event()
        self.at_hold = asyncio.Event()
        self.ended = asyncio.Event()
        self._release = release
        self._lost: ErrorInfo | None = None
        self._n_generated = 0

    def cancel(self) -> None:
        if not self.ended.is_set():
            self.cancelled.set()

    def fail(self, error: ErrorInfo) -> None:
        if not self.ended.is_set():
            self._lost = error
            self.cancelled.set()

    async def __aiter__(self) -> AsyncIterator[ReplyFrame]:
        async for frame in self._play():
            if self.cancelled.is_set():
                break
            if isinstance(frame, Done | Failed):
                self.ended.set()
                yield frame
                return
            yield frame
        self.ended.set()
        if self._lost is not None:
            yield Failed(self.request.id, self._lost)
        elif self.cancelled.is_set():
            yield self._done(cancelled=True)

    async def _play(self) -> AsyncIterator[ReplyFrame]:
        request, script = self.request, self.script
        if script.hold_accept:
            await self._hold()
        if script.refuse is not None:
            yield Failed(request.id, script.refuse)
            return
        yield Accepted(request.id, self._n_prompt(), script.dropped)
        yield Progress(request.id, 1, self._n_prompt())
        if request.echo:
            for index in range(request.n):
                yield Delta(request.id, index, request.text or "", 0)
        async for frame in self._choices():
            yield frame
        if not script.skip_terminal:
            yield self._done()

    async def _choices(self) -> AsyncIterator[ReplyFrame]:
        plans = [self._plan(index) for index in range(self.request.n)]
        step = self.script.per_delta
        for at in range(0, max((len(words) for words, _, _ in plans), default=0), step):
            if self.script.hold_at is not None and at >= self.script.hold_at:
                await self._hold()
                if self.cancelled.is_set():
                    return
            # Frames come from another process: others of this loop have their turn between them.
            await asyncio.sleep(self.script.gap_s)
            if self.script.fail_at is not None and at >= self.script.fail_at:
                yield Failed(self.request.id, self.script.error, emitted=at > 0)
                return
            for index, (words, _, _) in enumerate(plans):
                if said := words[at : at + step]:
                    self._n_generated += len(said)
                    yield Delta(self.request.id, index, "".join(said), len(said), self._logprobs(said))
        for index, (_, reason, stop) in enumerate(plans):
            if self.script.end_token and self.request.logprobs is not None:
                yield Delta(self.request.id, index, "", 1, self._logprobs(("",)))
            if not self.script.skip_choice_done:
                yield ChoiceDone(self.request.id, index, reason, stop)

    def _plan(self, index: int) -> tuple[tuple[str, ...], str, str | None]:
        """Words, reason and stop string of one choice."""
        words = self.script.words
        text = "".join(words)
        met = [(text.index(stop), stop) for stop in self.request.stop if stop in text]
        if met:
            at, stop = min(met)
            return _cut(words, at), "stop", stop
        limit = self.request.max_tokens
        if limit is not None and limit < len(words):
            return words[:limit], "length", None
        return words, "stop", None

    def _logprobs(self, words: tuple[str, ...]) -> tuple[TokenLogprob, ...]:
        n = self.request.logprobs
        if n is None:
            return ()
        return tuple(
            TokenLogprob(7, word.encode(), -0.25, tuple((7 + k, word.encode() + b"x" * k, -0.25 - k) for k in range(n)))
            for word in words
        )

    async def _hold(self) -> None:
        self.at_hold.set()
        waits = [asyncio.ensure_future(event.wait()) for event in (self._release, self.cancelled)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def _n_prompt(self) -> int:
        request = self.request
        if request.tokens is not None:
            return len(request.tokens)
        text = request.text if request.text is not None else " ".join(m.content for m in request.messages)
        return max(1, len(text.split()))

    def _done(self, *, cancelled: bool = False) -> Done:
        n_prompt = self._n_prompt()
        timings = Timings(1.0, 20.0, 100.0, n_prompt, self._n_generated, self.script.n_cached)
        return Done(self.request.id, n_prompt, self.script.n_cached, self._n_generated, timings, cancelled)


def _cut(words: tuple[str, ...], n_chars: int) -> tuple[str, ...]:
    """Words of the first `n_chars` characters."""
    kept: list[str] = []
    for word in words:
        if n_chars <= 0:
            break
        kept.append(word[:n_chars])
        n_chars -= len(word)
    return tuple(kept)
