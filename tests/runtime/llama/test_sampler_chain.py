"""The native chain does what its settings say, and pre-filtered candidates give the same tokens as all of them."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from runtime.llama.errors import LlamaError
from runtime.llama.sampler import SamplerChain
from runtime.request import Sampling

pytestmark = pytest.mark.weights

PLAIN = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


@pytest.fixture
def chain(model):
    made = []

    def make(*, seed: int = 1, n_ctx: int = 256, **settings: object) -> SamplerChain:
        sampling = Sampling(**(PLAIN | settings))  # type: ignore[arg-type]
        made.append(SamplerChain(sampling, model.vocab, seed=seed, n_ctx=n_ctx))
        return made[-1]

    yield make
    for each in made:
        each.close()


def logits_of(n: int, seed: int, scale: float = 3.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, scale, n).astype(np.float32)


class Reference:
    """Top-k, top-p, min-p and temperature in numpy, with the C++ library's random numbers."""

    def __init__(self, seed: int, **settings: float) -> None:
        self.numbers = np.random.RandomState(seed)
        self.s = PLAIN | settings

    def uniform(self) -> float:
        low, high = (int(x) for x in self.numbers.randint(0, 2**32, 2, dtype=np.uint32))
        return (low + (high << 32)) / 2.0**64

    def pick(self, logits: np.ndarray) -> int:
        ids = np.argsort(-logits, kind="stable")
        if self.s["top_k"] > 0:
            ids = ids[: self.s["top_k"]]
        if self.s["top_p"] < 1:
            p = softmax(logits[ids])
            ids = ids[: int(np.searchsorted(np.cumsum(p), self.s["top_p"])) + 1]
        if self.s["min_p"] > 0:
            ids = ids[logits[ids] >= logits[ids[0]] + math.log(self.s["min_p"])]
        if not (self.s["top_k"] > 0 or self.s["top_p"] < 1):
            ids = np.sort(ids)  # nothing sorted them: they stay in the order of ids
        p = softmax(logits[ids] / self.s["temperature"])
        return int(ids[int(np.searchsorted(np.cumsum(p), self.uniform()))])


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - float(x.max()))
    return e / e.sum()


SETTINGS = [
    {"temperature": 1.0},
    {"temperature": 0.6},
    {"top_k": 5},
    {"top_k": 200, "temperature": 1.5},
    {"top_p": 0.7},
    {"min_p": 0.1},
    {"min_p": 0.02, "temperature": 1.7},
    {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "temperature": 0.8},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_draws_are_those_of_a_numpy_reference(chain, settings):
    mine, reference = chain(seed=7, **settings), Reference(7, **settings)
    rows = [logits_of(500, seed) for seed in range(60)]
    picked = [mine.sample(row) for row in rows]
    assert picked == [reference.pick(row) for row in rows]
    assert len(set(picked)) > 10


def test_control_a_reference_with_another_setting_disagrees(chain):
    """Planted fault: min_p 0.05 in the chain, 0.2 in the reference."""
    mine, wrong = chain(seed=7, min_p=0.05), Reference(7, min_p=0.2)
    rows = [logits_of(500, seed) for seed in range(60)]
    assert [mine.sample(row) for row in rows] != [wrong.pick(row) for row in rows]


@pytest.mark.parametrize(
    "settings",
    [
        {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "temperature": 0.8},
        {"top_k": 1, "temperature": 2.0},
        {"top_k": 64, "typical_p": 0.7},
        {"top_k": 20, "xtc_probability": 0.5, "xtc_threshold": 0.05, "temperature": 1.5},
    ],
    ids=str,
)
def test_best_candidates_alone_give_the_same_tokens(chain, settings):
    whole, filtered = chain(seed=3, **settings), chain(seed=3, **settings)
    assert not whole.needs_full
    picked = []
    for seed in range(40):
        row = logits_of(49_152, seed)
        ids = np.flatnonzero(row > np.sort(row)[-100]).astype(np.int32)
        assert 90 < len(ids) < 110
        picked.append(whole.sample(row))
        assert filtered.sample_from(ids, row[ids]) == picked[-1]
    assert settings["top_k"] == 1 or len(set(picked)) > 10


def test_min_p_alone_needs_only_what_it_keeps(chain):
    whole, filtered = chain(seed=3, min_p=0.05), chain(seed=3, min_p=0.05)
    assert not whole.needs_full
    for seed in range(20):
        row = logits_of(49_152, seed)
        ids = np.flatnonzero(row >= row.max() + math.log(0.05) - 1e-3).astype(np.int32)
        assert whole.sample(row) == filtered.sample_from(ids, row[ids])


@pytest.mark.parametrize(
    ("settings", "needs_full", "is_greedy"),
    [
        ({"temperature": 0}, False, True),
        ({"temperature": -1, "top_k": 40, "top_p": 0.9}, False, True),
        ({"temperature": 0, "repeat_penalty": 1.1}, True, True),
        ({"temperature": 0, "logit_bias": ((5, 1.0),)}, True, True),
        ({"temperature": 0, "ignore_eos": True}, True, True),
        ({"temperature": 0, "xtc_probability": 0.5}, True, False),
        ({"temperature": 0, "mirostat": 2}, False, True),
        ({"top_k": 40}, False, False),
        ({"top_k": 40, "top_n_sigma": 1.0}, True, False),
        ({"top_k": 40, "dry_multiplier": 0.8}, True, False),
        ({"top_k": 40, "presence_penalty": 0.5}, True, False),
        ({"top_k": 40, "presence_penalty": 0.5, "repeat_last_n": 0}, False, False),
        ({"top_p": 0.9}, True, False),
        ({"top_p": 0.9, "min_p": 0.05}, True, False),
        ({"min_p": 0.05}, False, False),
        ({}, True, False),
        ({"top_k": 40, "mirostat": 1}, True, False),
    ],
    ids=str,
)
def test_what_a_caller_may_leave_out(chain, settings, needs_full, is_greedy):
    made = chain(**settings)
    assert (made.needs_full, made.is_greedy) == (needs_full, is_greedy)


@pytest.mark.parametrize("top_k", [0, 40])
def test_the_same_seed_draws_the_same(chain, top_k):
    rows = [logits_of(300, seed) for seed in range(30)]

    def draws(seed: int) -> list[int]:
        made = chain(seed=seed, top_k=top_k)
        return [made.sample(row) for row in rows]

    assert draws(5) == draws(5)
    assert draws(5) != draws(6)
    # llama.cpp takes this one for "random"
    assert draws(0xFFFFFFFF) == draws(0xFFFFFFFF)
    assert draws(5 + 2**32) == draws(5)


def test_reset_starts_over_and_a_clone_goes_on(chain):
    rows = [logits_of(300, seed) for seed in range(20)]
    made = chain(seed=9, repeat_penalty=1.3)
    first = [made.sample(row) for row in rows]
    with made.clone() as twin:
        assert [made.sample(row) for row in rows] == [twin.sample(row) for row in rows]
    made.reset()
    assert [made.sample(row) for row in rows] == first


def test_greedy_takes_the_best(chain):
    row = logits_of(49_152, 1)
    made = chain(temperature=0)
    assert made.sample(row) == int(row.argmax())
    ids = np.array([7, 1000, 30], np.int32)
    assert made.sample_from(ids, np.array([0.5, 2.0, 1.0], np.float32)) == 1000


def test_temperatures_near_zero_are_greedy(chain):
    """Dividing logits by 1e-40 would leave float32: every candidate infinite."""
    row = logits_of(1000, 2, scale=30.0)
    for temperature in (1e-40, 1e-9):
        assert chain(temperature=temperature).sample(row) == int(row.argmax())
    assert {chain(temperature=1e-4, seed=seed).sample(row) for seed in range(5)} == {int(row.argmax())}
    xtc = chain(temperature=1e-40, xtc_probability=1.0, xtc_threshold=0.2)
    assert xtc.sample(np.array([5.0, 4.8, 4.6, 0.0], np.float32)) == 2


def test_a_top_k_beyond_the_vocabulary_is_all_of_it(chain):
    """2**31 would be negative in the native int, which means off."""
    row = logits_of(300, 3)
    assert chain(seed=2, top_k=2**31).sample(row) == chain(seed=2, top_k=300).sample(row)


def falling(n: int = 50) -> np.ndarray:
    """Token 0 is best, each next one half a point worse."""
    return (-0.5 * np.arange(n)).astype(np.float32)


def test_logit_bias_adds_bans_and_sums(chain):
    row = falling()
    assert chain(temperature=0).sample(row) == 0
    assert chain(temperature=0, logit_bias=((0, -math.inf),)).sample(row) == 1
    assert chain(temperature=0, logit_bias=((30, 100.0),)).sample(row) == 30
    assert chain(temperature=0, logit_bias=((30, 10.0), (30, 10.0))).sample(row) == 30
    assert chain(temperature=0, logit_bias=((30, 10.0),)).sample(row) == 0
    ids = np.array([30, 2, 1], np.int32)
    assert chain(temperature=0, logit_bias=((30, 100.0),)).sample_from(ids, row[ids]) == 30
    assert np.array_equal(row, falling())


def test_ignore_eos_bans_every_end_token(chain, model):
    row = falling(49_152)
    row[sorted(model.vocab.eog_ids)] = 50.0
    assert chain(temperature=0).sample(row) in model.vocab.eog_ids
    made = chain(ignore_eos=True)
    assert not {made.sample(row) for _ in range(50)} & model.vocab.eog_ids
    assert len(model.vocab.eog_ids) > 0


@pytest.mark.parametrize(
    "settings",
    [{"repeat_penalty": 4.0}, {"frequency_penalty": 1.5}, {"presence_penalty": 1.5}],
    ids=str,
)
def test_penalties_act_on_accepted_tokens_within_their_window(chain, settings):
    row = falling() + 1
    made = chain(temperature=0, repeat_last_n=3, **settings)
    assert made.is_stateful
    assert made.sample(row) == 0
    made.accept(0)
    assert made.sample(row) != 0
    made.accept_many([40, 41, 42])
    assert made.sample(row) == 0


def test_frequency_penalty_grows_with_each_time(chain):
    row = falling() + 1
    made = chain(temperature=0, frequency_penalty=0.2)
    made.accept(0)
    made.accept(0)
    assert made.sample(row) == 0
    made.accept(0)
    assert made.sample(row) == 1


def test_penalty_window_minus_one_is_the_context(chain):
    row = falling() + 1
    made = chain(temperature=0, presence_penalty=9.0, repeat_last_n=-1, n_ctx=100)
    made.accept_many([0, *range(20, 48), *([45] * 71)])
    assert made.sample(row) == 1
    made.accept(45)
    assert made.sample(row) == 0


def test_accepting_is_free_without_penalties(chain):
    made = chain(top_k=40)
    assert not made.is_stateful
    made.accept(10**9)


def test_dry_penalizes_what_would_repeat_a_passage(chain, model):
    words = [
        model.vocab.tokenize(f" {w}", add_special=False, parse_special=False)[0] for w in ["river", "wheel", "stone"]
    ]
    row = np.zeros(model.vocab.n_tokens, np.float32)
    row[words[2]], row[words[0]] = 5.0, 4.0
    made = chain(temperature=0, dry_multiplier=2.0, dry_allowed_length=1)
    assert made.sample(row) == words[2]
    made.accept_many([*words, *words[:2]])
    assert made.sample(row) == words[0]
    broken = chain(temperature=0, dry_multiplier=2.0, dry_allowed_length=1, dry_sequence_breakers=(" wheel",))
    broken.accept_many([*words, *words[:2]])
    assert broken.sample(row) == words[2]


def test_xtc_leaves_out_the_top_choices(chain):
    """Probability 1: always the last of those above the threshold."""
    row = np.array([5.0, 4.8, 4.6, 0.0, 0.0], np.float32)
    made = chain(temperature=0, xtc_probability=1.0, xtc_threshold=0.2)
    assert [made.sample(row) for _ in range(5)] == [2] * 5
    ids = np.array([4, 2, 0, 1], np.int32)
    assert made.sample_from(ids, row[ids]) == 2
    assert chain(temperature=0).sample(row) == 0


def test_typical_drops_the_too_likely(chain):
    row = np.array([3.0, *([2.0] * 30)], np.float32)
    assert {chain(seed=s).sample(row) for s in range(60)} & {0}
    assert not {chain(seed=s, typical_p=0.5).sample(row) for s in range(60)} & {0}


def test_top_n_sigma_cuts_by_deviation(chain):
    row = np.zeros(1000, np.float32)
    row[:3] = 10.0, 9.5, 5.0
    kept = {chain(seed=s, top_n_sigma=2.0).sample(row) for s in range(40)}
    assert kept == {0, 1}
    assert 2 in {chain(seed=s, temperature=4.0).sample(row[:3]) for s in range(40)}


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_holds_surprise_down(chain, version):
    """A low target keeps to the likely tokens, where plain sampling of the same row wanders."""
    row = falling(2000) / 50
    plain = chain(seed=4)
    held = chain(seed=4, mirostat=version, mirostat_tau=1.0, mirostat_eta=0.5)
    wandering = [plain.sample(row) for _ in range(40)]
    settled = [held.sample(row) for _ in range(80)][40:]
    assert np.mean(settled) < 0.2 * np.mean(wandering)


def test_chains_on_threads_do_not_disturb_each_other(chain):
    """Each thread has its own candidate array."""
    rows = [logits_of(49_152, seed) for seed in range(12)]
    alone = [chain(seed=i, temperature=1.0).sample(row) for i, row in enumerate(rows)]
    chains = [chain(seed=i, temperature=1.0) for i in range(len(rows))]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda pair: pair[0].sample(pair[1]), zip(chains, rows, strict=True)))
    assert together == alone


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"repeat_penalty": 0.0}, "repeat_penalty 0.0: a number above 0"),
        ({"repeat_penalty": math.inf}, "repeat_penalty inf"),
        ({"temperature": math.nan}, "temperature nan"),
        ({"mirostat_tau": math.inf}, "mirostat_tau inf"),
        ({"logit_bias": ((5, math.inf),)}, "logit_bias inf for token 5"),
        ({"mirostat": 3}, "mirostat 3"),
        ({"logit_bias": ((10**7, 1.0),)}, "the vocabulary has 49152 tokens"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused(chain, settings, message):
    with pytest.raises(ValueError, match=message):
        chain(**settings)


def test_closed_chain_refuses(chain):
    made = chain()
    made.close()
    made.close()
    with pytest.raises(LlamaError, match="the sampler chain is closed"):
        made.sample(falling())
