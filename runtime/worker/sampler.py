"""From one row of logits to one token, by the shortest exact way.

Greedy rows are an argmax. Top-k and min-p rows hand the native chain only the candidates it could keep, found by
comparing with a margin below the best: nothing of 152k entries is copied or sorted. Everything else goes through the
chain whole. A picker belongs to one sequence and is used by one thread at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from runtime.frames import TokenLogprob
from runtime.request import Sampling
from runtime.worker.plan import Pick

Logits = NDArray[np.float32]

NOT_FINITE = Pick(-1)
FIRST_MARGIN = 8.0
WIDEST_MARGIN = 1e4
MANY_CANDIDATES = 1024


class Chain(Protocol):
    """What runtime.llama.sampler.SamplerChain offers."""

    @property
    def is_greedy(self) -> bool: ...
    @property
    def needs_full(self) -> bool: ...
    def sample(self, logits: Logits) -> int: ...
    def sample_from(self, ids: NDArray[np.int32], logits: Logits) -> int: ...
    def accept(self, token: int) -> None: ...
    def accept_many(self, tokens: list[int]) -> None: ...
    def close(self) -> None: ...


class Picker:
    """Chooses tokens for one sequence. `n_logprobs` None reports nothing, 0 only the chosen token.

    Tokens in `forbidden` are never chosen; the chain need not know of them. They are masked in the row itself, which
    nobody else reads, so a request that ignores end-of-generation tokens keeps the short ways.
    """

    def __init__(
        self,
        chain: Chain,
        sampling: Sampling,
        piece: Callable[[int], bytes],
        n_logprobs: int | None = None,
        forbidden: Iterable[int] = (),
    ) -> None:
        self._chain = chain
        self._piece = piece
        self._n_logprobs = n_logprobs
        self._forbidden = np.array(sorted(forbidden), np.intp)
        self._margin = FIRST_MARGIN
        self._top_k = sampling.top_k
        self._floor = math.log(sampling.min_p) if 0 < sampling.min_p < 1 else None
        self.is_cheap = chain.is_greedy and not chain.needs_full
        if chain.needs_full:
            self._choose = self._among_all
        elif self.is_cheap:
            self._choose = _best
        elif sampling.top_k > 0:
            self._choose = self._among_top_k
        elif self._floor is not None and sampling.top_p >= 1:
            self._choose = self._above_floor
        else:
            self._choose = self._among_all

    def begin(self, tokens: list[int]) -> None:
        """Tell penalties what came before."""
        self._chain.accept_many(tokens)

    def pick(self, logits: Logits) -> Pick:
        """`logits` is float32 of shape (n_vocab,). A row with a NaN or without a finite best gives token -1."""
        kept = None
        if len(self._forbidden):
            kept = logits[self._forbidden]
            logits[self._forbidden] = -np.inf
        token = self._choose(logits)
        if token < 0:
            return NOT_FINITE
        self._chain.accept(token)
        if self._n_logprobs is None:
            return Pick(token)
        if kept is not None:
            logits[self._forbidden] = kept
        return Pick(token, token_logprob(logits, token, self._n_logprobs, self._piece))

    def close(self) -> None:
        self._chain.close()

    def _among_all(self, logits: Logits) -> int:
        return self._chain.sample(logits) if math.isfinite(float(logits.max())) else -1

    def _among_top_k(self, logits: Logits) -> int:
        best = float(logits.max())
        if not math.isfinite(best):
            return -1
        k = min(self._top_k, len(logits))
        ids = np.flatnonzero(logits > best - self._margin)
        while len(ids) < k:
            self._margin *= 1.5
            if self._margin > WIDEST_MARGIN:
                # Fewer than k entries are possible at all: masked rows are for the chain.
                self._margin = FIRST_MARGIN
                return self._chain.sample(logits)
            ids = np.flatnonzero(logits > best - self._margin)
        if len(ids) > MANY_CANDIDATES:
            self._margin *= 0.8
        return self._chain.sample_from(ids.astype(np.int32), logits[ids])

    def _above_floor(self, logits: Logits) -> int:
        assert self._floor is not None
        best = float(logits.max())
        if not math.isfinite(best):
            return -1
        # A hair below the floor: the chain applies the exact rule, this only must not lose a candidate.
        ids = np.flatnonzero(logits >= best + self._floor - 1e-3)
        return self._chain.sample_from(ids.astype(np.int32), logits[ids])


def _best(logits: Logits) -> int:
    """argmax stops at a NaN, so the best entry alone says whether the row is sound."""
    token = int(logits.argmax())
    return token if math.isfinite(logits[token]) else -1


def token_logprob(logits: Logits, token: int, n_top: int, piece: Callable[[int], bytes]) -> TokenLogprob:
    """Natural logs under the model's own distribution, before any sampling setting."""
    best = float(logits.max())
    norm = best + math.log(float(np.exp(logits - best, dtype=np.float32).sum(dtype=np.float64)))
    top: tuple[tuple[int, bytes, float], ...] = ()
    if n_top:
        ids = np.argpartition(logits, -n_top)[-n_top:] if n_top < len(logits) else np.arange(len(logits))
        ids = ids[np.lexsort((ids, -logits[ids]))]
        top = tuple((int(i), piece(int(i)), float(logits[i]) - norm) for i in ids)
    return TokenLogprob(token, piece(token), float(logits[token]) - norm, top)
