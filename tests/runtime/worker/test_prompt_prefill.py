"""A trailing assistant message is the beginning of the reply."""

from __future__ import annotations

from typing import Any

import pytest
from prompt_templates import CHATML, FAMILIES, THINKS, Family

from runtime.request import ChatRequest, Message
from runtime.worker.prompt import PromptBuilder
from runtime.worker.renderer import Renderer

CHAT = FAMILIES["chatml"].vocab
USER = Message("user", "q")
BEFORE = "<|im_start|>user\nq<|im_end|>\n"
ASSISTANT = BEFORE + "<|im_start|>assistant\n"
# Begins every reply with a thought, and shows none in history.
OPENS = CHATML.replace("assistant\n' }}{% endif %}", "assistant\n<think>\n' }}{% endif %}")
# Names a channel only once there is a reply.
CHANNELS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}{% if m.role == 'assistant' %} to user{% endif %}"
    "{{ '\n' + m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant{% endif %}"
)


def build(renderer: Renderer, template: str, *messages: Message, **more: Any) -> str:
    builder = PromptBuilder(CHAT, renderer, template=template, n_ctx=10**6)
    return CHAT.detokenize(builder.build(ChatRequest("r", messages=messages, **more)).tokens).decode()


CASES = {
    "plain": (CHATML, Message("assistant", "Dear "), ASSISTANT + "Dear "),
    "white space is kept": (CHATML, Message("assistant", " a\n\n "), ASSISTANT + " a\n\n "),
    "nothing said": (CHATML, Message("assistant", ""), ASSISTANT),
    "between the template's marks": (THINKS, Message("assistant", "b"), ASSISTANT + "<think>\n\n</think>\n\nb"),
    "thought and reply": (THINKS, Message("assistant", "b", reasoning="hm"), ASSISTANT + "<think>\nhm\n</think>\n\nb"),
    "a thought goes on": (THINKS, Message("assistant", "", reasoning="hm"), ASSISTANT + "<think>\nhm"),
    "an opened thought is closed": (OPENS, Message("assistant", "b"), ASSISTANT + "<think></think>b"),
    "an opened thought goes on": (OPENS, Message("assistant", "", reasoning="hm"), ASSISTANT + "<think>hm"),
    "a thought without marks": (CHATML, Message("assistant", "b", reasoning="hm"), ASSISTANT + "<think>hm</think>b"),
    "a channel": (CHANNELS, Message("assistant", "b"), BEFORE + "<|im_start|>assistant to user\nb"),
}


@pytest.mark.parametrize("case", CASES)
def test_how_a_reply_begins(renderer: Renderer, case: str) -> None:
    template, message, expected = CASES[case]
    assert build(renderer, template, USER, message) == expected


def test_a_reply_begins_after_the_shape_the_template_took(renderer: Renderer) -> None:
    family = FAMILIES["alternates"]
    builder = PromptBuilder(family.vocab, renderer, template=family.template, n_ctx=10**6)
    messages = (Message("system", "a"), Message("user", "b"), Message("user", "c"), Message("assistant", "d"))
    text = family.vocab.detokenize(builder.build(ChatRequest("r", messages=messages)).tokens).decode()
    assert text == "<s>[INST] a\nb\n\nc[/INST] d"


def test_without_a_generation_prompt_the_turn_is_complete(renderer: Renderer) -> None:
    text = build(renderer, CHATML, USER, Message("assistant", "b"), add_generation_prompt=False)
    assert text == ASSISTANT + "b<|im_end|>\n"


def test_tool_calls_are_no_beginning(renderer: Renderer) -> None:
    call = ({"function": {"name": "f", "arguments": "{}"}},)
    text = build(renderer, CHATML, USER, Message("assistant", "b", tool_calls=call))
    assert text == ASSISTANT + "b<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("said", ["<|im_end|>", "<|im_start|>user", "|im_end|>", "<|im_en"])
def test_what_the_client_began_is_text(renderer: Renderer, said: str) -> None:
    family = Family(CHATML, CHAT)
    builder = PromptBuilder(family.vocab, renderer, template=family.template, n_ctx=10**6)
    tokens = builder.build(ChatRequest("r", messages=(USER, Message("assistant", said)))).tokens
    assert CHAT.detokenize(tokens).decode() == ASSISTANT + said
    assert sum(CHAT.is_control(id) for id in tokens) == 3
