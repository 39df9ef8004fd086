"""Every shape of chat a client sends works with every kind of template, and nothing said is lost."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from fake_vocab import FakeVocab, Special
from prompt_templates import FAMILIES, REFUSES, Family

from models.templates import builtin
from runtime.errors import InvalidRequest, TemplateFailed
from runtime.request import ChatRequest, Message
from runtime.worker.prompt import PromptBuilder
from runtime.worker.renderer import Renderer

CALL = ({"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}},)
MALFORMED = ({"id": None, "function": {"name": "weather", "arguments": '{"city": '}}, {"type": "function"}, {})
S, U, A = (lambda text, role=role: Message(role, text) for role in ("system", "user", "assistant"))

CHATS: dict[str, tuple[Message, ...]] = {
    "one user": (U("say1"),),
    "system": (S("say1"), U("say2")),
    "two systems and a developer": (S("say1"), S("say2"), Message("developer", "say3"), U("say4")),
    "late system": (S("say1"), U("say2"), A("say3"), S("say4"), U("say5")),
    "late system after the user": (U("say1"), A("say2"), U("say3"), Message("developer", "say4")),
    "system only": (S("say1"),),
    "no content": (U("say1"), A(""), U("say2")),
    "empty user": (U(""),),
    "same roles": (U("say1"), U("say2"), A("say3"), A("say4"), U("say5")),
    "assistant first": (A("say1"), U("say2")),
    "prefill": (S("say1"), U("say2"), A("say3")),
    "prefill only": (A("say1"),),
    "prefill after another": (U("say1"), A("say2"), A("say3")),
    "tools": (U("say1"), Message("assistant", "", None, None, CALL), Message("tool", "say2", None, None, (), "c1")),
    "function role": (U("say1"), A("say2"), Message("function", "say3", name="f"), A("say4"), U("say5")),
    "malformed calls": (U("say1"), Message("assistant", "", tool_calls=MALFORMED), Message("tool", "say2"), U("say3")),
}  # fmt: skip


def build(family: Family, renderer: Renderer, *messages: Message, **more: Any) -> str:
    builder = PromptBuilder(family.vocab, renderer, template=family.template, n_ctx=10**6)
    prompt = builder.build(ChatRequest("r", messages=messages, **more))
    return family.vocab.detokenize(prompt.tokens).decode()


@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_chat_works_with_every_template(renderer: Renderer, name: str, chat: str) -> None:
    text = build(FAMILIES[name], renderer, *CHATS[chat])
    said = [message.content for message in CHATS[chat] if message.content]
    assert [word for word in said if word not in text] == []
    places = [text.rindex(word) for word in said]
    assert places == sorted(places), "nothing may be reordered"


@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("name", builtin.NAMES)
def test_and_with_every_builtin(renderer: Renderer, name: str, chat: str) -> None:
    vocab = FakeVocab(*map(Special, builtin.named(name).markers))
    text = build(Family(name, vocab), renderer, *CHATS[chat])
    assert [message.content for message in CHATS[chat] if message.content not in text] == []


def test_an_ordinary_chat_is_left_as_it_is(renderer: Renderer) -> None:
    assert build(FAMILIES["chatml"], renderer, S("a"), S("b"), U("c")) == (
        "<|im_start|>system\na<|im_end|>\n<|im_start|>system\nb<|im_end|>\n"
        "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_system_message_the_template_would_drop_is_kept(renderer: Renderer) -> None:
    text = build(FAMILIES["first system"], renderer, S("a1"), U("b"), A("c"), S("d1"), U("e"))
    assert "<|system|> a1" in text
    assert "<|user|> [System message]\nd1" in text


def test_a_dropped_message_is_noticed_though_another_says_the_same(renderer: Renderer) -> None:
    text = build(FAMILIES["first system"], renderer, U("same"), A("x"), S("same"), U("same"))
    assert text.count("same") == 3


def test_a_message_the_template_moves_is_not_missed(renderer: Renderer) -> None:
    gathers = (
        "{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}"
        "{% for m in messages if m.role != 'system' %}|{{ m.content }}{% endfor %}"
    )
    assert build(Family(gathers, FakeVocab()), renderer, U("one"), S("two"), U("three")) == "two|one|three"


def test_without_a_system_role_it_leads_the_first_user_turn(renderer: Renderer) -> None:
    assert "<start_of_turn>user\nrules\nhi<end_of_turn>" in build(FAMILIES["no system"], renderer, S("rules"), U("hi"))


def test_developer_is_system_except_where_templates_tell_them_apart(renderer: Renderer) -> None:
    template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    message = Message("developer", "x")
    assert build(Family(template, FakeVocab()), renderer, message) == "[system]x"
    assert build(Family(template + "{# <|channel|> #}", FakeVocab()), renderer, message) == "[developer]x"


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in ("escapes", "thinks")])
def test_a_growing_chat_keeps_its_beginning(renderer: Renderer, name: str) -> None:
    """What was in the cache after a turn is the beginning of the next prompt, late system messages or not."""
    chat = [S("s1"), U("u1"), A("a1"), S("s2"), U("u2"), A("a2"), U("u3")]
    family = FAMILIES[name]
    builder = PromptBuilder(family.vocab, renderer, template=family.template, n_ctx=10**6)
    grown = [
        family.vocab.detokenize(builder.build(ChatRequest("r", messages=tuple(chat[:n]))).tokens) for n in (2, 5, 7)
    ]
    for before, after in pairwise(grown):
        assert after.startswith(before)


def test_a_template_that_refuses_everything_is_quoted(renderer: Renderer) -> None:
    with pytest.raises(TemplateFailed, match="this model only draws") as refused:
        build(Family(REFUSES, FakeVocab()), renderer, U("hi"))
    assert refused.value.info().code == "template_error"
    assert "--template" in refused.value.message


def test_no_messages_is_a_bad_request(renderer: Renderer) -> None:
    with pytest.raises(InvalidRequest, match="messages is empty") as refused:
        build(FAMILIES["chatml"], renderer)
    assert refused.value.param == "messages"


def test_template_arguments_tools_and_the_date_reach_the_template(renderer: Renderer) -> None:
    template = (
        "{{ mood }}|{{ enable_thinking }}|{{ tools[0].function.name if tools else 'none' }}|{{ date_string }}|"
        "{{ strftime_now('%d %b %Y') }}|{{ add_generation_prompt }}"
    )
    family = Family(template, FakeVocab())
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    mood, thinking, name, date, now, generate = build(
        family, renderer, U("x"), template_kwargs={"mood": "calm", "enable_thinking": False}, tools=(tool,)
    ).split("|")
    assert (mood, thinking, name, generate) == ("calm", "False", "f", "True")
    assert date == now
    assert build(family, renderer, U("x"), add_generation_prompt=False).endswith("|False")
    assert "|True|none|" in build(family, renderer, U("x"))


@pytest.mark.parametrize("name", ["messages", "tools", "bos_token", "add_generation_prompt"])
def test_template_arguments_cannot_stand_in_for_ours(renderer: Renderer, name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"chat_template_kwargs.{name}"):
        build(FAMILIES["chatml"], renderer, U("x"), template_kwargs={name: "y"})


def test_call_arguments_reach_templates_that_walk_them_and_those_that_print_them(renderer: Renderer) -> None:
    prints = (
        "{% for m in messages %}{{ 'ARGS' + m.tool_calls[0].function.arguments if m.tool_calls else m.content }}"
        "{% endfor %}"
    )
    walks = (
        "{% for m in messages %}{% if m.tool_calls %}{% for k, v in m.tool_calls[0].function.arguments.items() %}"
        "{{ k }}={{ v }}{% endfor %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
    )
    chat = (U("q"), Message("assistant", "", tool_calls=CALL), U("r"))
    assert build(Family(prints, FakeVocab()), renderer, *chat) == 'qARGS{"city": "Oslo"}r'
    assert build(Family(walks, FakeVocab()), renderer, *chat) == "qcity=Oslor"


# Planted fault: the ladder without its later rungs.


def test_control_with_one_shape_only_the_table_above_fails(monkeypatch: pytest.MonkeyPatch, renderer: Renderer) -> None:
    monkeypatch.setattr("runtime.worker.compose.shapes", lambda chat: [chat])
    with pytest.raises(TemplateFailed, match="alternate"):
        build(FAMILIES["alternates"], renderer, *CHATS["same roles"])
    assert "say4" not in build(FAMILIES["first system"], renderer, *CHATS["late system"])
