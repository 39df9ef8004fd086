"""What a completions body may look like, and what becomes of it."""

from __future__ import annotations

from typing import Any

import pytest
from service_bench import OPTIONS

from models import limits
from runtime.errors import HeadraceError, UnsupportedFeature
from runtime.service.wire import Order, text_order

N_VOCAB = 1000


def order(**body: Any) -> Order:
    return text_order({"prompt": "hi", **body}, OPTIONS, N_VOCAB)


def refusal(**body: Any) -> HeadraceError:
    with pytest.raises(HeadraceError) as refused:
        order(**body)
    assert refused.value.status == 400
    return refused.value


@pytest.mark.parametrize(
    ("prompt", "texts", "tokens"),
    [
        ("a", ["a"], [None]),
        ("", [""], [None]),
        (["a"], ["a"], [None]),
        (["a", "b"], ["a", "b"], [None, None]),
        ([5, 6], [None], [(5, 6)]),
        ([[5, 6], [7]], [None, None], [(5, 6), (7,)]),
    ],
    ids=repr,
)
def test_forms_of_a_prompt(prompt: Any, texts: list[Any], tokens: list[Any]) -> None:
    requests = order(prompt=prompt).requests
    assert [request.text for request in requests] == texts
    assert [request.tokens for request in requests] == tokens
    assert all(request.messages == () for request in requests)
    assert len({request.id for request in requests}) == len(requests)


@pytest.mark.parametrize(
    "prompt",
    [
        None,
        5,
        {},
        [],
        [[]],
        [[5], []],
        ["a", 5],
        [5, "a"],
        [[5], "a"],
        [5.5],
        [True],
        [None],
        [[["a"]]],
        [-1],
        [N_VOCAB],
        [[0], [N_VOCAB]],
        [2**63],
        ["a"] * (limits.PROMPTS + 1),
        [0] * (limits.TEXT_BYTES // 4 + 1),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_other_prompts_are_refused(prompt: Any) -> None:
    assert refusal(prompt=prompt).param == "prompt"


def test_prompts_at_the_limits_pass() -> None:
    assert len(order(prompt=["a"] * limits.PROMPTS).requests) == limits.PROMPTS
    assert order(prompt=[0, N_VOCAB - 1]).requests[0].tokens == (0, N_VOCAB - 1)


def test_choices_are_counted_over_all_prompts() -> None:
    assert order(prompt=["a", "b"], n=3).n_choices == 6


def test_echo() -> None:
    assert order(echo=True).requests[0].echo
    error = refusal(echo=True, logprobs=1)
    assert isinstance(error, UnsupportedFeature)
    assert "not available yet" in error.message


def test_a_suffix_is_refused_not_ignored() -> None:
    assert order(suffix="").requests
    assert isinstance(refusal(suffix="end"), UnsupportedFeature)


def test_logprobs_are_a_number_here() -> None:
    assert order(logprobs=0).requests[0].logprobs == 0
    assert order(logprobs=10).requests[0].logprobs == 10
    assert order(logprobs=None).requests[0].logprobs is None
    assert refusal(logprobs=limits.TOP_LOGPROBS + 1).param == "logprobs"


def test_best_of_beyond_n_is_refused() -> None:
    assert order(best_of=1, n=2).requests[0].n == 2
    assert isinstance(refusal(best_of=3), UnsupportedFeature)
