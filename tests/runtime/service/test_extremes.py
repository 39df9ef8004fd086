"""No value of any field can do more than be refused: answers are 200, or 400 and 404 that name a field."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from asgi_call import call
from fakes import FakeBackend, Script
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from service_bench import CHAT, TEXT, USER, application

from models import limits
from runtime.request import ChatRequest
from runtime.service.fields import ChatFields, TextFields

EXAMPLES = 300
INTS = [-(2**63), -(2**31), -2, -1, 0, 1, 2, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 10**400]
FLOATS = [-math.inf, -1e308, -1.0, -0.0, 0.0, 1e-300, 0.5, 1.0, 1e308, math.inf, math.nan]
OTHERS = [
    None,
    True,
    False,
    "",
    "1",
    "x",
    "nan",
    "é😀\x00\ud800",
    [],
    {},
    [[]],
    [None],
    {"a": None},
    [1, "2"],
    "x" * 100_000,
]
PROMPTS = ["hi", "", ["a", "b"], [1, 2], [[1], [2]], [0] * 5, ["x"] * (limits.PROMPTS + 1)]
# Beyond the models of fields.py, these are read by hand.
BY_HAND = ["messages", "prompt", "tools", "tool_choice", "functions", "response_format", "grammar", "json_schema"]
NAMES = sorted({*ChatFields.model_fields, *TextFields.model_fields, *BY_HAND, "repetition_penalty", "unknown"})

scalars = st.sampled_from(INTS) | st.sampled_from(FLOATS) | st.sampled_from(OTHERS)
values = (
    scalars
    | st.lists(scalars, max_size=4)
    | st.dictionaries(st.sampled_from(["1", "-1", "role", "type", "content", "999999999999"]), scalars, max_size=3)
    | st.lists(st.fixed_dictionaries({"role": scalars, "content": scalars}), max_size=3)
    | st.lists(st.tuples(scalars, scalars), max_size=3)
    | st.lists(st.just(1), min_size=limits.LOGIT_BIAS_ENTRIES + 1, max_size=limits.LOGIT_BIAS_ENTRIES + 1)
)
bodies = st.fixed_dictionaries(
    {}, optional={"stream": st.booleans(), "prompt": st.sampled_from(PROMPTS), "messages": st.just(USER)}
).flatmap(
    lambda base: st.dictionaries(st.sampled_from(NAMES), values, max_size=4).map(
        lambda odd: {"messages": USER, "prompt": "hi", **base, **odd}
    )
)

outcomes: Counter[int] = Counter()


def as_json(value: Any) -> bytes:
    """What a careless client writes: NaN and infinities as JavaScript spells them, text cut in half."""
    return json.dumps(value).encode()


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(path=st.sampled_from([CHAT, TEXT]), body=bodies)
def _any_body_is_answered(path: str, body: dict[str, Any]) -> None:
    backend = FakeBackend(Script(words=("a", "b")))
    done = asyncio.run(call(application(backend), "POST", path, as_json(body)))
    outcomes[done.status] += 1
    assert done.status in (200, 400, 404), (done.status, body)
    assert bool(backend.requests) == (done.status == 200)
    if done.status != 200:
        error = msgspec.json.decode(done.body)["error"]
        assert error["message"]
        assert error["param"] or "body is not JSON" in error["message"], error
    for request in backend.requests:
        check_bounds(request)


def check_bounds(request: Any) -> None:
    """What reaches a worker is finite, and small where it is a size."""
    sampling = request.sampling
    for name in sampling.__dataclass_fields__:
        value = getattr(sampling, name)
        assert not isinstance(value, float) or (math.isfinite(value) and abs(value) <= 10_000), (name, value)
        assert not isinstance(value, int) or -1 <= value < 2**32, (name, value)
    assert all(0 <= token < 1000 and math.isfinite(bias) for token, bias in sampling.logit_bias)
    assert 1 <= request.n <= limits.N_CHOICES
    assert request.max_tokens is None or 0 <= request.max_tokens < 2**31
    assert len(request.stop) <= limits.STOP_STRINGS
    assert request.logprobs is None or 0 <= request.logprobs <= limits.TOP_LOGPROBS


def test_any_body_is_answered() -> None:
    outcomes.clear()
    _any_body_is_answered()
    print(f"outcomes over {EXAMPLES} bodies: {dict(outcomes)}")
    assert outcomes[200] > EXAMPLES // 20
    assert outcomes[400] > EXAMPLES // 4


def test_every_number_alone_at_every_extreme() -> None:
    """Each field with each extreme number: the table that random bodies only sample."""

    async def ask() -> Counter[int]:
        seen: Counter[int] = Counter()
        backend = FakeBackend(Script(words=("a",)))
        app = application(backend)
        for name in NAMES:
            for value in (*INTS[:-1], *FLOATS):
                path = TEXT if name in TextFields.model_fields and name not in ChatFields.model_fields else CHAT
                body = {"messages": USER, "prompt": "hi", name: value}
                done = await call(app, "POST", path, as_json(body))
                assert done.status in (200, 400), (name, value, done.status)
                seen[done.status] += 1
        for request in backend.requests:
            check_bounds(request)
        assert len(backend.requests) == seen[200]
        return seen

    seen = asyncio.run(ask())
    print(f"outcomes over {seen.total()} single values: {dict(seen)}")
    assert seen[200] > 100
    assert seen[400] > 400


def test_control_an_unbounded_field_is_noticed() -> None:
    """Planted fault: a temperature that nobody looked at."""
    request = ChatRequest("r", text="x")
    check_bounds(request)
    for bad in (
        replace(request, sampling=replace(request.sampling, temperature=1e308)),
        replace(request, sampling=replace(request.sampling, repeat_last_n=2**40)),
        replace(request, n=0),
    ):
        with pytest.raises(AssertionError):
            check_bounds(bad)
