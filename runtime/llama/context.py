"""One context: rows in, logits out, and the memory between steps.

`decode`, `share`, `drop`, `cut`, `clear`, `restore` and `restore_range` change it. Everything is called by one thread,
the one that decodes, except `abort`, which may come from any.
"""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from runtime.llama import log, resolved
from runtime.llama.abort import AbortFlag
from runtime.llama.errors import ContextFailed, DecodeAborted, DecodeFatal, InvalidBatch, LlamaError, NoCells
from runtime.llama.library import lib, raw
from runtime.llama.memory import LlamaMemory, Memory
from runtime.llama.model import Model
from runtime.llama.options import ContextOptions, native_params
from runtime.llama.rows import RowBuffer
from runtime.llama.state import Bytes, State

__all__ = ["Context", "ContextOptions"]


class Context:
    """A model's working memory. Raises ContextFailed with llama.cpp's reason when it cannot be made.

    Sizes are what llama.cpp made of the options. `flash_attn` is what auto was resolved to, "on" or "off". `kv_bytes`
    and `compute_bytes` come from its log, 0 if it said nothing; `resolved` has the parts.
    """

    def __init__(self, model: Model, options: ContextOptions) -> None:
        L = lib()
        self.options = options
        self._model = model
        self._flag = AbortFlag()
        with log.captured() as lines:
            pointer = L.llama_init_from_model(model.pointer, native_params(options, self._flag))
        if not pointer:
            silent = "llama.cpp gave no reason, perhaps memory is short: try fewer tokens"
            raise ContextFailed(f"no context of {options.n_ctx} tokens: {log.reason(lines, silent)}")
        self._pointer: int | None = pointer
        model.adopt(self)
        self.n_vocab = model.vocab.n_tokens
        self.n_ctx: int = L.llama_n_ctx(pointer)
        self.n_ctx_seq: int = L.llama_n_ctx_seq(pointer)
        self.n_ubatch: int = L.llama_n_ubatch(pointer)
        self.n_batch = rows_bound(L.llama_n_batch(pointer), self.n_ubatch, L.llama_get_causal_attn(pointer))
        self.n_seq_max: int = L.llama_n_seq_max(pointer)
        self.resolved = resolved.read(options.flash_attn, lines)
        self.flash_attn = self.resolved.flash_attn
        self.kv_bytes, self.compute_bytes = self.resolved.kv_bytes, self.resolved.compute_bytes
        n_outputs_max = self.n_batch if model.has_encoder else options.n_outputs or self.n_batch
        self.rows = RowBuffer(self.n_batch, min(n_outputs_max, self.n_batch), all_rows=options.embeddings)
        self._memory = Memory(
            LlamaMemory(pointer),
            n_seq_max=self.n_seq_max,
            n_swa=model.n_swa,
            can_cut=model.can_cut,
            unified=options.kv_unified,
        )
        self._state = State(pointer, self._memory)
        self._decode = L.llama_decode
        self._synchronize = L.llama_synchronize
        self._get_logits = raw("llama_get_logits", ctypes.c_void_p, ctypes.c_void_p)
        self._n_outputs = 0

    # computing

    def decode(self, n_rows: int) -> None:
        """Compute the first `n_rows` rows of `rows`.

        Raises NoCells (nothing changed), DecodeAborted (earlier parts of the step stay in memory), InvalidBatch
        (nothing changed) or DecodeFatal.
        """
        batch, n_outputs = self.rows.batch(n_rows)
        self._n_outputs = 0
        code: int = self._decode(self._open(), batch)
        if code == 0:
            self._n_outputs = n_outputs
            return
        raise _decode_error(code, n_rows, self.n_ctx)

    def logits(self, n_outputs: int) -> NDArray[np.float32]:
        """Logits of the last step, float32 of shape (n_outputs, n_vocab), in the order of its output rows.

        A view of llama.cpp's buffer, valid until the next decode; waits until they are computed.
        """
        if n_outputs != self._n_outputs:
            raise ValueError(f"the last step has logits of {self._n_outputs} rows, {n_outputs} were asked for")
        if n_outputs == 0:
            return np.empty((0, self.n_vocab), np.float32)
        address: int | None = self._get_logits(self._open())  # synchronizes and puts the rows in order
        if not address:
            raise LlamaError("this context gives no logits: it was made for embeddings")
        numbers = (ctypes.c_float * (n_outputs * self.n_vocab)).from_address(address)
        rows: NDArray[np.float32] = np.frombuffer(memoryview(numbers), np.float32).reshape(n_outputs, self.n_vocab)
        return rows

    def synchronize(self) -> None:
        """Wait for a device that is still computing."""
        self._synchronize(self._open())

    def set_threads(self, n: int, n_batch: int | None = None) -> None:
        """From the next step on: `n` for steps of one row, `n_batch` (None: the same) for longer ones."""
        lib().llama_set_n_threads(self._open(), max(1, n), max(1, n_batch or n))

    def abort(self) -> None:
        """End the running step and refuse new ones until `clear_abort`. From any thread; acts on the CPU only."""
        self._flag.set()

    def clear_abort(self) -> None:
        self._flag.clear()

    @property
    def can_abort(self) -> bool:
        return self._flag.available

    # memory, see memory.py

    @property
    def can_cut(self) -> bool:
        return self._memory.can_cut

    def share(self, src: int, dst: int, p0: int = 0, p1: int = -1) -> None:
        """Let `dst` see positions [p0, p1) of `src` too; p1 -1 is to its end."""
        self._open()
        self._memory.share(src, dst, p0, p1)

    def drop(self, seq: int) -> None:
        """Forget a whole sequence."""
        self._open()
        self._memory.drop(seq)

    def cut(self, seq: int, length: int) -> None:
        """Keep positions [0, length). Raises CutRefused when the memory cannot."""
        self._open()
        self._memory.cut(seq, length)

    def pos_min(self, seq: int) -> int:
        self._open()
        return self._memory.pos_min(seq)

    def pos_max(self, seq: int) -> int:
        self._open()
        return self._memory.pos_max(seq)

    def clear(self) -> None:
        """Forget every sequence."""
        self._open()
        self._memory.clear()

    # state, see state.py

    def save(self, seq: int, *, partial: bool = False, into: bytearray | None = None) -> memoryview:
        """The whole sequence as bytes."""
        self._open()
        return self._state.save(seq, partial=partial, into=into)

    def save_range(
        self, seq: int, tmp: int, p0: int, p1: int, *, partial: bool = False, into: bytearray | None = None
    ) -> memoryview:
        """Positions [p0, p1) as bytes, through the empty sequence `tmp`."""
        self._open()
        return self._state.save_range(seq, tmp, p0, p1, partial=partial, into=into)

    def restore(self, seq: int, data: Bytes, length: int, *, partial: bool = False) -> None:
        """Replace `seq` by a saved state of `length` tokens. Raises RestoreFailed, then `seq` is empty."""
        self._open()
        self._state.restore(seq, data, length, partial=partial)

    def restore_range(self, seq: int, tmp: int, data: Bytes, p0: int, p1: int) -> None:
        """Append saved positions [p0, p1) to `seq`, which ends at p0. Raises RestoreFailed, then `seq` is unchanged."""
        self._open()
        self._state.restore_range(seq, tmp, data, p0, p1)

    # lifetime

    def close(self) -> None:
        """Frees everything; views of logits die with it. May be called twice."""
        if self._pointer is not None:
            pointer, self._pointer = self._pointer, None
            lib().llama_free(pointer)

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> int:
        if self._pointer is None:
            raise LlamaError("the context is closed")
        return self._pointer


def rows_bound(n_batch: int, n_ubatch: int, causal: bool) -> int:
    """Rows a step may have. llama.cpp asserts that attention in both directions is computed in one piece."""
    return n_batch if causal else min(n_batch, n_ubatch)


def _decode_error(code: int, n_rows: int, n_ctx: int) -> LlamaError:
    if code == 1:
        return NoCells(f"no room for {n_rows} rows in the pool of {n_ctx} cells; drop a sequence or raise --ctx")
    if code == 2:
        return DecodeAborted(f"a step of {n_rows} rows was aborted")
    said = log.reason(log.last_lines()[-6:], "llama.cpp gave no reason")
    if code == -1:
        return InvalidBatch(f"llama.cpp refused a step of {n_rows} rows: {said}")
    return DecodeFatal(f"llama.cpp failed on a step of {n_rows} rows with code {code}: {said}")
