"""What a reply used and how long it took: the `Done` frames of its prompts, added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runtime.frames import Done


class Tally:
    """Times are milliseconds in the worker. `n_dropped` counts turns left out so that a chat fits its context."""

    def __init__(self, dones: Sequence[Done], n_choices: int, n_dropped: int = 0) -> None:
        timings = [done.timings for done in dones]
        self._n_choices = n_choices
        self._n_dropped = n_dropped
        self.n_prompt = sum(done.n_prompt for done in dones)
        self.n_cached = sum(done.n_cached for done in dones)
        self.n_generated = sum(done.n_generated for done in dones)
        self._prompt_n = sum(timing.prompt_n for timing in timings)
        self._prompt_ms = sum(timing.prompt_ms for timing in timings)
        self._predicted_ms = sum(timing.predicted_ms for timing in timings)

    def said(self) -> dict[str, Any]:
        """What stands beside the choices of a complete reply."""
        dropped = {"dropped_turns": self._n_dropped} if self._n_dropped else {}
        return {"usage": self.usage(), "timings": self.timings(), **dropped}

    def usage(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.n_prompt,
            "completion_tokens": self.n_generated,
            "total_tokens": self.n_prompt + self.n_generated,
            "prompt_tokens_details": {"cached_tokens": self.n_cached},
            "completion_tokens_details": {"reasoning_tokens": 0},
        }

    def timings(self) -> dict[str, Any]:
        # The clock of the reply starts at each choice's first token, which therefore took no time on it.
        n_timed = max(0, self.n_generated - self._n_choices)
        return {
            "prompt_n": self._prompt_n,
            "prompt_ms": _round(self._prompt_ms),
            "prompt_per_second": _round(per_second(self._prompt_n, self._prompt_ms)),
            "predicted_n": self.n_generated,
            "predicted_ms": _round(self._predicted_ms),
            "predicted_per_second": _round(per_second(n_timed, self._predicted_ms)),
            "cache_n": self.n_cached,
        }


def per_second(n: int, ms: float) -> float:
    return 1000 * n / ms if ms > 0 else 0.0


def _round(value: float) -> float:
    return round(value, 3)
