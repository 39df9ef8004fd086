"""The HTTP client: every way a reply can end is one terminal event."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from fake_openai_server import FakeOpenAiServer

from runtime.client import Client
from runtime.errors import RemoteError
from runtime.stream import End, Event, Failed, Reasoning, ReplyDecoder, Text, Usage

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
def server() -> Iterator[FakeOpenAiServer]:
    with FakeOpenAiServer() as fake:
        yield fake


def events_of(server: FakeOpenAiServer) -> list[Event]:
    with Client(server.url) as client, client.stream_chat(HELLO, model="m") as stream:
        return list(stream)


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def check_one_terminal(events: list[Event]) -> None:
    """The promise: text, at most one usage, then exactly one terminal and nothing after it."""
    terminals = [event for event in events if isinstance(event, End | Failed)]
    assert len(terminals) == 1
    assert events[-1] is terminals[0]
    assert sum(isinstance(event, Usage) for event in events) <= 1


def test_complete_reply(server: FakeOpenAiServer) -> None:
    events = events_of(server)
    check_one_terminal(events)
    assert text_of(events) == "Hello there!"
    assert events[-1] == End("stop")
    usage = events[-2]
    assert usage == Usage(12, 5, 3, 50.0, 60.0, 140.0, 50.0)


@pytest.mark.parametrize(
    ("mode", "code"),
    [
        ("cut", "stream_cut_short"),
        ("drop", "connection_lost"),
        ("error_midway", "engine_crashed"),
        ("garbage", "bad_stream"),
        ("not_a_stream", "bad_stream"),
        ("refuse", "context_length_exceeded"),
    ],
)
def test_every_broken_reply_fails_once(server: FakeOpenAiServer, mode: str, code: str) -> None:
    server.mode = mode
    events = events_of(server)
    check_one_terminal(events)
    failed = events[-1]
    assert isinstance(failed, Failed)
    assert failed.error.code == code


def test_control_a_decoder_that_trusts_the_end_of_file_is_caught(
    server: FakeOpenAiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted fault: end of file taken for the end of the reply. The check above must turn red."""
    monkeypatch.setattr(ReplyDecoder, "eof", lambda self: [])
    server.mode = "cut"
    with pytest.raises(AssertionError):
        check_one_terminal(events_of(server))


def test_refusal_carries_its_numbers(server: FakeOpenAiServer) -> None:
    server.mode = "refuse"
    failed = events_of(server)[-1]
    assert isinstance(failed, Failed)
    assert failed.error.status == 400
    assert failed.error.numbers == {"n_prompt_tokens": 9000, "n_ctx": 8192}


def test_nobody_there_is_one_failed_event_with_the_way_out() -> None:
    with FakeOpenAiServer() as server:
        url = server.url
    with Client(url) as client:
        events = list(client.stream_chat(HELLO))
        assert client.health().state == "failed"
        with pytest.raises(RemoteError, match="headrace serve"):
            client.models()
    check_one_terminal(events)
    failed = events[0]
    assert isinstance(failed, Failed)
    assert failed.error.code == "connection_failed"


def test_cancel_from_another_thread_wakes_the_reader(server: FakeOpenAiServer) -> None:
    server.gate = 1
    events: list[Event] = []
    with Client(server.url) as client:
        stream = client.stream_chat(HELLO)
        reader = threading.Thread(target=lambda: events.extend(stream))
        reader.start()
        assert server.at_gate.wait(10)
        stream.cancel()
        reader.join(10)
        assert not reader.is_alive()
    check_one_terminal(events)
    assert events[-1] == End("cancelled")
    assert text_of(events) == "Hello"
    assert server.disconnected.wait(10), "the server never learned that the client is gone"


def test_closing_in_the_middle_disconnects(server: FakeOpenAiServer) -> None:
    server.gate = 1
    with Client(server.url) as client:
        stream = client.stream_chat(HELLO)
        assert next(stream) == Text("Hello")
        stream.close()
        stream.close()
    assert server.disconnected.wait(10)


def test_cancel_before_the_first_event(server: FakeOpenAiServer) -> None:
    with Client(server.url) as client:
        stream = client.stream_chat(HELLO)
        stream.cancel()
        events = list(stream)
    check_one_terminal(events)
    assert isinstance(events[-1], End)


def test_two_replies_do_not_share_a_connection(server: FakeOpenAiServer) -> None:
    """Cancelling shuts the socket down, so it must never be the socket of another reply."""
    server.gate = 1
    with Client(server.url) as client:
        first, second = client.stream_chat(HELLO), client.stream_chat(HELLO)
        assert next(first) == next(second) == Text("Hello")
        first.cancel()
        server.release.set()
        assert list(second)[-1] == End("stop")


def test_models_health_about_and_key(server: FakeOpenAiServer) -> None:
    server.api_key = "secret"
    server.loading = [0.25]
    with Client(server.url + "/v1/", "secret") as client:
        loading = client.health()
        assert (loading.state, loading.fraction) == ("loading", 0.25)
        assert client.health().state == "ok"
        assert client.models() == ("fake-model",)
        assert client.context_length("fake-model") == 4096
        assert client.context_length("another") is None
        assert client.about()["name"] == "headrace"
    with Client(server.url) as client, pytest.raises(RemoteError, match="wrong API key"):
        client.models()


def test_request_fields(server: FakeOpenAiServer) -> None:
    with Client(server.url) as client:
        list(client.stream_chat(HELLO, temperature=0.2, seed=None))
        list(client.stream_completion("once upon", max_tokens=4))
    chat, completion = server.bodies
    assert chat["messages"] == HELLO
    assert chat["temperature"] == 0.2
    assert "seed" not in chat, "None means: leave the field out"
    assert chat["stream_options"] == {"include_usage": True}
    assert completion["prompt"] == "once upon"


def test_half_a_surrogate_pair_is_sent_as_a_replacement(server: FakeOpenAiServer) -> None:
    with Client(server.url) as client:
        assert isinstance(list(client.stream_chat([{"role": "user", "content": "a\ud83d"}]))[-1], End)
    assert server.bodies[0]["messages"][0]["content"] == "a?"


def test_loopback_never_goes_through_a_proxy(server: FakeOpenAiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeOpenAiServer() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        assert isinstance(events_of(server)[-1], End)
        assert not proxy.bodies
        # Control: a host that is not loopback does take the proxy, so the variable is honoured at all.
        with Client("http://headrace.invalid") as client:
            list(client.stream_chat(HELLO))
        assert proxy.bodies


@pytest.mark.parametrize("url", ["", "8033", "localhost:8033", "ftp://x", "http://"])
def test_an_address_that_is_none_is_refused_in_one_sentence(url: str) -> None:
    with pytest.raises(ValueError, match=r"looks like http://127\.0\.0\.1:8033"):
        Client(url)


def test_decoder_takes_bytes_cut_anywhere() -> None:
    body = (
        b": keep-alive\r\n\r\n"
        b'data: {"choices":[{"index":0,"delta":{"reasoning_content":"hm"},"finish_reason":null}]}\n\n'
        b'data:{"choices":[{"index":0,"delta":{"content":"gr\xc3\xbc\xc3\x9f"},"finish_reason":null}]}\r\n\r\n'
        b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}\n\ndata: [DONE]\n\ndata: {"x":1}\n\n'
    )
    expected = [Reasoning("hm"), Text("grüß"), End("length")]
    for size in range(1, len(body)):
        decoder = ReplyDecoder()
        events = [e for start in range(0, len(body), size) for e in decoder.feed(body[start : start + size])]
        assert [*events, *decoder.eof()] == expected
