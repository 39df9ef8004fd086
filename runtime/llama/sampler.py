"""llama.cpp's own sampler chain over arrays we hand it, in llama-server's default order.

A chain belongs to one sequence; its state (penalties, DRY, mirostat, random numbers) changes with `sample`,
`sample_from`, `accept` and `reset`. One thread at a time; native calls release the GIL. The native grammar sampler is
never part of it: it ends the process on inputs that occur.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.llama import settings
from runtime.llama.errors import LlamaError
from runtime.llama.library import lib, raw
from runtime.llama.vocab import Vocab
from runtime.request import Sampling

# llama_token_data, 12 bytes.
CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
RANDOM_SEED = 0xFFFFFFFF
MIROSTAT_M = 100

Logits = NDArray[np.float32]
Ids = NDArray[np.int32]

_scratch = threading.local()


class SamplerChain:
    """`seed` gives the same draws for the same logits. `n_ctx` is what a penalty window of -1 means, in tokens.

    `is_greedy`: takes the best entry, by argmax when `needs_full` is False. `needs_full`: every entry counts or logits
    change; when False, the top_k best entries (all within min_p of the best, when top_k is off) decide alone.
    """

    def __init__(self, sampling: Sampling, vocab: Vocab, *, seed: int, n_ctx: int) -> None:
        settings.check(sampling)
        self._biases = settings.biases(sampling, vocab)
        self._windows = settings.windows(sampling, n_ctx)
        changes_logits = bool(self._biases) or self.is_stateful
        self.is_greedy = settings.is_greedy(sampling)
        self.needs_full = changes_logits or not (self.is_greedy or settings.starts_with_a_cut(sampling))
        self._plain_argmax = self.is_greedy and not changes_logits
        self._chain: int | None = _build(sampling, vocab, self, seed)
        self._apply = raw("llama_sampler_apply", None, ctypes.c_void_p, ctypes.c_void_p)
        self._accept = raw("llama_sampler_accept", None, ctypes.c_void_p, ctypes.c_int32)

    @property
    def is_stateful(self) -> bool:
        """Do accepted tokens change what comes next?"""
        return any(self._windows)

    def sample(self, logits: Logits) -> int:
        """Choose from all entries; `logits` is float32 of shape (n_vocab,), finite at its best, and is not changed."""
        if self._plain_argmax:
            return int(logits.argmax())
        candidates = _room(len(logits))
        candidates["id"] = _every_id(len(logits))
        candidates["logit"] = logits
        return self._choose(candidates)

    def sample_from(self, ids: Ids, logits: Logits) -> int:
        """Choose among `ids` (int32) with their `logits` (float32), both of shape (n,), n at least 1."""
        if self._plain_argmax:
            return int(ids[logits.argmax()])
        candidates = _room(len(ids))
        candidates["id"] = ids
        candidates["logit"] = logits
        return self._choose(candidates)

    def accept(self, token: int) -> None:
        """Tell penalties and DRY that `token` was taken. Free when neither is on."""
        if self.is_stateful:
            self._accept(self._open(), token)

    def accept_many(self, tokens: Sequence[int]) -> None:
        """Like `accept` for each; tokens older than the longest window are passed over."""
        if self.is_stateful:
            chain = self._open()
            for token in tokens[-max(self._windows) :]:
                self._accept(chain, token)

    def reset(self) -> None:
        """As new: empty windows, the seed's first random number."""
        lib().llama_sampler_reset(self._open())

    def clone(self) -> SamplerChain:
        """A chain in the same state that goes its own way from here."""
        twin = object.__new__(SamplerChain)
        twin.__dict__.update(self.__dict__)
        twin._chain = lib().llama_sampler_clone(self._open())
        return twin

    def close(self) -> None:
        """May be called twice."""
        if self._chain is not None:
            chain, self._chain = self._chain, None
            lib().llama_sampler_free(chain)

    def __enter__(self) -> SamplerChain:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _choose(self, candidates: NDArray[Any]) -> int:
        base = candidates.ctypes.data
        array = CandidateArray(base, len(candidates), -1, False)
        self._apply(self._open(), ctypes.addressof(array))
        # XTC moves the start of the array; `selected` counts from there.
        index = (array.data - base) // CANDIDATE.itemsize + array.selected
        if array.selected < 0 or not 0 <= index < len(candidates):
            raise LlamaError(f"the sampler chose nothing among {len(candidates)} candidates")
        return int(candidates["id"][index])

    def _open(self) -> int:
        if self._chain is None:
            raise LlamaError("the sampler chain is closed")
        return self._chain


class CandidateArray(ctypes.Structure):
    """llama_token_data_array with a plain address for its data."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("selected", ctypes.c_int64),
        ("sorted", ctypes.c_bool),
    )


def _room(n: int) -> NDArray[Any]:
    """This thread's reused candidate array, `n` entries of it. Samplers write all over it."""
    array: NDArray[Any] | None = getattr(_scratch, "candidates", None)
    if array is None or len(array) < n:
        _scratch.candidates = array = np.zeros(n, CANDIDATE)
    return array[:n]


def _every_id(n: int) -> Ids:
    """0 to n - 1, kept for this thread."""
    ids: Ids | None = getattr(_scratch, "ids", None)
    if ids is None or len(ids) < n:
        _scratch.ids = ids = np.arange(n, dtype=np.int32)
    return ids[:n]


def _build(sampling: Sampling, vocab: Vocab, chain: SamplerChain, seed: int) -> int:
    L = lib()
    params = L.llama_sampler_chain_default_params()
    params.no_perf = True
    pointer: int = L.llama_sampler_chain_init(params)
    seed &= 0xFFFFFFFF
    # This one value means "a random seed" to llama.cpp.
    seed = seed if seed != RANDOM_SEED else RANDOM_SEED - 1
    for part in _parts(L, sampling, vocab, chain, seed):
        L.llama_sampler_chain_add(pointer, part)
    return pointer


def _parts(L: Any, s: Sampling, vocab: Vocab, chain: SamplerChain, seed: int) -> list[Any]:
    """In llama-server's default order; a part whose setting is off is left out."""
    penalties, dry = chain._windows
    parts = []
    if chain._biases:
        entries = (L.llama_logit_bias * len(chain._biases))(*chain._biases)
        parts.append(L.llama_sampler_init_logit_bias(vocab.n_tokens, len(entries), entries))
    if settings.uses_mirostat(s):
        parts.append(L.llama_sampler_init_temp(s.temperature))
        if s.mirostat == 1:
            parts.append(
                L.llama_sampler_init_mirostat(vocab.n_tokens, seed, s.mirostat_tau, s.mirostat_eta, MIROSTAT_M)
            )
        else:
            parts.append(L.llama_sampler_init_mirostat_v2(seed, s.mirostat_tau, s.mirostat_eta))
        return parts
    if penalties:
        parts.append(
            L.llama_sampler_init_penalties(
                vocab.n_tokens, penalties, s.repeat_penalty, s.frequency_penalty, s.presence_penalty
            )
        )
    if dry:
        parts.append(_dry(L, s, vocab, dry))
    if chain.is_greedy:
        return [*parts, L.llama_sampler_init_greedy()]
    if s.top_n_sigma > 0:
        parts.append(L.llama_sampler_init_top_n_sigma(s.top_n_sigma))
    if s.top_k > 0:
        parts.append(L.llama_sampler_init_top_k(min(s.top_k, vocab.n_tokens)))
    if s.typical_p < 1:
        parts.append(L.llama_sampler_init_typical(s.typical_p, 0))
    if s.top_p < 1:
        parts.append(L.llama_sampler_init_top_p(s.top_p, 0))
    if s.min_p > 0:
        parts.append(L.llama_sampler_init_min_p(s.min_p, 0))
    if settings.uses_xtc(s):
        parts.append(L.llama_sampler_init_xtc(s.xtc_probability, s.xtc_threshold, 0, seed))
    parts.append(L.llama_sampler_init_temp(0.0 if settings.is_cold(s) else s.temperature))
    parts.append(L.llama_sampler_init_dist(seed))
    return parts


def _dry(L: Any, s: Sampling, vocab: Vocab, window: int) -> Any:
    breakers = [text.encode("utf-8", "replace") for text in s.dry_sequence_breakers if text]
    texts = (ctypes.c_char_p * len(breakers))(*breakers)
    return L.llama_sampler_init_dry(
        vocab.pointer, s.dry_multiplier, s.dry_base, s.dry_allowed_length, window, texts, len(breakers)
    )
