"""What a chat body may look like, and what becomes of it."""

from __future__ import annotations

from typing import Any

import pytest
from service_bench import OPTIONS

from models import limits
from runtime.errors import HeadraceError, InvalidRequest, NotFound, UnsupportedFeature
from runtime.request import ChatRequest, Message, Sampling
from runtime.service.wire import chat_order

USER = [{"role": "user", "content": "hi"}]
N_VOCAB = 1000


def parsed(**body: Any) -> ChatRequest:
    return chat_order({"messages": USER, **body}, OPTIONS, N_VOCAB).requests[0]


def refusal(**body: Any) -> HeadraceError:
    with pytest.raises(HeadraceError) as refused:
        parsed(**body)
    assert refused.value.status in (400, 404)
    assert refused.value.message
    return refused.value


def test_the_least_a_client_can_send() -> None:
    request = parsed()
    assert request.messages == (Message("user", "hi"),)
    assert request.sampling == Sampling()
    assert (request.n, request.max_tokens, request.stop, request.logprobs) == (1, None, (), None)
    assert request.truncate == "error"


def test_null_means_not_sent() -> None:
    fields = (
        "temperature top_p top_k seed stop n max_tokens logit_bias stream stream_options tools tool_choice logprobs "
        "top_logprobs response_format chat_template_kwargs truncate frequency_penalty user model grammar"
    )
    request = parsed(**dict.fromkeys(fields.split()))
    assert request.sampling == Sampling()
    assert request.n == 1


def test_unknown_fields_are_ignored() -> None:
    request = parsed(store=True, metadata={"a": [1]}, prediction={"type": "content"}, id_slot=10**30, cache_prompt="x")
    assert request.sampling == Sampling()


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("", ""),
        (" ", " "),
        ("a\nb", "a\nb"),
        ([], ""),
        ([{"type": "text", "text": "a"}], "a"),
        ([{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}], "a\nb"),
        ([{"type": "text", "text": None}, "b"], "b"),
        ([{"type": "refusal", "refusal": "no"}], "no"),
        ({"type": "text", "text": "a"}, "a"),
        ([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}], "a"),
    ],
    ids=repr,
)
def test_content_of_every_role(role: str, content: Any, text: str) -> None:
    message = parsed(messages=[{"role": role, "content": content}]).messages[0]
    assert (message.role, message.content) == (role, text)


def test_content_may_be_missing() -> None:
    assert parsed(messages=[{"role": "user"}]).messages == (Message("user", ""),)


def test_several_systems_and_a_last_assistant_stay_as_they_are() -> None:
    roles = ["system", "user", "system", "developer", "user", "assistant"]
    messages = parsed(messages=[{"role": role, "content": role} for role in roles]).messages
    assert [message.role for message in messages] == roles


def test_old_tool_calls_from_many_hands() -> None:
    calls = [
        {"id": None, "type": "function", "function": {"name": "f", "arguments": {"x": 1}}},
        {"function": {"name": "g", "arguments": '{"broken'}},
        {"id": "call_1", "function": None},
        "nonsense",
    ]
    old = [{"role": "assistant", "tool_calls": calls}, {"role": "tool", "tool_call_id": None, "content": "3"}]
    assistant, tool = parsed(messages=old).messages
    functions = [call["function"] for call in assistant.tool_calls]
    assert functions == [
        {"name": "f", "arguments": '{"x":1}'},
        {"name": "g", "arguments": '{"broken'},
        {"name": "", "arguments": "{}"},
    ]
    assert [call["id"] for call in assistant.tool_calls] == ["", "", "call_1"]
    assert tool.tool_call_id is None


def test_reasoning_comes_back_under_either_name() -> None:
    for name in ("reasoning_content", "reasoning"):
        assert parsed(messages=[{"role": "assistant", "content": "a", name: "hm"}]).messages[0].reasoning == "hm"
    thought = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}]
    assert parsed(messages=[{"role": "assistant", "content": thought}]).messages[0].reasoning == "hm"


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        ("hi", "messages"),
        ({}, "messages"),
        ([], "messages"),
        ([123], "messages.0"),
        ([{}], "messages.0.role"),
        ([{"role": 123}], "messages.0.role"),
        ([{"role": ""}], "messages.0.role"),
        ([{"role": "r" * 65}], "messages.0.role"),
        ([USER[0], {"role": "user", "content": 123}], "messages.1.content"),
        ([{"role": "user", "content": [1]}], "messages.0.content.0"),
        ([{"role": "user", "content": [{"type": "text", "text": 1}]}], "messages.0.content.0.text"),
        ([{"role": "user", "content": [{"type": 5}]}], "messages.0.content.0.type"),
        (USER * (limits.MESSAGES + 1), "messages"),
        ([{"role": "user", "content": "é" * (limits.TEXT_BYTES // 2 + 1)}], "messages"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_bad_messages_name_their_place(messages: Any, param: str) -> None:
    error = refusal(messages=messages)
    assert isinstance(error, InvalidRequest)
    assert error.param == param


def test_messages_at_the_limits_pass() -> None:
    assert len(parsed(messages=USER * limits.MESSAGES).messages) == limits.MESSAGES
    assert parsed(messages=[{"role": "user", "content": "e" * limits.TEXT_BYTES}])


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", "video_url"])
def test_what_is_not_text_is_refused(kind: str) -> None:
    error = refusal(messages=[{"role": "user", "content": [{"type": kind, kind: {"url": "data:,"}}]}])
    assert isinstance(error, UnsupportedFeature)
    assert "no projector" in error.message


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n_predict", "max_output_tokens"])
@pytest.mark.parametrize(("value", "limit"), [(None, None), (-1, None), (0, 0), (7, 7), ("7", 7)])
def test_the_token_limit_has_four_names(name: str, value: Any, limit: int | None) -> None:
    assert parsed(**{name: value}).max_tokens == limit


def test_of_several_token_limits_the_tightest_holds() -> None:
    assert parsed(max_tokens=100, max_completion_tokens=20, n_predict=-1).max_tokens == 20


@pytest.mark.parametrize(
    ("seed", "taken"),
    [(None, None), (-1, None), (0, 0), (42, 42), (2**32 + 5, 5), (2**64 + 5, 5), (-2, 2**32 - 2), (2**32 - 1, None)],
)
def test_any_seed_is_taken(seed: int | None, taken: int | None) -> None:
    assert parsed(seed=seed).sampling.seed == taken


@pytest.mark.parametrize(
    ("bias", "taken"),
    [
        ({"5": 1.5}, ((5, 1.5),)),
        ([[5, -100], ["6", 2]], ((5, -100.0), (6, 2.0))),
        ({"5": False}, ((5, -10_000.0),)),
        ({}, ()),
        ([], ()),
    ],
)
def test_logit_bias_in_both_forms(bias: Any, taken: Any) -> None:
    assert parsed(logit_bias=bias).sampling.logit_bias == taken


def test_sampling_fields_and_their_other_names() -> None:
    sent = {
        "temperature": 0,
        "top_p": 1,
        "top_k": -1,
        "min_p": 0.1,
        "typical_p": 0.9,
        "repetition_penalty": 1.1,
        "repeat_last_n": -1,
        "frequency_penalty": -2,
        "presence_penalty": 2,
        "dry_multiplier": 0.8,
        "dry_sequence_breakers": ["\n"],
        "xtc_probability": 0.5,
        "mirostat": 2,
        "ignore_eos": True,
    }
    expected = Sampling(
        temperature=0,
        top_p=1,
        top_k=0,
        min_p=0.1,
        typical_p=0.9,
        repeat_penalty=1.1,
        repeat_last_n=-1,
        frequency_penalty=-2,
        presence_penalty=2,
        dry_multiplier=0.8,
        dry_sequence_breakers=("\n",),
        xtc_probability=0.5,
        mirostat=2,
        ignore_eos=True,
    )
    assert parsed(**sent).sampling == expected


@pytest.mark.parametrize(
    ("stop", "taken"), [("a", ("a",)), (["a", "b"], ("a", "b")), (["", "a"], ("a",)), ("", ()), ([], ())]
)
def test_stop_is_one_text_or_several(stop: Any, taken: tuple[str, ...]) -> None:
    assert parsed(stop=stop).stop == taken


@pytest.mark.parametrize(
    ("fields", "taken"),
    [
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 20}, 20),
        ({"logprobs": False, "top_logprobs": 5}, None),
        ({"top_logprobs": 5}, 5),
        ({"top_logprobs": 0}, None),
    ],
)
def test_logprobs(fields: dict[str, Any], taken: int | None) -> None:
    assert parsed(**fields).logprobs == taken


OVER = [
    ("temperature", -0.1),
    ("temperature", 1e308),
    ("temperature", "hot"),
    ("top_p", 1.5),
    ("top_p", -1),
    ("top_k", -2),
    ("top_k", 2**63),
    ("min_p", "nan"),
    ("repeat_penalty", 0),
    ("repeat_last_n", 2**31 - 1),
    ("dry_allowed_length", -1),
    ("dry_penalty_last_n", 2**40),
    ("mirostat", 3),
    ("n", 0),
    ("n", limits.N_CHOICES + 1),
    ("n", 2**63),
    ("max_tokens", -2),
    ("max_tokens", 2**63),
    ("max_tokens", 1.5),
    ("top_logprobs", limits.TOP_LOGPROBS + 1),
    ("stop", ["x"] * (limits.STOP_STRINGS + 1)),
    ("stop", "é" * (limits.STOP_BYTES // 2 + 1)),
    ("stop", 5),
    ("stop", [5]),
    ("logit_bias", {"-1": 0}),
    ("logit_bias", {str(N_VOCAB): 0}),
    ("logit_bias", {"5": 1e308}),
    ("logit_bias", {"5": "inf"}),
    ("logit_bias", {"word": 1}),
    ("logit_bias", [[5]]),
    ("logit_bias", "5"),
    ("logit_bias", [[5, 0]] * (limits.LOGIT_BIAS_ENTRIES + 1)),
    ("stream", "maybe"),
    ("stream_options", 5),
    ("chat_template_kwargs", []),
    ("chat_template_kwargs", {"a": "x" * limits.TEMPLATE_BYTES}),
    ("truncate", "newest"),
    ("model", 5),
    ("seed", "x"),
    ("seed", 1.5),
]


@pytest.mark.parametrize(("field", "value"), OVER, ids=lambda value: repr(value)[:30])
def test_a_value_out_of_bounds_names_its_field(field: str, value: Any) -> None:
    error = refusal(**{field: value})
    assert str(error.param).split(".")[0] == field
    assert field in error.message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stop", ["x"] * limits.STOP_STRINGS),
        ("stop", "x" * limits.STOP_BYTES),
        ("logit_bias", [[5, 0]] * limits.LOGIT_BIAS_ENTRIES),
        ("n", limits.N_CHOICES),
        ("model", "m" * limits.MODEL_NAME_BYTES),
        ("temperature", 100),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_value_at_its_bound_passes(field: str, value: Any) -> None:
    assert parsed(**{field: value})


def test_a_model_name_that_is_too_long_is_not_found() -> None:
    assert isinstance(refusal(model="é" * (limits.MODEL_NAME_BYTES // 2 + 1)), NotFound)


TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


@pytest.mark.parametrize("choice", [None, "auto", "required", {"type": "function", "function": {"name": "f"}}])
def test_tools_are_refused_with_the_way_out(choice: Any) -> None:
    error = refusal(tools=[TOOL], tool_choice=choice)
    assert isinstance(error, UnsupportedFeature)
    assert 'tool_choice: "none"' in error.message


def test_tools_that_may_not_be_called_are_no_obstacle() -> None:
    assert parsed(tools=[TOOL], tool_choice="none")
    assert parsed(tools=[], tool_choice="auto")
    assert parsed(functions=[], function_call="auto")


@pytest.mark.parametrize("format", [None, {"type": "text"}])
def test_plain_text_is_a_format(format: Any) -> None:
    assert parsed(response_format=format)


@pytest.mark.parametrize(
    "format", [{"type": "json_object"}, {"type": "json_schema", "json_schema": {}}, {"type": "yaml"}, {}, "text", 5]
)
def test_other_formats_are_refused(format: Any) -> None:
    assert refusal(response_format=format).param == "response_format"


@pytest.mark.parametrize("field", ["grammar", "json_schema"])
def test_grammars_are_refused_not_ignored(field: str) -> None:
    assert isinstance(refusal(**{field: "root ::= [a-z]"}), UnsupportedFeature)


def test_overflow_follows_the_request_then_the_service() -> None:
    from dataclasses import replace

    trimming = replace(OPTIONS, on_overflow="trim")
    assert chat_order({"messages": USER}, trimming, None).requests[0].truncate == "oldest"
    assert chat_order({"messages": USER, "truncate": "error"}, trimming, None).requests[0].truncate == "error"
    assert parsed(truncate="oldest").truncate == "oldest"


def test_template_arguments_and_generation_prompt_pass_through() -> None:
    request = parsed(chat_template_kwargs={"enable_thinking": False}, add_generation_prompt=False)
    assert request.template_kwargs == {"enable_thinking": False}
    assert not request.add_generation_prompt
    assert refusal(add_generation_prompt=True, continue_final_message=True).param == "add_generation_prompt"
    assert parsed(continue_final_message=True)


def test_before_the_vocabulary_is_known_ids_are_left_to_the_worker() -> None:
    order = chat_order({"messages": USER, "logit_bias": {"999999": 1}}, OPTIONS, None)
    assert order.requests[0].sampling.logit_bias == ((999999, 1.0),)


def test_control_bounds_are_what_refuses() -> None:
    """Planted fault: a field whose bounds are gone. The same check as above then fails."""
    from runtime.service import fields

    class Unbounded(fields.ChatFields):
        temperature: float | None = None

    assert fields.read(Unbounded, {"temperature": -5.0}).temperature == -5.0
    with pytest.raises(InvalidRequest):
        fields.read(fields.ChatFields, {"temperature": -5.0})
