"""The statistics frame on synthetic data, where the truth is known."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from runtime.bench.pairs import Measurement, Pair, TooFew, alternate, interval, least_needed, ratio


def noisy(speed: float, seed: int, *, drift: float = 0.0) -> Callable[[int], Measurement]:
    """A side of a comparison: `speed` with 5 % noise, on a machine whose speed falls by `drift` a call."""
    source = random.Random(seed)
    calls = 0

    def run(_: int) -> Measurement:
        nonlocal calls
        calls += 1
        return {"speed": speed * source.gauss(1.0, 0.05) * (1 - drift) ** calls}

    return run


def test_a_known_ratio_is_found() -> None:
    pairs = alternate(noisy(120, 1), noisy(100, 2), pairs=25)
    found = ratio(pairs, "speed")
    assert found.low <= 1.2 <= found.high
    assert found.low > 1.0
    assert found.n == 25


def test_a_planted_slowdown_of_ten_percent_is_detected() -> None:
    slow = ratio(alternate(noisy(90, 3), noisy(100, 4), pairs=15), "speed")
    same = ratio(alternate(noisy(100, 5), noisy(100, 6), pairs=15), "speed")
    assert slow.high < 1.0, "a 10 % slowdown went unseen"
    # Control: without the planted slowdown the same frame sees none.
    assert same.low < 1.0 < same.high


def test_the_interval_keeps_its_promise() -> None:
    """Of many repeated experiments at least 95 % must hold the true median; the exact figure for 15 is 96.5 %."""
    source = random.Random(7)
    experiments = 2000
    held = 0
    for _ in range(experiments):
        found = interval([source.expovariate(1.0) for _ in range(15)])
        held += found.low <= 0.693147 <= found.high
    print(f"{held} of {experiments} intervals held the true median")
    assert 0.95 <= held / experiments <= 0.98


def test_ranks_for_fifteen_are_the_textbook_ones() -> None:
    found = interval([float(value) for value in range(1, 16)])
    assert (found.low, found.median, found.high) == (4.0, 8.0, 12.0)


def test_order_alternates_and_seeds_are_shared() -> None:
    calls: list[tuple[str, int]] = []

    def side(name: str) -> Callable[[int], Measurement]:
        def run(seed: int) -> Measurement:
            calls.append((name, seed))
            return {"speed": 1.0}

        return run

    alternate(side("a"), side("b"), pairs=6, warmup=1, first_seed=10)
    assert calls[:6] == [("a", 10), ("b", 10), ("a", 11), ("b", 11), ("b", 12), ("a", 12)]
    assert [seed for _, seed in calls[::2]] == [10, 11, 12, 13, 14, 15, 16]


def test_a_machine_that_slows_down_does_not_tilt_the_ratio() -> None:
    found = ratio(alternate(noisy(100, 8, drift=0.02), noisy(100, 9, drift=0.02), pairs=20), "speed")
    assert found.low < 1.0 < found.high


@pytest.mark.parametrize("count", [0, 1, 5])
def test_too_few_pairs_are_refused_with_the_number_needed(count: int) -> None:
    with pytest.raises(TooFew, match="at least 6"):
        alternate(noisy(1, 1), noisy(1, 2), pairs=count)
    with pytest.raises(TooFew, match="at least 6"):
        interval([1.0] * count)


def test_least_needed() -> None:
    assert least_needed(0.95) == 6
    assert least_needed(0.5) == 2


def test_a_ratio_to_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no ratio exists"):
        ratio([Pair(1, {"speed": 1.0}, {"speed": 0.0})] * 6, "speed")
