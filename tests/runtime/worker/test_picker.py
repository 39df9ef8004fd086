"""The short ways to a token give what the whole way gives."""

from __future__ import annotations

import numpy as np
import pytest
from fake_memory import GreedyChain
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.request import Sampling
from runtime.worker.sampler import Picker, token_logprob


class RecordingChain(GreedyChain):
    """Remembers the candidates it was given."""

    is_greedy = False

    def __init__(self) -> None:
        super().__init__()
        self.candidates: np.ndarray | None = None

    def sample_from(self, ids: np.ndarray, logits: np.ndarray) -> int:
        self.candidates = ids
        return super().sample_from(ids, logits)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.sampled_from([0.01, 1.0, 30.0]))
def test_the_filter_never_loses_one_of_the_k_best(seed: int, k: int, scale: float) -> None:
    logits = (np.random.default_rng(seed).standard_normal(500) * scale).astype(np.float32)
    chain = RecordingChain()
    picker = Picker(chain, Sampling(top_k=k), lambda token: b"")
    for _ in range(3):
        picker.pick(logits)
        assert chain.candidates is not None
        best = set(np.argsort(-logits, kind="stable")[:k].tolist())
        assert best <= set(chain.candidates.tolist())


def test_the_filter_check_sees_a_planted_fault() -> None:
    logits = np.random.default_rng(1).standard_normal(500).astype(np.float32)
    chain = RecordingChain()
    picker = Picker(chain, Sampling(top_k=40), lambda token: b"")
    picker._top_k = 1  # planted fault: the margin stops widening after the best one
    picker._margin = 0.01
    picker.pick(logits)
    assert chain.candidates is not None
    assert not set(np.argsort(-logits)[:40].tolist()) <= set(chain.candidates.tolist())


def test_minus_infinity_entries_fall_back_to_the_whole_row() -> None:
    logits = np.full(100, -np.inf, np.float32)
    logits[7] = 1.0
    assert Picker(RecordingChain(), Sampling(top_k=40), lambda token: b"").pick(logits).token == 7


def test_the_floor_of_min_p_is_exact() -> None:
    logits = np.log(np.array([0.5, 0.26, 0.2, 0.04], np.float32))
    chain = RecordingChain()
    Picker(chain, Sampling(top_k=0, top_p=1.0, min_p=0.1), lambda token: b"").pick(logits)
    assert chain.candidates is not None
    assert chain.candidates.tolist() == [0, 1, 2]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=0), Sampling(), Sampling(top_k=0)], ids=["greedy", "k", "all"]
)
def test_numbers_that_are_not_finite_are_seen(bad: float, sampling: Sampling) -> None:
    logits = np.zeros(50, np.float32)
    logits[33] = bad
    assert Picker(GreedyChain(), sampling, lambda token: b"").pick(logits).token == -1


@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=0), Sampling(), Sampling(top_k=0)], ids=["greedy", "k", "all"]
)
def test_forbidden_tokens_are_never_chosen_and_logprobs_know_nothing_of_it(sampling: Sampling) -> None:
    logits = np.array([5.0, 4.0, 1.0, 0.0], np.float32)
    want = token_logprob(logits.copy(), 1, 2, lambda token: b"")
    pick = Picker(GreedyChain(), sampling, lambda token: b"", 2, forbidden=[0]).pick(logits)
    assert pick.token == 1
    assert pick.logprob == want
    assert Picker(GreedyChain(), sampling, lambda token: b"").pick(logits).token == 0


def test_logprobs_are_the_models_own() -> None:
    logits = np.array([1.0, 3.0, 2.0, -1.0], np.float32)
    want = logits - np.log(np.exp(logits.astype(np.float64)).sum())
    got = token_logprob(logits, 2, 2, lambda token: bytes([65 + token]))
    assert got.logprob == pytest.approx(want[2], abs=1e-6)
    assert [(t, p) for t, p, _ in got.top] == [(1, b"B"), (2, b"C")]
    assert got.top[0][2] == pytest.approx(want[1], abs=1e-6)
    assert got.piece == b"C"
