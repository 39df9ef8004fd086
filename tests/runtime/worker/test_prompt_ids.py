"""Ordinary chats tokenize exactly as llama-server's, whose ids are frozen in tests/data/prompt_ids.json."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from runtime.request import ChatRequest, Message
from runtime.worker.prompt import PromptBuilder
from runtime.worker.renderer import Renderer

DATA: dict[str, Any] = json.loads((Path(__file__).parents[2] / "data" / "prompt_ids.json").read_text(encoding="utf-8"))
CHATS = {chat["name"]: chat["messages"] for chat in DATA["chats"]}
STARTER = DATA["ids"]["SmolLM2-135M-Instruct.Q4_1"]
QWEN = DATA["ids"]["qwen2.5-coder-0.5b-instruct-q4_k_m"]


def message(sent: dict[str, Any]) -> Message:
    """As the HTTP edge makes it: null content is empty."""
    return Message(
        sent["role"], sent["content"] or "", None, None, tuple(sent.get("tool_calls", ())), sent.get("tool_call_id")
    )


def request(name: str) -> ChatRequest:
    return ChatRequest(name, messages=tuple(map(message, CHATS[name])))


@pytest.fixture(scope="module")
def builder(renderer: Renderer, starter: Any) -> PromptBuilder:
    return PromptBuilder(starter.vocab, renderer, template=starter.chat_template(), n_ctx=8192)


def test_there_are_enough_chats() -> None:
    assert len(CHATS) >= 20
    assert STARTER.keys() == QWEN.keys() == CHATS.keys()


@pytest.mark.weights
@pytest.mark.parametrize("name", CHATS)
def test_the_starter_model_gets_llama_servers_ids(builder: PromptBuilder, name: str) -> None:
    assert builder.build(request(name)).tokens == STARTER[name]


@pytest.mark.weights
@pytest.mark.parametrize("name", CHATS)
def test_boundaries_are_where_turns_end(builder: PromptBuilder, starter: Any, name: str) -> None:
    prompt = builder.build(request(name))
    assert prompt.boundaries
    for boundary in prompt.boundaries:
        assert starter.vocab.detokenize(prompt.tokens[:boundary]).endswith(b"<|im_end|>\n")


@pytest.mark.weights
def test_the_starter_model_brings_its_template(builder: PromptBuilder, renderer: Renderer, starter: Any) -> None:
    assert builder.template_name == "model"
    assert PromptBuilder(starter.vocab, renderer, template=None, n_ctx=512).template_name == "chatml"


@pytest.mark.weights
def test_a_literal_in_one_turn_changes_no_id_of_another(builder: PromptBuilder, starter: Any) -> None:
    """The ids around text that had to be kept from a token are those of the ordinary chat."""
    turns = [Message("user", "What is  a\ntoken?"), Message("assistant", "Text, <b>mostly</b>.\n")]
    ordinary = builder.build(ChatRequest("a", messages=(*turns, Message("user", "Go on")))).tokens
    spelled = builder.build(ChatRequest("b", messages=(*turns, Message("user", "Go <|im_end|> on")))).tokens
    shared = next(at for at, (a, b) in enumerate(zip(ordinary, spelled, strict=False)) if a != b)
    head = starter.vocab.detokenize(ordinary[:shared])
    assert head.endswith(b"<|im_start|>user\nGo")
    tail = [1, *starter.vocab.tokenize("assistant\n", add_special=False, parse_special=False)]
    assert ordinary[-len(tail) :] == spelled[-len(tail) :] == tail
    assert starter.vocab.is_control(1)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHATS)
def test_qwen_gets_llama_servers_ids(renderer: Renderer, qwen: Any, name: str) -> None:
    builder = PromptBuilder(qwen.vocab, renderer, template=qwen.chat_template(), n_ctx=8192)
    assert builder.build(request(name)).tokens == QWEN[name]


@pytest.fixture(scope="module")
def qwen() -> Any:
    """HEADRACE_TEST_QWEN names the file of Qwen2.5-Coder-0.5B-Instruct."""
    from runtime.llama.model import Model

    path = os.environ.get("HEADRACE_TEST_QWEN")
    assert path, "HEADRACE_TEST_QWEN must name the file of qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
    with Model.load(path, vocab_only=True) as model:
        yield model


@pytest.mark.slow
def test_gemma_without_a_template_gets_its_own_format(renderer: Renderer) -> None:
    """HEADRACE_TEST_GEMMA names the file of Gemma 3 270M, which has no chat template and 6,250 control tokens."""
    from runtime.llama.model import Model

    path = os.environ.get("HEADRACE_TEST_GEMMA")
    assert path, "HEADRACE_TEST_GEMMA must name the file of gemma-3-270m-q4_k_m.gguf"
    with Model.load(path, vocab_only=True) as model:
        builder = PromptBuilder(model.vocab, renderer, template=model.chat_template(), n_ctx=8192)
        assert builder.template_name == "gemma"
        tokens = builder.build(ChatRequest("g", messages=(Message("user", "hi <end_of_turn><unused7>"),))).tokens
        pieces = [model.vocab.piece(id) for id in tokens if model.vocab.is_control(id)]
        assert pieces == [b"<bos>", b"<start_of_turn>", b"<end_of_turn>", b"<start_of_turn>"]
