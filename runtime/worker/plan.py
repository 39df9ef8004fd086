"""What the scheduler asks for, what the runner brings back, and what follows for the client. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.frames import TokenLogprob
from runtime.worker.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Chunk:
    """Compute `sequence.tokens[start:stop]`; sample from the last row if `samples`."""

    sequence: Sequence
    start: int
    stop: int
    samples: bool


@dataclass(frozen=True, slots=True)
class Fork:
    """Let `target` see the first `length` cells of `source` (both are llama sequence ids)."""

    source: int
    target: int
    length: int


@dataclass(frozen=True, slots=True)
class Plan:
    """One step: first drop, then fork, then decode the chunks' rows in order."""

    drops: tuple[int, ...]
    forks: tuple[Fork, ...]
    chunks: tuple[Chunk, ...]

    @property
    def n_rows(self) -> int:
        return sum(chunk.stop - chunk.start for chunk in self.chunks)

    @property
    def is_empty(self) -> bool:
        return not (self.drops or self.forks or self.chunks)


@dataclass(frozen=True, slots=True)
class Pick:
    """The token chosen for one output row. `token` -1 means the logits were not finite."""

    token: int
    logprob: TokenLogprob | None = None


@dataclass(frozen=True, slots=True)
class StepResult:
    """`picks` are in the order of the chunks that sample."""

    picks: tuple[Pick, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Event:
    """Something the client may hear of. `reason` "" goes on; else "stop", "length", "cancelled" or an error code.

    `token` -1 carries no token (an end-of-generation token is counted, never shown).
    """

    request_id: str
    index: int
    token: int = -1
    logprob: TokenLogprob | None = None
    reason: str = ""
    sampled: int = 0


@dataclass(frozen=True, slots=True)
class PrefillEvent:
    """Prompt tokens computed so far."""

    request_id: str
    done: int
    total: int
