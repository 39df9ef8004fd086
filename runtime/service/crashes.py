"""How often a worker may die before its model is switched off, and how long to wait before the next one."""

from __future__ import annotations

from collections import deque

from runtime.config import WatchdogOptions

LONGEST_WAIT_S = 30.0


class Crashes:
    """Those within the window. Times are seconds on the caller's clock."""

    def __init__(self, options: WatchdogOptions) -> None:
        self._options = options
        self._times: deque[float] = deque()

    def add(self, now: float) -> None:
        self._times.append(now)
        while now - self._times[0] > self._options.crash_window_s:
            self._times.popleft()

    def clear(self) -> None:
        self._times.clear()

    @property
    def too_many(self) -> bool:
        return len(self._times) >= self._options.crashes

    @property
    def wait_s(self) -> float:
        """Doubles with every crash in the window."""
        doublings = min(len(self._times) - 1, 16)
        return min(LONGEST_WAIT_S, self._options.backoff_s * 2.0**doublings)
