"""The books of requests: one terminal frame each, and a poison request takes nobody with it."""

from __future__ import annotations

import asyncio
import random

import pytest

from runtime.errors import ErrorInfo, Overloaded
from runtime.frames import Accepted, Delta, Done, Failed, Timings
from runtime.request import ChatRequest
from runtime.service import calls as module
from runtime.service.backend import ReplyFrame
from runtime.service.calls import Call, Calls

LOST = ErrorInfo("engine_crashed", "lost", 500)
REFUSED = ErrorInfo("engine_crashed", "twice", 500)
TIMINGS = Timings(0.0, 0.0, 0.0, 0, 0)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Books(Calls):
    """Calls, with what the worker was told to stop."""

    def __init__(self, *, parallel: int = 2, n_waiting: int = 100) -> None:
        self.stopped: list[str] = []
        self.clock = Clock()
        super().__init__(n_waiting=n_waiting, parallel=parallel, stop=self.stopped.append, clock=self.clock)

    def add_all(self, *ids: str, n: int = 1) -> list[Call]:
        return [self.add(ChatRequest(id, text="", n=n)) for id in ids]

    def send_all(self) -> list[str]:
        sent = []
        while (call := self.next_to_send()) is not None:
            sent.append(call.id)
        return sent

    def lose(self) -> None:
        self.worker_lost(LOST, REFUSED)
        self.check()


def done(id: str) -> Done:
    return Done(id, 1, 0, 1, TIMINGS)


def read(call: Call) -> list[ReplyFrame]:
    """Everything a client gets; the reply must have ended."""

    async def all_frames() -> list[ReplyFrame]:
        return [frame async for frame in call]

    return asyncio.run(asyncio.wait_for(all_frames(), 5))


def test_nothing_follows_the_terminal_frame() -> None:
    books = Books()
    (call,) = books.add_all("a")
    books.send_all()
    for frame in (Accepted("a", 1), done("a"), Delta("a", 0, "x", 1), done("a"), Failed("a", LOST)):
        books.receive(frame)
    assert read(call) == [Accepted("a", 1), done("a")]
    assert books.counts.dropped == 3
    books.check()


def test_frames_of_nobody_are_dropped_and_counted() -> None:
    books = Books()
    books.add_all("waiting")
    books.receive(Delta("stranger", 0, "x", 1))
    books.receive(done("waiting"))  # not sent: no worker can know it
    assert books.counts.dropped == 2
    assert books.n_open == 1


def test_a_lost_worker_ends_what_had_begun_and_returns_the_rest_to_the_front_in_order() -> None:
    books = Books(parallel=4)
    calls = books.add_all("begun", "accepted", "sent")
    books.send_all()
    books.receive(Accepted("begun", 1))
    books.receive(Delta("begun", 0, "x", 1))
    books.receive(Accepted("accepted", 1))
    books.add_all("newer")
    books.lose()
    assert read(calls[0])[-1] == Failed("begun", LOST, emitted=True)
    assert books.counts.requeued == 2
    assert [call.id for call in books._waiting] == ["accepted", "sent", "newer"]


def test_accepted_reaches_the_client_once_however_often_the_request_is_sent() -> None:
    books = Books()
    (call,) = books.add_all("a")
    books.send_all()
    books.receive(Accepted("a", 1))
    books.lose()
    assert books.send_all() == ["a"]
    books.receive(Accepted("a", 1))
    books.receive(done("a"))
    assert read(call) == [Accepted("a", 1), done("a")]
    assert books.counts.dropped == 0


def test_those_that_may_have_ended_a_worker_are_tried_one_at_a_time() -> None:
    books = Books(parallel=3)
    calls = books.add_all("a", "poison", "b")
    books.send_all()
    books.lose()
    books.add_all("new")
    assert books.send_all() == ["a", "new"], "a second suspect was sent beside the first"
    books.receive(Delta("a", 0, "x", 1))
    assert books.send_all() == ["poison"]
    books.receive(done("a"))
    books.lose()
    assert read(calls[1]) == [Failed("poison", REFUSED)]
    # "new" met the poison by chance, once; "b" was never beside it again
    assert books.send_all() == ["new"]
    books.receive(done("new"))
    assert books.send_all() == ["b"]
    books.receive(done("b"))
    assert [call.emitted for call in calls] == [True, False, False]
    assert books.n_open == 0
    books.check()


def test_requests_the_worker_cannot_have_begun_lose_no_attempt() -> None:
    books = Books(parallel=2)
    calls = books.add_all("running", "running too", "accepting", "behind")
    books.send_all()
    for id in ("running", "running too"):
        books.receive(Accepted(id, 1))
    books.lose()
    assert {call.id: call.attempts for call in calls} == {"running": 1, "running too": 1, "accepting": 1, "behind": 0}


def test_choices_take_their_places_among_those_that_run() -> None:
    books = Books(parallel=2)
    calls = [*books.add_all("two choices", n=2), *books.add_all("behind")]
    books.send_all()
    for call in calls:
        books.receive(Accepted(call.id, 1))
    books.lose()
    assert [call.attempts for call in calls] == [1, 0]


def test_a_cancelled_request_ends_as_cancelled_also_with_its_worker() -> None:
    books = Books()
    waiting, sent = books.add_all("waiting", "sent")
    waiting.cancel()
    assert isinstance(read(waiting)[-1], Done)
    books.send_all()
    sent.cancel()
    sent.cancel()
    assert books.stopped == ["sent"], "the worker must be told once, and only of what it has"
    books.lose()
    last = read(sent)[-1]
    assert isinstance(last, Done)
    assert last.cancelled
    assert books.n_open == 0


def test_a_cancelled_request_the_worker_forgets_is_ended_after_a_while() -> None:
    books = Books()
    (call,) = books.add_all("a")
    books.send_all()
    call.cancel()
    books.clock.now = 9.0
    books.give_up(after_s=10.0)
    assert not call.finished
    books.clock.now = 11.0
    books.give_up(after_s=10.0)
    assert call.finished
    books.check()


def test_a_client_that_leaves_everything_unread_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNREAD_FRAMES", 10)
    books = Books()
    (call,) = books.add_all("a")
    books.send_all()
    for _ in range(12):
        books.receive(Delta("a", 0, "x", 1))
    last = read(call)[-1]
    assert isinstance(last, Failed)
    assert last.error.code == "client_too_slow"
    assert books.stopped == ["a"]
    books.check()


def test_the_bound_counts_what_runs_and_what_waits() -> None:
    books = Books(parallel=2, n_waiting=3)
    books.add_all("a", "b", "c", "d", "e")
    with pytest.raises(Overloaded, match="5 are allowed"):
        books.add_all("f")
    books.send_all()
    with pytest.raises(Overloaded):
        books.add_all("f")
    books.receive(done("a"))
    books.add_all("f")


def test_an_id_in_use_is_our_mistake() -> None:
    books = Books()
    books.add_all("a")
    with pytest.raises(ValueError, match="in use"):
        books.add_all("a")


class Forgetful(Books):
    """Planted fault: does not requeue."""

    def _requeue(self, calls: list[Call]) -> None:
        pass


class Generous(Books):
    """Planted fault: ends what had begun and requeues it as well."""

    def worker_lost(self, lost: ErrorInfo, refused: ErrorInfo) -> None:
        sent = list(self._sent.values())
        super().worker_lost(lost, refused)
        self._waiting.extend(call for call in sent if call.finished)


def _storm(books: Books, seed: int) -> list[Call]:
    """Random events, with the books checked after each."""
    rng = random.Random(seed)
    calls: list[Call] = []
    for number in range(400):
        open_calls = [call for call in calls if not call.finished]
        event = rng.choice(("add", "send", "accept", "delta", "delta", "done", "cancel", "lose"))
        if event == "add" and books.n_open < 100:
            calls += books.add_all(f"r{number}")
        elif event == "send":
            books.next_to_send()
        elif event == "lose":
            books.worker_lost(LOST, REFUSED)
        elif open_calls:
            call = rng.choice(open_calls)
            if event == "cancel":
                call.cancel()
            else:
                frames = {"accept": Accepted(call.id, 1), "delta": Delta(call.id, 0, "x", 1), "done": done(call.id)}
                books.receive(frames[event])
        books.check()
    books.fail_all(LOST)
    books.check()
    return calls


def test_whatever_happens_every_request_ends_once() -> None:
    n_calls = n_requeued = 0
    for seed in range(30):
        books = Books()
        for call in _storm(books, seed):
            frames = read(call)
            assert sum(isinstance(frame, Done | Failed) for frame in frames) == 1
            assert sum(isinstance(frame, Accepted) for frame in frames) <= 1
            n_calls += 1
        n_requeued += books.counts.requeued
    print(f"{n_calls} requests, {n_requeued} requeued")
    assert n_requeued > 0


@pytest.mark.parametrize("faulty", [Forgetful, Generous])
def test_the_check_of_the_books_sees_planted_faults(faulty: type[Books]) -> None:
    with pytest.raises(AssertionError, match=r"lost|finished request"):
        _storm(faulty(), seed=1)
