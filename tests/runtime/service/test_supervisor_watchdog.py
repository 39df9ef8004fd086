"""When a worker counts as hung, and when a model is switched off: pure policy on a clock of our own."""

from __future__ import annotations

from runtime.config import WatchdogOptions
from runtime.errors import ErrorInfo
from runtime.frames import Accepted, Delta, EngineStats, Failed, Frame, Loading, Pong
from runtime.service.crashes import LONGEST_WAIT_S, Crashes
from runtime.service.watchdog import Watchdog

OPTIONS = WatchdogOptions(ping_s=1.0, hang_s=10.0, load_s=40.0, backoff_s=0.5, crashes=3, crash_window_s=60.0)


class Watched:
    """A watchdog and its clock. `answering` makes the worker answer every ping at once."""

    def __init__(self, *, ready: bool = True) -> None:
        self.now = 0.0
        self.dog = Watchdog(OPTIONS, self.now)
        self.pings: list[int] = []
        if ready:
            self.dog.ready()

    def live(self, seconds: float, *, answering: bool = False, frame: Frame | None = None) -> str | None:
        """Tick as often as the watchdog wants; `frame` arrives before every tick. The first verdict ends it."""
        end = self.now + seconds
        while self.now < end:
            self.now += self.dog.tick_s
            if frame is not None:
                self.dog.heard(frame)
            ping = self.dog.tick(self.now)
            if ping is not None:
                self.pings.append(ping.nonce)
                if answering:
                    self.dog.heard(Pong(ping.nonce, EngineStats()))
            if (verdict := self.dog.verdict()) is not None:
                return verdict
        return None


def test_a_worker_that_answers_lives_and_is_pinged_every_second() -> None:
    watched = Watched()
    assert watched.live(100, answering=True) is None
    assert 95 <= len(watched.pings) <= 101
    assert len(set(watched.pings)) == len(watched.pings)


def test_a_silent_worker_is_hung_after_the_limit_and_gets_one_ping() -> None:
    watched = Watched()
    verdict = watched.live(100)
    assert verdict is not None
    assert "answered nothing for" in verdict
    assert 10 < watched.now <= 13
    assert len(watched.pings) == 1


def test_tokens_prove_life_but_accepting_and_refusing_do_not() -> None:
    assert Watched().live(100, frame=Delta("a", 0, "x", 1)) is None
    assert Watched().live(100, frame=Accepted("a", 1)) is not None
    assert Watched().live(100, frame=Failed("a", ErrorInfo("x", "x", 400))) is not None


def test_the_limit_grows_with_the_longest_step_seen() -> None:
    watched = Watched()
    watched.live(1, answering=True)
    watched.dog.heard(Pong(0, EngineStats(longest_step_s=2.0)))
    assert watched.dog.limit_s == 40.0
    assert watched.live(39) is None
    assert watched.live(10) is not None


def test_a_load_may_take_as_long_as_it_makes_progress() -> None:
    watched = Watched(ready=False)
    assert watched.live(400, frame=Loading(0.5)) is None
    assert watched.pings == [], "a worker that loads cannot answer"
    verdict = watched.live(100)
    assert verdict is not None
    assert "no progress while loading for" in verdict


def test_time_in_which_we_slept_ourselves_is_no_silence() -> None:
    watched = Watched()
    watched.live(3)
    for _ in range(3):
        watched.now += 3600  # the laptop lid was closed
        watched.dog.tick(watched.now)
        assert watched.dog.verdict() is None
    assert watched.live(20) is not None, "silence while we are awake still counts"


def test_crashes_outside_the_window_are_forgiven() -> None:
    crashes = Crashes(OPTIONS)
    for now in (0.0, 50.0, 100.0, 150.0, 200.0):
        crashes.add(now)
        assert not crashes.too_many
    crashes.add(205.0)
    assert crashes.too_many
    crashes.clear()
    assert not crashes.too_many


def test_the_wait_doubles_with_every_crash_up_to_a_bound() -> None:
    crashes = Crashes(OPTIONS)
    waits = []
    for _ in range(12):
        crashes.add(0.0)
        waits.append(crashes.wait_s)
    assert waits[:4] == [0.5, 1.0, 2.0, 4.0]
    assert waits[-1] == LONGEST_WAIT_S
