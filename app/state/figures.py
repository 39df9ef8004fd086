"""The figures of a reply: measured here while it is written, the server's own once it is complete."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from runtime.stream import Usage

# Speed while writing is taken over this many last pieces, so that it follows the model without trembling.
PIECES = 40


@dataclass(frozen=True, slots=True)
class Figures:
    """None is unknown. `is_live` while the reply is being written: speed then counts pieces of text, not tokens."""

    per_second: float | None = None
    first_token_s: float | None = None
    n_prompt: int | None = None
    n_cached: int | None = None
    n_generated: int | None = None
    is_live: bool = False


NO_FIGURES = Figures()


@dataclass(slots=True)
class Stopwatch:
    """Times one reply from the moment it is asked for."""

    asked_s: float = field(default_factory=time.monotonic)
    first_s: float | None = None
    usage: Usage = field(default_factory=Usage)
    _pieces: deque[float] = field(default_factory=lambda: deque(maxlen=PIECES))

    def tick(self, at_s: float) -> None:
        """A piece of text came."""
        if self.first_s is None:
            self.first_s = at_s
        self._pieces.append(at_s)

    def live(self) -> Figures:
        return Figures(self._speed(), self._first_token_s(), is_live=True)

    def final(self) -> Figures:
        usage = self.usage
        return Figures(
            usage.predicted_per_second or self._speed(),
            self._first_token_s(),
            usage.n_prompt,
            usage.n_cached,
            usage.n_generated,
        )

    def _first_token_s(self) -> float | None:
        return None if self.first_s is None else self.first_s - self.asked_s

    def _speed(self) -> float | None:
        if len(self._pieces) < 2 or self._pieces[-1] <= self._pieces[0]:
            return None
        return (len(self._pieces) - 1) / (self._pieces[-1] - self._pieces[0])
