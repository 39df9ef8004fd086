"""Which positions each sequence holds in a context's memory, and the verified ways to change that.

`share`, `drop`, `cut` and `clear` change it, besides decoding and restoring. Some memories answer that a removal
worked and have done nothing, or have lost what the next token needs, so every cut is checked against the positions.
"""

from __future__ import annotations

from typing import Any, Protocol

from runtime.llama.errors import CutRefused
from runtime.llama.library import lib


class NativeMemory(Protocol):
    """llama.cpp's memory calls. Positions are token positions; p1 -1 is to the end, pos_min and pos_max -1 is empty."""

    def remove(self, seq: int, p0: int, p1: int) -> bool: ...
    def copy(self, src: int, dst: int, p0: int, p1: int) -> None: ...
    def pos_min(self, seq: int) -> int: ...
    def pos_max(self, seq: int) -> int: ...
    def clear(self) -> None: ...


class LlamaMemory:
    """The calls of one context."""

    def __init__(self, context: int) -> None:
        L = lib()
        self._handle: Any = L.llama_get_memory(context)
        self._remove, self._copy = L.llama_memory_seq_rm, L.llama_memory_seq_cp
        self._pos_min, self._pos_max = L.llama_memory_seq_pos_min, L.llama_memory_seq_pos_max
        self._clear = L.llama_memory_clear

    def remove(self, seq: int, p0: int, p1: int) -> bool:
        answer: bool = self._remove(self._handle, seq, p0, p1)
        return answer

    def copy(self, src: int, dst: int, p0: int, p1: int) -> None:
        self._copy(self._handle, src, dst, p0, p1)

    def pos_min(self, seq: int) -> int:
        position: int = self._pos_min(self._handle, seq)
        return position

    def pos_max(self, seq: int) -> int:
        position: int = self._pos_max(self._handle, seq)
        return position

    def clear(self) -> None:
        self._clear(self._handle, True)


class Memory:
    """Sequences 0 to n_seq_max - 1. Used by the thread that decodes, between steps.

    `n_swa` is the sliding window in tokens, 0 for none. `can_cut` is False for recurrent state. `unified` says that
    all sequences live in one pool, where sharing costs nothing. A sequence id out of range raises ValueError: it would
    end the process in llama.cpp.
    """

    def __init__(self, native: NativeMemory, *, n_seq_max: int, n_swa: int, can_cut: bool, unified: bool) -> None:
        self._native = native
        self._n_seq_max = n_seq_max
        self._n_swa = n_swa
        self._unified = unified
        self.can_cut = can_cut

    def share(self, src: int, dst: int, p0: int = 0, p1: int = -1) -> None:
        """Let `dst` see positions [p0, p1) of `src` too. What `dst` holds must end at or before `p0`."""
        self.check(src, dst)
        if src == dst:
            return
        if not self._unified and (p0 > 0 or p1 >= 0):
            raise ValueError("parts of a sequence can be shared in a unified pool only")
        if not self.can_cut and (p0 > 0 or 0 <= p1 <= self._native.pos_max(src)):
            raise ValueError("recurrent state is shared whole: llama.cpp would ignore the range")
        if (held := self._native.pos_max(dst)) >= p0:
            raise ValueError(f"sequence {dst} holds positions up to {held}, sharing from {p0} would give it some twice")
        self._native.copy(src, dst, p0, p1)

    def drop(self, seq: int) -> None:
        """Forget a whole sequence; cells it shares stay with the others. Never fails."""
        self.check(seq)
        self._native.remove(seq, -1, -1)

    def cut(self, seq: int, length: int) -> None:
        """Keep positions [0, length) and forget the rest. Raises CutRefused; the message says what is left."""
        self.check(seq)
        if length == 0:
            self.drop(seq)
            return
        low, high = self._native.pos_min(seq), self._native.pos_max(seq)
        if high == length - 1:
            return
        if high < length:
            raise CutRefused(f"sequence {seq} ends at {high}, it cannot be cut to {length} tokens; it is unchanged")
        if not self.can_cut:
            raise CutRefused(f"recurrent state cannot go back from {high + 1} to {length} tokens; it is unchanged")
        if low > self.oldest_needed(length):
            raise CutRefused(
                f"a sliding window of {self._n_swa} before token {length} is needed, sequence {seq} starts at {low}; "
                f"it is unchanged"
            )
        accepted = self._native.remove(seq, length, -1)
        if not accepted or not self.holds(seq, length):
            left = f"{self._native.pos_min(seq)} to {self._native.pos_max(seq)}"
            self.drop(seq)
            raise CutRefused(f"cutting sequence {seq} to {length} tokens left positions {left}; it was dropped")

    def holds(self, seq: int, length: int) -> bool:
        """Does `seq` hold what the token at position `length` needs, and nothing from there on?"""
        low, high = self._native.pos_min(seq), self._native.pos_max(seq)
        return high == length - 1 and (not self.can_cut or 0 <= low <= self.oldest_needed(length))

    def oldest_needed(self, length: int) -> int:
        """The lowest position a sequence of `length` tokens must still hold."""
        return max(0, length - self._n_swa) if self._n_swa else 0

    def pos_min(self, seq: int) -> int:
        """Lowest position held, -1 for an empty sequence. Above 0 with a sliding window."""
        self.check(seq)
        return self._native.pos_min(seq)

    def pos_max(self, seq: int) -> int:
        """Highest position held, -1 for an empty sequence."""
        self.check(seq)
        return self._native.pos_max(seq)

    def clear(self) -> None:
        """Forget every sequence."""
        self._native.clear()

    def check(self, *seqs: int) -> None:
        for seq in seqs:
            if not 0 <= seq < self._n_seq_max:
                raise ValueError(f"sequence {seq}: ids are 0 to {self._n_seq_max - 1}")
