"""The real `openai` client against the service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import openai
import pytest
from fakes import WORDS, FakeBackend, Script
from openai import OpenAI
from service_bench import LiveServer

from runtime.errors import ContextLengthExceeded, Overloaded

SAID = "".join(WORDS)
USER = [{"role": "user", "content": "hi there"}]


@pytest.fixture
def server() -> Iterator[LiveServer]:
    with LiveServer() as live:
        yield live


@pytest.fixture(params=["/v1", ""], ids=["with v1", "without v1"])
def client(request: pytest.FixtureRequest, server: LiveServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.url + request.param, api_key="any", max_retries=0) as made:
        yield made


def test_chat(client: OpenAI) -> None:
    reply = client.chat.completions.create(model="any", messages=USER)
    assert reply.choices[0].message.content == SAID
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage.total_tokens == 7
    assert reply.usage.prompt_tokens_details.cached_tokens == 2
    assert reply.model == "fake-model"
    assert reply.system_fingerprint


def test_chat_stream_with_usage(client: OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(model="any", messages=USER, stream=True, stream_options={"include_usage": True})
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == SAID
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == len(WORDS)


def test_the_stream_helper_accumulates(client: OpenAI) -> None:
    with client.chat.completions.stream(model="any", messages=USER, n=2, logprobs=True) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert [choice.message.content for choice in final.choices] == [SAID] * 2
    assert "".join(entry.token for entry in final.choices[0].logprobs.content) == SAID


def test_n_stop_seed_and_limit(client: OpenAI, server: LiveServer) -> None:
    reply = client.chat.completions.create(model="any", messages=USER, n=3, stop=[" friend"], seed=7)
    assert [choice.message.content for choice in reply.choices] == ["Hello there,"] * 3
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    assert server.backend.requests[-1].sampling.seed == 7
    reply = client.chat.completions.create(model="any", messages=USER, max_completion_tokens=2)
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == ("Hello there", "length")


def test_logprobs(client: OpenAI) -> None:
    reply = client.chat.completions.create(model="any", messages=USER, logprobs=True, top_logprobs=3)
    content = reply.choices[0].logprobs.content
    assert [entry.token for entry in content] == list(WORDS)
    assert [len(entry.top_logprobs) for entry in content] == [3] * len(WORDS)
    assert bytes(content[0].bytes) == b"Hello"


def test_completions(client: OpenAI) -> None:
    reply = client.completions.create(model="any", prompt=["a", "b"], n=2, logprobs=2, echo=False)
    assert [choice.text for choice in reply.choices] == [SAID] * 4
    assert reply.choices[3].logprobs.tokens == list(WORDS)
    streamed = list(client.completions.create(model="any", prompt=[5, 6, 7], stream=True))
    assert "".join(chunk.choices[0].text for chunk in streamed) == SAID
    assert streamed[-1].choices[0].finish_reason == "stop"


def test_models(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["fake-model"]
    assert client.models.retrieve("fake-model").object == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")


def test_an_error_before_a_stream_is_an_exception_with_its_numbers(client: OpenAI, server: LiveServer) -> None:
    server.backend.script = Script(refuse=ContextLengthExceeded(9000, 4096).info())
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(model="any", messages=USER, stream=stream)
        assert refused.value.code == "context_length_exceeded"
        assert refused.value.body["n_ctx"] == 4096


def test_a_failure_inside_a_stream_is_an_exception(client: OpenAI, server: LiveServer) -> None:
    server.backend.script = Script(fail_at=2)
    stream = client.chat.completions.create(model="any", messages=USER, stream=True)
    said: list[str] = []
    with pytest.raises(openai.APIError, match="signal 11") as failed:
        _collect(stream, said)
    assert "".join(said) == "Hello there"
    assert failed.value.code == "engine_crashed"


def _collect(stream: Iterable[Any], said: list[str]) -> None:
    for chunk in stream:
        said.append(chunk.choices[0].delta.content or "")


def test_other_errors_have_their_classes(client: OpenAI, server: LiveServer) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="any", messages=USER, temperature=-1)
    assert refused.value.param == "temperature"
    server.backend.script = Script(fail_at=0)
    with pytest.raises(openai.InternalServerError):
        client.chat.completions.create(model="any", messages=USER)
    server.backend.refusal = Overloaded("256 requests wait already", retry_after_s=2)
    with pytest.raises(openai.RateLimitError) as full:
        client.chat.completions.create(model="any", messages=USER)
    assert full.value.response.headers["retry-after"] == "2"


def test_a_key() -> None:
    with LiveServer(FakeBackend(), api_key="right") as server:
        for key in ("wrong", "righ"):
            client = OpenAI(base_url=server.url, api_key=key, max_retries=0)
            with client, pytest.raises(openai.AuthenticationError):
                client.models.list()
        with OpenAI(base_url=server.url, api_key="right", max_retries=0) as client:
            assert client.models.list().data


def test_closing_a_stream_cancels_its_work(client: OpenAI, server: LiveServer) -> None:
    server.backend.script = Script(hold_at=2)
    stream = client.chat.completions.create(model="any", messages=USER, stream=True)
    for chunk in stream:
        if chunk.choices[0].delta.content == " there":
            break
    stream.close()
    server.wait(server.backend.replies[0].cancelled.wait())
    assert server.backend.n_cancelled == 1
