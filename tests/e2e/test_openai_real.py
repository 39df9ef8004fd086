"""The openai client against the real service and real weights."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator

import httpx
import openai
import pytest

from runtime.private import PrivateService

pytestmark = [pytest.mark.weights, pytest.mark.timeout(240)]

QUESTION = [{"role": "user", "content": "Name three colours."}]


@pytest.fixture(scope="module")
def client(service: PrivateService) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{service.client.base_url}/v1", api_key=service.api_key, max_retries=0) as made:
        yield made


def test_stream_and_whole_reply_say_the_same(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="any", messages=QUESTION, temperature=0, max_tokens=24)
    stream = client.chat.completions.create(
        model="any", messages=QUESTION, temperature=0, max_tokens=24, stream=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert whole.choices[0].finish_reason == "length"
    assert [chunk.usage for chunk in chunks if chunk.usage][-1].completion_tokens == 24
    assert whole.usage is not None
    assert whole.usage.prompt_tokens > 0


def test_choices_seeds_and_stop(client: openai.OpenAI) -> None:
    def ask(seed: int) -> list[str | None]:
        reply = client.chat.completions.create(
            model="any", messages=QUESTION, n=3, seed=seed, temperature=1.0, max_tokens=12
        )
        assert sorted(choice.index for choice in reply.choices) == [0, 1, 2]
        return [choice.message.content for choice in sorted(reply.choices, key=lambda choice: choice.index)]

    first = ask(7)
    assert len(set(first)) > 1, "three choices from one seed must differ"
    assert first == ask(7)
    assert first != ask(8)
    stopped = client.completions.create(model="any", prompt="1 2 3 4", temperature=0, max_tokens=40, stop=["8"])
    assert "8" not in stopped.choices[0].text
    assert stopped.choices[0].finish_reason == "stop"
    assert "7" in stopped.choices[0].text


def test_logprobs(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(
        model="any", messages=QUESTION, temperature=0, max_tokens=8, logprobs=True, top_logprobs=3
    )
    content = reply.choices[0].logprobs.content
    assert "".join(entry.token for entry in content) == reply.choices[0].message.content
    for entry in content:
        assert entry.logprob <= 0
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].logprob == pytest.approx(entry.logprob), "greedy takes the likeliest"


def test_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as overflow:
        client.completions.create(model="any", prompt="stone " * 4000, max_tokens=1)
    assert overflow.value.code == "context_length_exceeded"
    assert "exceeds the available context size" in str(overflow.value)
    with pytest.raises(openai.BadRequestError) as stream_overflow:
        client.completions.create(model="any", prompt="stone " * 4000, max_tokens=1, stream=True)
    assert stream_overflow.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.chat.completions.create(model="any", messages=QUESTION, temperature=-3)
    with pytest.raises(openai.BadRequestError, match="logit_bias"):
        client.chat.completions.create(model="any", messages=QUESTION, logit_bias={"99999999": 5})


def test_system_prefill_and_parts_work(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(
        model="any",
        messages=[
            {"role": "system", "content": "You count."},
            {"role": "developer", "content": "Answer with numbers."},
            {"role": "user", "content": [{"type": "text", "text": "Count to"}, {"type": "text", "text": "five."}]},
            {"role": "assistant", "content": "1, 2, 3,"},
        ],
        temperature=0,
        max_tokens=6,
    )
    assert "4" in (reply.choices[0].message.content or "")


def test_user_text_never_becomes_a_control_token(client: openai.OpenAI) -> None:
    def count(text: str) -> int:
        reply = client.chat.completions.create(
            model="any", messages=[{"role": "user", "content": text}], max_tokens=1, temperature=0
        )
        assert reply.usage is not None
        return reply.usage.prompt_tokens

    # As one control token each, the two literals would cost two tokens; as text they cost several.
    assert count("<|im_end|><|im_start|>") > count("") + 4


def figures(service: PrivateService) -> dict[str, float]:
    text = httpx.get(f"{service.client.base_url}/metrics", headers={"Authorization": f"Bearer {service.api_key}"}).text
    rows = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, value in rows}


def test_a_client_gone_during_prefill_frees_the_engine(service: PrivateService, client: openai.OpenAI) -> None:
    """The prompt takes many steps; the client hangs up at once; the engine is idle long before it would have ended."""
    url = httpx.URL(service.client.base_url)
    body = json.dumps({"prompt": "stone river " * 900, "max_tokens": 400, "stream": True, "ignore_eos": True}).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {url.host}:{url.port}\r\nAuthorization: Bearer {service.api_key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    with socket.create_connection((url.host, url.port)) as connection:
        connection.sendall(head + body)
        assert b"200" in connection.recv(4096), "headers go out before prefill"
    began = time.monotonic()
    reply = client.completions.create(model="any", prompt="Hello", max_tokens=1)
    assert reply.usage is not None
    waited = time.monotonic() - began
    deadline = time.monotonic() + 30
    while figures(service)["headrace_requests_running"] and time.monotonic() < deadline:
        threading.Event().wait(0.1)
    assert figures(service)["headrace_requests_running"] == 0, f"still running, a short request waited {waited:.1f} s"
    assert sum(v for k, v in figures(service).items() if k.startswith("headrace_generated_tokens_total")) < 400


def test_eight_at_once_all_answer(client: openai.OpenAI) -> None:
    answers: list[str | None] = [None] * 8

    def ask(index: int) -> None:
        reply = client.chat.completions.create(model="any", messages=QUESTION, temperature=0, max_tokens=10)
        answers[index] = reply.choices[0].message.content

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(answers)
