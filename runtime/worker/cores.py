"""How many threads may compute, given what other programs use of this machine.

llama.cpp's threads wait for each other hundreds of times a token, spinning. With one thread more than free cores every
wait lasts until the scheduler lets the missing thread run: measured, two threads beside one busy program fall from 110
to between 0.3 and 60 tokens per second on two cores, one thread stays at 45. So threads give way to programs that keep
cores busy, and come back when those end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

WINDOW_S = 0.4
# Others below this share of a core are the chat's own client, the service, a clock: not worth a thread.
NEGLIGIBLE = 0.45
# A thread comes back only when others have used clearly less than it needs, so that the count does not flutter.
COMING_BACK = 0.25


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds since some moment: of all programs together, and of this one. `at` is in seconds too."""

    at: float
    everyone: float
    ours: float


def usage_now() -> Usage:
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    # guest time is counted within user time already
    guest = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return Usage(time.perf_counter(), sum(times) - idle - guest, time.process_time())


class ThreadGovernor:
    """`threads()` says how many to use now; asked before every step by the engine thread, its only owner."""

    def __init__(
        self, most: int, usage: Callable[[], Usage] = usage_now, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._most = most
        self._usage = usage
        self._clock = clock
        self._last = usage()
        self._now = most
        self._wanted = most
        self.n_changes = 0

    def threads(self) -> int:
        """At most once in a window it looks at the machine; else this is one comparison."""
        if self._most > 1 and self._clock() - self._last.at >= WINDOW_S:
            self._look()
        return self._now

    def _look(self) -> None:
        newest, last = self._usage(), self._last
        self._last = newest
        span = newest.at - last.at
        if span > 10 * WINDOW_S:
            return  # nothing was computed for a while: this window says nothing about now
        others = max(0.0, (newest.everyone - last.everyone) - (newest.ours - last.ours)) / span
        before, self._wanted = self._wanted, thread_count(self._most, others, self._now)
        # Two windows in a row: a program that starts, or a client that connects, is no reason to give a core away.
        new = self._wanted if self._wanted > self._now else min(self._now, max(before, self._wanted))
        self.n_changes += new != self._now
        self._now = new


def thread_count(most: int, others: float, now: int) -> int:
    """Threads beside programs that keep `others` cores busy; `now` is the count so far.

    >>> thread_count(2, 1.0, 2), thread_count(2, 0.3, 2), thread_count(2, 0.3, 1), thread_count(8, 2.6, 8)
    (1, 2, 1, 5)
    """
    fitting = most - math.ceil(max(0.0, others - NEGLIGIBLE))
    if fitting > now:
        fitting = most - math.ceil(max(0.0, others - COMING_BACK))
    return max(1, min(most, fitting))
