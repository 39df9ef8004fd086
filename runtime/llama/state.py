"""A sequence's memory as bytes, out and in. Bytes are bit-exact and belong to the same model, file and settings.

llama.cpp reads them without checking much: the caller keeps a fingerprint and a hash beside them. What is restored is
checked against the positions it must hold, because a restore that left nothing decodes garbage without an error.
"""

from __future__ import annotations

import ctypes

import numpy as np

from runtime.llama import log
from runtime.llama.errors import CutRefused, LlamaError, MemoryDamaged, RestoreFailed
from runtime.llama.library import raw
from runtime.llama.memory import Memory

PARTIAL_ONLY = 1

Bytes = bytes | bytearray | memoryview


class State:
    """Save and restore for one context. Used by the thread that decodes, between steps: 1 GB takes about 0.1 s."""

    def __init__(self, context: int, memory: Memory) -> None:
        self._context = context
        self._memory = memory
        pointer, size, seq, flags = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32, ctypes.c_uint32
        self._get_size = raw("llama_state_seq_get_size_ext", size, pointer, seq, flags)
        self._get_data = raw("llama_state_seq_get_data_ext", size, pointer, pointer, size, seq, flags)
        self._set_data = raw("llama_state_seq_set_data_ext", size, pointer, pointer, size, seq, flags)

    def size(self, seq: int, *, partial: bool = False) -> int:
        """Bytes `save` would give."""
        self._memory.check(seq)
        n: int = self._get_size(self._context, seq, PARTIAL_ONLY if partial else 0)
        return n

    def save(self, seq: int, *, partial: bool = False, into: bytearray | None = None) -> memoryview:
        """All of `seq`. `partial` leaves out what is not sliding-window or recurrent.

        `into` is grown if it is too small and reused; the answer is a view of it, to be released before the next use.
        """
        if self._memory.pos_max(seq) < 0:
            raise ValueError(f"sequence {seq} is empty: there is nothing to save")
        size = self.size(seq, partial=partial)
        if into is None:
            array = np.empty(size, np.uint8)
        else:
            if len(into) < size:
                into.extend(bytes(size - len(into)))
            array = np.frombuffer(into, np.uint8, size)
        written: int = self._get_data(self._context, array.ctypes.data, size, seq, PARTIAL_ONLY if partial else 0)
        if written != size:
            said = log.reason(log.last_lines()[-5:], "llama.cpp gave no reason")
            raise LlamaError(f"saving sequence {seq} gave {written} of {size} bytes: {said}")
        return array.data

    def save_range(
        self, seq: int, tmp: int, p0: int, p1: int, *, partial: bool = False, into: bytearray | None = None
    ) -> memoryview:
        """Positions [p0, p1) of `seq`, through the empty sequence `tmp`, which is empty again afterwards.

        With a sliding window the last cells of the range only. Raises CutRefused for recurrent state.
        """
        if not self._memory.can_cut:
            raise CutRefused("recurrent state has no ranges: save the sequence whole")
        if not 0 <= p0 < p1 <= self._memory.pos_max(seq) + 1:
            raise ValueError(f"positions {p0} to {p1} of sequence {seq}, which ends at {self._memory.pos_max(seq)}")
        self._memory.drop(tmp)
        try:
            self._memory.share(seq, tmp, p0, p1)
            return self.save(tmp, partial=partial, into=into)
        finally:
            self._memory.drop(tmp)

    def restore(self, seq: int, data: Bytes, length: int, *, partial: bool = False) -> None:
        """Replace `seq` by a saved state of `length` tokens.

        Raises RestoreFailed and leaves `seq` empty; its kind MemoryDamaged when `seq` cannot be emptied.
        """
        self._read(seq, data, partial)
        if not self._memory.holds(seq, length):
            held = f"positions {self._memory.pos_min(seq)} to {self._memory.pos_max(seq)}"
            self._empty(seq)
            raise RestoreFailed(f"a state of {length} tokens was expected, it holds {held}: compute the prompt anew")

    def restore_range(self, seq: int, tmp: int, data: Bytes, p0: int, p1: int) -> None:
        """Append positions [p0, p1), saved by `save_range`, to `seq`, which ends at p0. `tmp` is empty afterwards.

        Raises RestoreFailed and leaves `seq` as it was.
        """
        if (end := self._memory.pos_max(seq) + 1) != p0:
            raise ValueError(f"sequence {seq} holds {end} tokens, positions from {p0} do not follow")
        try:
            self._read(tmp, data, partial=False)
            low, high = self._memory.pos_min(tmp), self._memory.pos_max(tmp)
            if high != p1 - 1 or not p0 <= low <= max(p0, self._memory.oldest_needed(p1)):
                raise RestoreFailed(
                    f"positions {p0} to {p1 - 1} were expected, {low} to {high} came: compute them anew"
                )
            self._memory.share(tmp, seq, p0, p1)
        finally:
            self._empty(tmp)

    def _empty(self, seq: int) -> None:
        """llama.cpp takes any position out of a state, but removes only those from 0 on."""
        low, high = self._memory.pos_min(seq), self._memory.pos_max(seq)
        self._memory.drop(seq)
        # -1 is a position like any other to llama.cpp, and its answer for an empty sequence: it shows beside others.
        if low < 0 <= high or self._memory.pos_min(seq) != -1 or self._memory.pos_max(seq) != -1:
            raise MemoryDamaged(
                f"sequence {seq} kept position {low} of a damaged state: clear the memory or load the model again"
            )

    def _read(self, seq: int, data: Bytes, partial: bool) -> None:
        self._memory.check(seq)
        array = np.frombuffer(data, np.uint8)
        with log.captured() as lines:
            n: int = self._set_data(self._context, array.ctypes.data, len(array), seq, PARTIAL_ONLY if partial else 0)
        if n != len(array):
            self._empty(seq)
            why = log.reason(lines, f"llama.cpp read {n} of its {len(array)} bytes")
            raise RestoreFailed(f"the saved state was not accepted ({why}): compute the prompt anew")
