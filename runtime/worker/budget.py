"""How many prompt tokens one step may compute: small enough that running chats do not stall, large enough to be fast.

`observe` is the only thing that changes it. Chunk ends fall on multiples of 256 where they can and of 64 otherwise, so
that the same prompt is cut at the same places and a saved block never straddles a chunk. Fewer than 64 rows are no
bargain: llama.cpp's tiled attention on the CPU starts there, and 32 rows after a long prompt take as long as 64.
"""

from __future__ import annotations

from dataclasses import dataclass

BLOCK = 256
GRAIN = 64
# With nobody to hold up, a step may take this long: a cancelled prompt still stops within it.
ALONE_S = 1.0
NEWEST_WEIGHT = 0.3


@dataclass(slots=True)
class StepBudget:
    """`target_s` is the longest step while others decode; `n_max` the rows a batch can hold."""

    target_s: float
    n_max: int
    seconds_per_token: float = 0.0

    def tokens(self, *, others_decode: bool) -> int:
        """Prompt tokens for the next step, at least 64."""
        if not self.seconds_per_token:
            # Nothing is known of this machine yet: on a slow one more would look like a hang.
            return min(GRAIN, self.n_max)
        affordable = int((self.target_s if others_decode else ALONE_S) / self.seconds_per_token)
        grain = BLOCK if affordable >= BLOCK else GRAIN
        return max(min(GRAIN, self.n_max), min(affordable // grain * grain, self.n_max))

    def observe(self, n_prompt_tokens: int, seconds: float) -> None:
        """Learn from a step; small chunks say little about the cost of large ones."""
        if n_prompt_tokens < GRAIN:
            return
        newest = seconds / n_prompt_tokens
        if not self.seconds_per_token:
            self.seconds_per_token = newest
        else:
            self.seconds_per_token += NEWEST_WEIGHT * (newest - self.seconds_per_token)


def chunk_end(start: int, n_known: int, n_allowed: int) -> int:
    """Where a chunk that begins at `start` ends, given that at most `n_allowed` of the known tokens may be computed.

    >>> chunk_end(0, 1000, 300), chunk_end(256, 1000, 100), chunk_end(250, 1000, 3)
    (256, 320, 253)
    """
    end = min(start + n_allowed, n_known)
    if end == n_known:
        return end
    for grain in (BLOCK, GRAIN):
        aligned = end // grain * grain
        if aligned > start:
            return aligned
    return end
