"""One stream of tokens the engine is working on, and the request its choices share.

Values of the engine thread: only the scheduler changes them, nothing here locks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Status(Enum):
    """WAITING holds no cells; RUNNING has a sequence id; PARKED is a trunk whose choices are still to fork."""

    WAITING = "waiting"
    RUNNING = "running"
    PARKED = "parked"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Sequence:
    """Known tokens, and how many of them have their state in KV cells.

    `tokens` is the prompt followed by what was generated; computed tokens catch up with known ones, whatever kind they
    are. `n_computed` counts cells this sequence can attend to, of which the first `n_shared` belong to its trunk.
    A trunk (`picker` None) computes a prompt that several choices share and never samples; `forks` wait for it, and
    `n_holders` sequence ids see its cells.
    """

    request_id: str
    index: int
    tokens: list[int]
    n_prompt: int
    n_limit: int
    picker: Any
    order: int
    trunk: Sequence | None = None
    status: Status = Status.WAITING
    seq_id: int = -1
    n_computed: int = 0
    n_shared: int = 0
    n_holders: int = 0
    forks: list[Sequence] = field(default_factory=list)

    @property
    def n_missing(self) -> int:
        """Known tokens without a cell."""
        return len(self.tokens) - self.n_computed

    @property
    def is_decoding(self) -> bool:
        """Caught up but for one token: one row of every step."""
        return self.n_missing == 1 and self.picker is not None

    @property
    def n_own(self) -> int:
        """Cells only this sequence holds."""
        return self.n_computed - self.n_shared
