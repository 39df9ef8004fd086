"""The books of the unified KV pool: how many cells are taken.

llama.cpp offers no call for used cells, so this arithmetic decides admission and preemption. `take` and `give` change
the count; `check` recounts from those who hold cells and raises when the books are wrong.
"""

from __future__ import annotations

from collections.abc import Iterable

from runtime.worker.sequence import Sequence


class CellBook:
    """Cells in use out of `total`. A trunk's cells are counted once, however many forks see them."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0

    @property
    def free(self) -> int:
        return self.total - self.used

    def take(self, n: int) -> None:
        self.used += n
        assert 0 <= self.used <= self.total, f"{self.used} of {self.total} cells"

    def give(self, n: int) -> None:
        self.take(-n)

    def check(self, holders: Iterable[Sequence]) -> None:
        held = sum(sequence.n_own for sequence in holders)
        if held != self.used:
            raise AssertionError(f"the books say {self.used} cells, the sequences hold {held}")
