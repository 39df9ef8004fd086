"""A KV pool without a model: it keeps the tokens in its cells, so that any mistake in what a sequence sees changes what
comes next. The next token is a hash of everything visible.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np

from runtime.llama.errors import NoCells

N_VOCAB = 97
EOG = 96


def next_token(tokens: list[int], *, eog_every: int = 0) -> int:
    """What the fake model says after `tokens`."""
    digest = zlib.crc32(np.asarray(tokens, np.int32).tobytes())
    if eog_every and digest % eog_every == 0:
        return EOG
    return digest % (N_VOCAB - 1)


def continuation(prompt: list[int], n: int, *, eog_every: int = 0) -> list[int]:
    """The first `n` tokens after `prompt`, ending before an end-of-generation token: the reference for the engine."""
    tokens, out = list(prompt), []
    for _ in range(n):
        token = next_token(tokens, eog_every=eog_every)
        if token == EOG:
            break
        tokens.append(token)
        out.append(token)
    return out


class FakeRows:
    def __init__(self, n: int) -> None:
        self.token = np.zeros(n, np.int32)
        self.pos = np.zeros(n, np.int32)
        self.seq = np.zeros(n, np.int32)
        self.output = np.zeros(n, np.int8)


@dataclass(eq=False)
class Cell:
    token: int
    owners: set[int] = field(default_factory=set)


class FakeMemory:
    """`n_cells` cells; `decode` raises NoCells, changing nothing, when they run out."""

    def __init__(self, n_cells: int, n_batch: int = 64, *, eog_every: int = 0, nan_after: int | None = None) -> None:
        self.rows = FakeRows(n_batch)
        self.n_cells = n_cells
        self.cells: list[Cell] = []
        self.visible: dict[int, list[Cell]] = {}
        self.eog_every = eog_every
        self.nan_after = nan_after
        self.n_decodes = 0
        self.n_shared = 0
        self.longest_batch = 0
        self._logits = np.zeros((0, N_VOCAB), np.float32)

    @property
    def n_used(self) -> int:
        return sum(bool(cell.owners) for cell in self.cells)

    def clear_abort(self) -> None:
        """Nothing to abort."""

    def set_threads(self, n: int, n_batch: int | None = None) -> None:
        """Nothing computes."""

    def decode(self, n_rows: int) -> None:
        rows = self.rows
        assert 0 < n_rows <= len(rows.token)
        if self.n_used + n_rows > self.n_cells:
            raise NoCells(f"{n_rows} rows, {self.n_cells - self.n_used} cells free")
        self.n_decodes += 1
        self.longest_batch = max(self.longest_batch, n_rows)
        self.cells = [cell for cell in self.cells if cell.owners]
        out = []
        for i in range(n_rows):
            seq = int(rows.seq[i])
            held = self.visible.setdefault(seq, [])
            assert int(rows.pos[i]) == len(held), f"sequence {seq}: row at {rows.pos[i]}, {len(held)} cells"
            cell = Cell(int(rows.token[i]), {seq})
            self.cells.append(cell)
            held.append(cell)
            if rows.output[i]:
                out.append(self._row([c.token for c in held]))
        self._logits = np.stack(out) if out else np.zeros((0, N_VOCAB), np.float32)

    def logits(self, n_outputs: int) -> np.ndarray:
        assert n_outputs == len(self._logits)
        return self._logits

    def share(self, src: int, dst: int, p0: int = 0, p1: int = -1) -> None:
        assert p0 == 0
        assert not self.visible.get(dst), f"sequence {dst} is not empty"
        held = self.visible[src][:p1]
        assert len(held) == p1
        for cell in held:
            cell.owners.add(dst)
        self.visible[dst] = list(held)
        self.n_shared += 1

    def drop(self, seq: int) -> None:
        for cell in self.visible.pop(seq, []):
            cell.owners.discard(seq)

    def _row(self, tokens: list[int]) -> np.ndarray:
        row = np.zeros(N_VOCAB, np.float32)
        if self.nan_after is not None and len(tokens) > self.nan_after:
            row[:] = np.nan
        row[next_token(tokens, eog_every=self.eog_every)] = 1.0
        return row


class GreedyChain:
    """A sampler chain that takes the best token."""

    is_greedy = True
    needs_full = False

    def __init__(self) -> None:
        self.is_closed = False

    def sample(self, logits: np.ndarray) -> int:
        return int(logits.argmax())

    def sample_from(self, ids: np.ndarray, logits: np.ndarray) -> int:
        return int(ids[logits.argmax()])

    def accept(self, token: int) -> None:
        """Nothing depends on the past."""

    def accept_many(self, tokens: list[int]) -> None:
        """Nothing depends on the past."""

    def close(self) -> None:
        self.is_closed = True
