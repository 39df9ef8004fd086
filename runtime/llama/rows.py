"""Batch rows as numpy arrays that llama.cpp reads in place: filling them is the only thing a step has to do.

The arrays are made once and never moved, because the native batch points into them.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.llama.errors import InvalidBatch
from runtime.llama.library import lib


class RowBuffer:
    """Room for `n_batch` rows, one sequence each. Written by the thread that decodes, read by llama.cpp.

    `token`, `pos`, `seq` are int32 of shape (n_batch,); `output` is int8, not 0 where logits are wanted. Rows of one
    sequence stand in the order of their positions, which follow on from what its memory holds.
    """

    def __init__(self, n_batch: int, n_outputs_max: int, *, all_rows: bool = False) -> None:
        """`all_rows`: every row gives output whatever `output` says, as when embeddings are computed."""
        self.n_batch = n_batch
        self._all_rows = all_rows
        self.n_outputs_max = n_outputs_max
        self.token: NDArray[np.int32] = np.zeros(n_batch, np.int32)
        self.pos: NDArray[np.int32] = np.zeros(n_batch, np.int32)
        self.seq: NDArray[np.int32] = np.zeros(n_batch, np.int32)
        self.output: NDArray[np.int8] = np.zeros(n_batch, np.int8)
        self._one_each: NDArray[np.int32] = np.ones(n_batch, np.int32)
        self._seq_at: NDArray[np.uintp] = self.seq.ctypes.data + 4 * np.arange(n_batch, dtype=np.uintp)
        self._batch = _wire(self)

    def batch(self, n_rows: int) -> tuple[Any, int]:
        """The native batch of the first `n_rows` rows, and how many of them give logits.

        Both counts are asserts in llama.cpp, so they are checked here. Raises InvalidBatch with the numbers.
        """
        if not 0 < n_rows <= self.n_batch:
            raise InvalidBatch(f"a step of {n_rows} rows: 1 to {self.n_batch} are possible")
        n_outputs = n_rows if self._all_rows else int(np.count_nonzero(self.output[:n_rows]))
        if n_outputs > self.n_outputs_max:
            raise InvalidBatch(
                f"a step that wants logits of {n_outputs} rows: at most {self.n_outputs_max} are possible"
            )
        self._batch.n_tokens = n_rows
        return self._batch, n_outputs


def _wire(rows: RowBuffer) -> Any:
    batch = lib().llama_batch()
    for field, array in (
        ("token", rows.token),
        ("pos", rows.pos),
        ("n_seq_id", rows._one_each),
        ("seq_id", rows._seq_at),
        ("logits", rows.output),
    ):
        kind = dict(batch._fields_)[field]
        setattr(batch, field, ctypes.cast(array.ctypes.data, kind))
    batch.embd = None
    return batch
