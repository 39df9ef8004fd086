"""Comparing two things on a machine that is never quiet: alternate them in pairs and state what the pairs can prove.

A pair is one measurement of each side, taken one after the other; who goes first alternates, so a drift of the machine
favours neither. The interval of a median comes from order statistics: it assumes nothing about the distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from statistics import median

CONFIDENCE = 0.95

Measurement = Mapping[str, float]
Work = Callable[[int], Measurement]


class TooFew(ValueError):
    """More measurements are needed before anything can be said."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The same work, with the same seed, on both sides."""

    seed: int
    ours: Measurement
    theirs: Measurement


@dataclass(frozen=True, slots=True)
class Interval:
    """The true median lies within [low, high] with at least `confidence`; `low` alone holds with more than that."""

    median: float
    low: float
    high: float
    confidence: float
    n: int


def alternate(
    ours: Work,
    theirs: Work,
    *,
    pairs: int,
    warmup: int = 1,
    first_seed: int = 1,
    on_pair: Callable[[int, Pair], None] = lambda index, pair: None,
) -> tuple[Pair, ...]:
    """Run both sides `pairs` times after `warmup` uncounted rounds. Each round has its own seed, the same for both."""
    least = least_needed(CONFIDENCE)
    if pairs < least:
        raise TooFew(
            f"{pairs} pairs cannot give a {CONFIDENCE:.0%} interval: at least {least} are needed, 15 are better"
        )
    for round_ in range(warmup):
        ours(first_seed + round_)
        theirs(first_seed + round_)
    done: list[Pair] = []
    for index in range(pairs):
        pair = _one_pair(ours, theirs, first_seed + warmup + index, theirs_first=index % 2 == 1)
        done.append(pair)
        on_pair(index, pair)
    return tuple(done)


def ratio(pairs: Sequence[Pair], key: str, confidence: float = CONFIDENCE) -> Interval:
    """ours / theirs of one figure, pair by pair."""
    for pair in pairs:
        if pair.theirs[key] <= 0:
            raise ValueError(f"seed {pair.seed}: the other side measured {key} = {pair.theirs[key]}; no ratio exists")
    return interval([pair.ours[key] / pair.theirs[key] for pair in pairs], confidence)


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Median and its order-statistic interval. Raises TooFew when no interval reaches `confidence`."""
    n = len(values)
    rank = _rank(n, confidence)
    if rank == 0:
        least = least_needed(confidence)
        raise TooFew(f"{n} measurements cannot give a {confidence:.0%} interval: at least {least} are needed")
    ordered = sorted(values)
    return Interval(median(ordered), ordered[rank - 1], ordered[n - rank], confidence, n)


def least_needed(confidence: float) -> int:
    """The smallest number of measurements whose whole range covers the median with `confidence`."""
    n = 1
    while _rank(n, confidence) == 0:
        n += 1
    return n


def _rank(n: int, confidence: float) -> int:
    """The largest k for which [k-th smallest, k-th largest] covers the median with `confidence`; 0 when none does.

    Each value falls below the median with probability 1/2, so what the interval misses is two binomial tails.
    """
    tail = 0.0
    for k in range(n // 2 + 1):
        tail += comb(n, k) / 2**n
        if 2 * tail > 1 - confidence:
            return k
    return n // 2


def _one_pair(ours: Work, theirs: Work, seed: int, *, theirs_first: bool) -> Pair:
    if theirs_first:
        other = theirs(seed)
        return Pair(seed, ours(seed), other)
    mine = ours(seed)
    return Pair(seed, mine, theirs(seed))
