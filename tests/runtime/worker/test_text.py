"""Every request gets its text in order and exactly one terminal frame."""

from __future__ import annotations

import pytest

from runtime.errors import ErrorInfo
from runtime.frames import ChoiceDone, Delta, Done, Failed, Frame, Progress, TokenLogprob
from runtime.worker.plan import Event, PrefillEvent
from runtime.worker.text import FRAME_GAP_S, Begin, Refuse, Step, TextThread


class Wire:
    """A text thread driven by hand on a clock that stands still until told."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.stopped: list[tuple[str, int]] = []
        self.now = 100.0
        self.text = TextThread(
            self.frames.append,
            lambda token: {1: b"Hello", 2: b" wor", 3: b"ld", 4: "é".encode()[:1], 5: "é".encode()[1:]}[token],
            lambda request_id, index: self.stopped.append((request_id, index)),
            error=lambda code: ErrorInfo(code, f"it was {code}", 500),
            clock=lambda: self.now,
        )

    def begin(self, name: str = "a", n: int = 1, stops: tuple[str, ...] = (), echo: str = "") -> None:
        self.text.handle(Begin(name, n, 10, stops, self.now, echo))

    def step(self, *events: Event | PrefillEvent, after_s: float = 0.01) -> None:
        began, self.now = self.now, self.now + after_s
        self.text.handle(Step(list(events), began, self.now))
        self.text._flush_due()

    def of(self, kind: type) -> list:
        return [frame for frame in self.frames if isinstance(frame, kind)]

    @property
    def shown(self) -> str:
        return "".join(delta.text for delta in self.of(Delta))


def test_text_comes_in_order_and_ends_once() -> None:
    wire = Wire()
    wire.begin()
    wire.step(Event("a", 0, 1, sampled=1))
    wire.step(Event("a", 0, 2, sampled=1))
    wire.step(Event("a", 0, 3, reason="length", sampled=1))
    assert wire.shown == "Hello world"
    assert [type(frame) for frame in wire.frames][-2:] == [ChoiceDone, Done]
    done = wire.of(Done)[0]
    assert (done.n_generated, done.n_prompt, done.cancelled) == (3, 10, False)


def test_the_first_frame_is_not_delayed_and_later_ones_are_joined() -> None:
    wire = Wire()
    wire.begin()
    for _ in range(20):
        wire.step(Event("a", 0, 1, sampled=1), after_s=0.005)
    deltas = wire.of(Delta)
    assert deltas[0].n_tokens == 1
    assert len(deltas) <= 1 + 20 * 0.005 / FRAME_GAP_S
    assert sum(delta.n_tokens for delta in deltas) >= 13


def test_a_stop_string_ends_the_choice_and_late_tokens_are_dropped() -> None:
    wire = Wire()
    wire.begin(stops=("wor",))
    wire.step(Event("a", 0, 1, sampled=1))
    wire.step(Event("a", 0, 2, sampled=1))
    wire.step(Event("a", 0, 3, sampled=1))
    assert wire.shown == "Hello "
    assert wire.stopped == [("a", 0)]
    assert wire.of(ChoiceDone) == [ChoiceDone("a", 0, "stop", "wor")]
    assert len(wire.of(Done)) == 1


def test_each_choice_ends_and_the_request_once() -> None:
    wire = Wire()
    wire.begin(n=3)
    for i in range(3):
        wire.step(Event("a", i, 1, reason="length", sampled=1))
    assert [choice.index for choice in wire.of(ChoiceDone)] == [0, 1, 2]
    assert len(wire.of(Done)) == 1


@pytest.mark.parametrize("reason", ["numeric_error", "decode_failed", "shutting_down"])
def test_a_failure_is_terminal_and_nothing_follows(reason: str) -> None:
    wire = Wire()
    wire.begin(n=2)
    wire.step(Event("a", 0, 1, sampled=1))
    wire.step(Event("a", 0, reason=reason), Event("a", 1, reason=reason))
    assert len(wire.of(Failed)) == 1
    assert wire.of(Failed)[0].emitted
    assert not wire.of(Done)
    assert isinstance(wire.frames[-1], Failed)


def test_a_cancelled_request_ends_as_done() -> None:
    wire = Wire()
    wire.begin(n=2)
    wire.step(Event("a", 0, reason="cancelled"), Event("a", 1, reason="cancelled"))
    assert [frame.cancelled for frame in wire.of(Done)] == [True]
    assert not wire.of(ChoiceDone)


def test_a_refused_request_fails_without_having_begun() -> None:
    wire = Wire()
    wire.text.handle(Refuse("b", ErrorInfo("template_error", "no", 400)))
    assert wire.frames == [Failed("b", ErrorInfo("template_error", "no", 400), emitted=False)]


def test_logprobs_travel_with_the_text_of_their_tokens() -> None:
    wire = Wire()
    wire.begin()
    for token in (1, 4, 5):
        wire.step(Event("a", 0, token, TokenLogprob(token, b"?", -0.5), sampled=1), after_s=0.05)
    wire.step(Event("a", 0, reason="stop", sampled=1))
    deltas = wire.of(Delta)
    assert [delta.text for delta in deltas] == ["Hello", "é"]
    assert [[lp.token for lp in delta.logprobs] for delta in deltas] == [[1], [4, 5]]


def test_echo_comes_first() -> None:
    wire = Wire()
    wire.begin(echo="Once ")
    wire.step(Event("a", 0, 1, reason="length", sampled=1))
    assert wire.shown == "Once Hello"


def test_progress_is_reported_now_and_then() -> None:
    wire = Wire()
    wire.begin()
    for done in range(100, 1100, 100):
        wire.step(PrefillEvent("a", done, 1100), after_s=0.1)
    assert 3 <= len(wire.of(Progress)) <= 5
