"""Carries out a plan: drops, forks, one decode, and a token picked for every row that asks for one.

Mechanism only: it never chooses what to compute. The engine thread reads the logits once; pickers may then run on other
threads, each on its own row.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from runtime.worker.plan import Pick, Plan, StepResult


class Rows(Protocol):
    """Batch rows as writable numpy views, each of shape (n_batch,)."""

    @property
    def token(self) -> NDArray[np.int32]: ...
    @property
    def pos(self) -> NDArray[np.int32]: ...
    @property
    def seq(self) -> NDArray[np.int32]: ...
    @property
    def output(self) -> NDArray[np.int8]: ...


class Memory(Protocol):
    """What the runner uses of runtime.llama.context.Context; tests/fakes.py has one without weights."""

    @property
    def rows(self) -> Rows: ...
    def decode(self, n_rows: int) -> None: ...
    def logits(self, n_outputs: int) -> NDArray[np.float32]: ...
    def share(self, src: int, dst: int, p0: int = 0, p1: int = -1) -> None: ...
    def drop(self, seq: int) -> None: ...
    def clear_abort(self) -> None: ...
    def set_threads(self, n: int, n_batch: int | None = None) -> None: ...


class Runner:
    """Owned by the engine thread. `close` ends the picker threads.

    `threads` is asked before every step how many threads may compute; None leaves the context as it was made.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        threads: Callable[[], int] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._memory = memory
        self._threads = threads
        self._n_threads = 0
        self._clock = clock
        self._pool = ThreadPoolExecutor(min(8, os.cpu_count() or 1), thread_name_prefix="picker")

    def run(self, plan: Plan) -> StepResult:
        """Raises what `decode` raises; drops and forks are done by then and stay done."""
        started = self._clock()
        for seq_id in plan.drops:
            self._memory.drop(seq_id)
        for fork in plan.forks:
            self._memory.share(fork.source, fork.target, 0, fork.length)
        if not plan.chunks:
            return StepResult((), 0.0)
        self._adapt()
        self._memory.clear_abort()
        self._memory.decode(self._fill(plan))
        picks = self._pick(plan)
        return StepResult(picks, self._clock() - started)

    def close(self) -> None:
        self._pool.shutdown(wait=True)

    def _adapt(self) -> None:
        if self._threads is not None and (n := self._threads()) != self._n_threads:
            self._n_threads = n
            self._memory.set_threads(n)

    def _fill(self, plan: Plan) -> int:
        rows = self._memory.rows
        token, pos, seq, output = rows.token, rows.pos, rows.seq, rows.output
        n = 0
        for chunk in plan.chunks:
            end = n + chunk.stop - chunk.start
            token[n:end] = chunk.sequence.tokens[chunk.start : chunk.stop]
            pos[n:end] = range(chunk.start, chunk.stop) if end - n == 1 else np.arange(chunk.start, chunk.stop)
            seq[n:end] = chunk.sequence.seq_id
            output[n:end] = 0
            output[end - 1] = chunk.samples
            n = end
        return n

    def _pick(self, plan: Plan) -> tuple[Pick, ...]:
        pickers = [chunk.sequence.picker for chunk in plan.chunks if chunk.samples]
        if not pickers:
            return ()
        logits = self._memory.logits(len(pickers))
        n_costly = sum(not picker.is_cheap for picker in pickers)
        if n_costly < 2:
            return tuple(picker.pick(row) for picker, row in zip(pickers, logits, strict=True))
        futures = [
            None if picker.is_cheap else self._pool.submit(picker.pick, row)
            for picker, row in zip(pickers, logits, strict=True)
        ]
        return tuple(
            future.result() if future is not None else picker.pick(row)
            for picker, row, future in zip(pickers, logits, futures, strict=True)
        )
