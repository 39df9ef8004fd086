"""The heart: plan a step, run it, commit what came of it.

Synchronous and owned by one thread. Requests, cancellations and questions are messages, read between steps; what
happened goes out as events.
"""

from __future__ import annotations

import itertools
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass

from runtime.frames import EngineStats
from runtime.llama.errors import DecodeAborted, LlamaError, NoCells
from runtime.worker.plan import Event, Plan, PrefillEvent
from runtime.worker.runner import Runner
from runtime.worker.sampler import Picker
from runtime.worker.scheduler import Scheduler
from runtime.worker.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Submission:
    """A request whose prompt is tokens. One picker for each choice; `n_limit` counts prompt and generated tokens."""

    request_id: str
    tokens: list[int]
    n_limit: int
    pickers: tuple[Picker, ...]


@dataclass(frozen=True, slots=True)
class Cancellation:
    request_id: str


@dataclass(frozen=True, slots=True)
class Forget:
    """Everything posted before this cancellation was read: the id need not be remembered any more."""

    request_id: str


@dataclass(frozen=True, slots=True)
class StopMet:
    """The text thread found a stop string in this choice."""

    request_id: str
    index: int


@dataclass(frozen=True, slots=True)
class Question:
    """Answered between steps with the engine's figures, which proves that steps end."""

    answer: Callable[[EngineStats], None]


@dataclass(frozen=True, slots=True)
class Closing:
    """Ends everything with shutting_down, then the thread."""


Letter = Submission | Cancellation | Forget | StopMet | Question | Closing
Events = list[Event | PrefillEvent]


class Engine:
    """One model's requests. Only `post`, `cancel` and `in_step` may be used from other threads."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        emit: Callable[[Events, float], None],
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`emit` takes a step's events and when the step began on `clock`."""
        self._clock = clock
        self._scheduler = scheduler
        self._runner = runner
        self._emit = emit
        self._inbox: queue.SimpleQueue[Letter] = queue.SimpleQueue()
        self._cancelled: set[str] = set()
        self._order = itertools.count()
        self._closing = False
        self._pickers: dict[str, tuple[Picker, ...]] = {}
        self._totals = _Totals()
        self.in_step: frozenset[str] = frozenset()

    # from other threads

    def post(self, letter: Letter) -> None:
        self._inbox.put(letter)

    def cancel(self, request_id: str) -> bool:
        """End a request before its next step, even one still on its way. True if the running step is all its own."""
        self._cancelled.add(request_id)
        self._inbox.put(Cancellation(request_id))
        return self.in_step != frozenset() and self.in_step <= self._cancelled

    # the engine thread

    def run(self) -> None:
        """Serve until a Closing letter. What breaks here ends the process; the supervisor answers for its requests."""
        while not self._closing:
            self._read_letters()
            if self._scheduler.has_work:
                began = self._clock()
                self._deliver(self.step(), began)

    def step(self) -> Events:
        """One plan, one decode. Recoverable failures cost the step, not the requests."""
        plan = self._scheduler.schedule()
        self.in_step = frozenset(chunk.sequence.request_id for chunk in plan.chunks)
        try:
            result = self._runner.run(plan)
        except NoCells:
            return [] if self._scheduler.refused() else self._fail(plan, "decode_failed")
        except DecodeAborted:
            return self._forget_step(plan)
        except LlamaError:
            return self._fail(plan, "decode_failed")
        finally:
            self.in_step = frozenset()
        self._totals.count(plan, result.seconds)
        return self._scheduler.commit(plan, result)

    def _read_letters(self) -> None:
        idle = not self._scheduler.has_work
        while not self._closing:
            try:
                letter = self._inbox.get(block=idle)
            except queue.Empty:
                return
            self._read(letter)
            idle = idle and not self._scheduler.has_work

    def _read(self, letter: Letter) -> None:
        match letter:
            case Submission():
                self._admit(letter)
            case Cancellation(request_id):
                self._deliver([*self._scheduler.cancel(request_id)])
            case Forget(request_id):
                self._cancelled.discard(request_id)
            case StopMet(request_id, index):
                self._scheduler.finish(request_id, index)
                self._release(request_id)
            case Question(answer):
                answer(self._stats())
            case Closing():
                self._closing = True
                self._fail_all("shutting_down")

    def _admit(self, submission: Submission) -> None:
        self._pickers[submission.request_id] = submission.pickers
        if submission.request_id in self._cancelled:
            self._deliver([Event(submission.request_id, i, reason="cancelled") for i in range(len(submission.pickers))])
            return
        order = next(self._order)
        tokens, n_limit = submission.tokens, submission.n_limit
        self._scheduler.submit(
            [
                Sequence(submission.request_id, index, list(tokens), len(tokens), n_limit, picker, order)
                for index, picker in enumerate(submission.pickers)
            ]
        )

    def _deliver(self, events: Events, began: float | None = None) -> None:
        if not events:
            return
        self._emit(events, self._clock() if began is None else began)
        for event in events:
            if isinstance(event, Event) and event.reason:
                if event.reason == "numeric_error":
                    # The whole request fails with it: its other choices must not go on for nobody.
                    self._scheduler.cancel(event.request_id)
                self._release(event.request_id)

    def _release(self, request_id: str) -> None:
        """Free what a request held, once its last choice is over."""
        if not self._scheduler.knows(request_id):
            for picker in self._pickers.pop(request_id, ()):
                picker.close()

    def _forget_step(self, plan: Plan) -> Events:
        """An aborted step computed some rows and not others: compute its sequences anew."""
        for chunk in plan.chunks:
            self._scheduler.preempt(chunk.sequence)
        return []

    def _fail(self, plan: Plan, code: str) -> Events:
        events: Events = []
        for request_id in {chunk.sequence.request_id for chunk in plan.chunks}:
            events += self._scheduler.cancel(request_id, code)
        return events

    def _fail_all(self, code: str) -> None:
        for request_id in list(self._pickers):
            self._deliver([*self._scheduler.cancel(request_id, code)])

    def _stats(self) -> EngineStats:
        cells, totals = self._scheduler.cells, self._totals
        return EngineStats(
            running=self._scheduler.n_running, waiting=self._scheduler.n_waiting,
            cells_used=cells.used, cells_total=cells.total,
            n_steps=totals.n_steps, n_preempted=self._scheduler.n_preempted,
            n_prompt_tokens=totals.n_prompt, n_generated_tokens=totals.n_generated,
            prefill_s=totals.prefill_s, decode_s=totals.decode_s, longest_step_s=totals.longest_s,
        )  # fmt: skip


@dataclass(slots=True)
class _Totals:
    """Counters since load. A mixed step's time is split by rows."""

    n_steps: int = 0
    n_prompt: int = 0
    n_generated: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    longest_s: float = 0.0

    def count(self, plan: Plan, seconds: float) -> None:
        if not plan.chunks:
            return
        n_sampled = sum(chunk.samples for chunk in plan.chunks)
        n_decode = sum(chunk.stop - chunk.start == 1 for chunk in plan.chunks)
        n_prompt = plan.n_rows - n_decode
        self.n_steps += 1
        self.n_prompt += n_prompt
        self.n_generated += n_sampled
        self.prefill_s += seconds * n_prompt / plan.n_rows
        self.decode_s += seconds * n_decode / plan.n_rows
        self.longest_s = max(self.longest_s, seconds)
