"""When a silent worker counts as hung. Pure policy: it is told what happened and asked for a verdict.

Silence is counted in ticks of our own, never by the clock alone: a service that was stopped, or a laptop that slept,
must not kill a worker for the time nobody listened.
"""

from __future__ import annotations

from runtime.config import WatchdogOptions
from runtime.frames import ChoiceDone, Delta, Done, EngineStats, Frame, Loading, Ping, Pong, Progress

# What the engine thread brings about. A prompt thread that still accepts requests proves nothing about steps.
_SIGNS_OF_LIFE = (Pong, Delta, Progress, ChoiceDone, Done)
LONGEST_STEPS = 20


class Watchdog:
    """One worker's, from its start to its end. Times are seconds on the caller's clock."""

    def __init__(self, options: WatchdogOptions, now: float) -> None:
        self._options = options
        self._last_tick = now
        self._silent_s = 0.0
        self._since_ping_s = options.ping_s
        self._longest_step_s = 0.0
        self._loaded = False
        self._nonce = 0
        self._unanswered: int | None = None

    @property
    def tick_s(self) -> float:
        """How often `tick` wants to be called."""
        return min(self._options.ping_s, self._options.hang_s / 4, self._options.load_s / 4)

    @property
    def limit_s(self) -> float:
        """The silence that is too long now."""
        if not self._loaded:
            return self._options.load_s
        return max(self._options.hang_s, LONGEST_STEPS * self._longest_step_s)

    def ready(self) -> None:
        self._loaded = True
        self._silent_s = 0.0

    def heard(self, frame: Frame) -> None:
        if isinstance(frame, _SIGNS_OF_LIFE if self._loaded else Loading):
            self._silent_s = 0.0
        if isinstance(frame, Pong):
            self._learn(frame.nonce, frame.stats)

    def tick(self, now: float) -> Ping | None:
        """Count the silence since the last tick. Returns the ping to send, if one is due."""
        awake_s = min(now - self._last_tick, 2 * self.tick_s)
        self._last_tick = now
        if not self._loaded or self._unanswered is not None:
            self._silent_s += awake_s
        self._since_ping_s += awake_s
        if not self._loaded or self._unanswered is not None or self._since_ping_s < self._options.ping_s:
            return None
        self._since_ping_s = 0.0
        self._nonce += 1
        self._unanswered = self._nonce
        return Ping(self._nonce)

    def verdict(self) -> str | None:
        """Why the worker must be killed, in words that follow "it"."""
        if self._silent_s <= self.limit_s:
            return None
        doing = "answered nothing" if self._loaded else "made no progress while loading"
        return f"hung: it {doing} for {self._silent_s:.3g} s"

    def _learn(self, nonce: int, stats: EngineStats) -> None:
        if nonce == self._unanswered:
            self._unanswered = None
        self._longest_step_s = max(self._longest_step_s, stats.longest_step_s)
