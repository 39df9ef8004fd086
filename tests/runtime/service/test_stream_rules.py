"""Every stream keeps the rules of the wire, and the reader that checks them notices when one does not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
import strict_chunks
from asgi_call import AsgiCall, call
from fakes import WORDS, FakeBackend, Script
from service_bench import CHAT, TEXT, USER, application, run

from runtime.errors import ContextLengthExceeded, ErrorInfo

TEXT_SAID = "".join(WORDS)
ASK_USAGE = {"stream_options": {"include_usage": True}}


def chat_body(**fields: Any) -> dict[str, Any]:
    return {"messages": USER, "stream": True, **fields}


async def stream(script: Script, path: str, body: dict[str, Any]) -> AsgiCall:
    return await call(application(FakeBackend(script)), "POST", path, body)


CASES = {
    "plain": (Script(), {}),
    "usage": (Script(), ASK_USAGE),
    "three choices": (Script(), {"n": 3, **ASK_USAGE}),
    "stop": (Script(), {"stop": [", f"]}),
    "length": (Script(), {"max_tokens": 2}),
    "nothing": (Script(words=()), {}),
    "logprobs": (Script(), {"logprobs": True, "top_logprobs": 2}),
    "end token with logprobs": (Script(end_token=True), {"logprobs": True}),
    "several words a frame": (Script(per_delta=3), ASK_USAGE),
    "text that needs escapes": (Script(words=("a\n\n", 'data: "x"\r\n', "\u2028é", "😀\x00")), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_chat_streams_keep_the_rules(name: str) -> None:
    script, fields = CASES[name]
    n = fields.get("n", 1)

    async def body() -> None:
        done = await stream(script, CHAT, chat_body(**fields))
        assert done.status == 200
        assert done.headers["content-type"] == "text/event-stream"
        read = strict_chunks.chat(done.body, n=n, usage="stream_options" in fields)
        expected = {"stop": "Hello there", "length": "Hello there"}.get(name, "".join(script.words))
        assert read.texts == dict.fromkeys(range(n), expected)
        assert set(read.reasons.values()) == {"length" if name == "length" else "stop"}

    run(body)


@pytest.mark.parametrize("prompt", ["one", ["one", "two"], [5, 6, 7], [[5], [6, 7]]], ids=str)
@pytest.mark.parametrize("n", [1, 2])
def test_text_streams_keep_the_rules(prompt: Any, n: int) -> None:
    n_prompts = len(prompt) if isinstance(prompt, list) and not isinstance(prompt[0], int) else 1

    async def body() -> None:
        done = await stream(Script(), TEXT, {"prompt": prompt, "n": n, "stream": True, **ASK_USAGE})
        read = strict_chunks.text(done.body, n=n * n_prompts, usage=True)
        assert read.texts == dict.fromkeys(range(n * n_prompts), TEXT_SAID)
        assert read.usage is not None
        assert read.usage["completion_tokens"] == len(WORDS) * n * n_prompts

    run(body)


def test_choices_of_several_prompts_keep_their_places() -> None:
    async def body() -> None:
        backend = FakeBackend(script_for=lambda request: Script(words=(f"<{request.text}>",)))
        done = await call(application(backend), "POST", TEXT, {"prompt": ["a", "b", "c"], "n": 2, "stream": True})
        read = strict_chunks.text(done.body, n=6)
        assert [read.texts[index] for index in range(6)] == ["<a>", "<a>", "<b>", "<b>", "<c>", "<c>"]

    run(body)


def test_logprobs_tell_the_text() -> None:
    async def body() -> None:
        done = await stream(Script(end_token=True), CHAT, chat_body(logprobs=True, top_logprobs=2))
        entries = strict_chunks.chat(done.body).logprobs[0]
        assert "".join(entry["token"] for entry in entries) == TEXT_SAID
        assert len(entries) == len(WORDS) + 1  # the end token has no text of its own
        assert [len(entry["top_logprobs"]) for entry in entries] == [2] * len(entries)
        assert bytes(entries[0]["bytes"]) == b"Hello"

        done = await stream(Script(), TEXT, {"prompt": "x", "stream": True, "logprobs": 1})
        assert [offset for _, _, offset in strict_chunks.text(done.body).logprobs[0]] == [0, 5, 11, 12, 19]

    run(body)


def test_of_a_stop_string_no_logprobs_are_told() -> None:
    async def body() -> None:
        script = Script(words=("yes", "no"), end_token=True)
        done = await stream(script, CHAT, chat_body(logprobs=True, stop="no"))
        assert [entry["token"] for entry in strict_chunks.chat(done.body).logprobs[0]] == ["yes"]

    run(body)


def test_usage_and_timings() -> None:
    async def body() -> None:
        read = strict_chunks.chat((await stream(Script(), CHAT, chat_body(**ASK_USAGE))).body, usage=True)
        assert read.usage == {
            "prompt_tokens": 2,
            "completion_tokens": 5,
            "total_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 0},
        }
        assert read.timings == {
            "prompt_n": 2,
            "prompt_ms": 20.0,
            "prompt_per_second": 100.0,
            "predicted_n": 5,
            "predicted_ms": 100.0,
            "predicted_per_second": 40.0,
            "cache_n": 2,
        }

    run(body)


def test_turns_left_out_are_told() -> None:
    async def body() -> None:
        for script, told in ((Script(), None), (Script(dropped=3), "3")):
            streamed = await stream(script, CHAT, chat_body(**ASK_USAGE))
            strict_chunks.chat(streamed.body, usage=True)
            whole = await stream(script, CHAT, {"messages": USER})
            for done in (streamed, whole):
                assert done.headers.get("x-headrace-dropped-turns") == told
                assert (b'"dropped_turns":3' in done.body) == (told is not None)

    run(body)


def test_an_error_before_the_reply_is_an_http_error() -> None:
    async def body() -> None:
        refused = await stream(Script(refuse=ContextLengthExceeded(9000, 4096).info()), CHAT, chat_body())
        assert refused.status == 400
        error = refused.json()["error"]
        assert error["code"] == "context_length_exceeded"
        assert error["type"] == "exceed_context_size_error"
        assert (error["n_prompt_tokens"], error["n_ctx"]) == (9000, 4096)
        assert "exceeds the available context size" in error["message"]
        assert "maximum context length is 4096 tokens" in error["message"]

    run(body)


def test_headers_of_several_prompts_wait_for_the_last_acceptance() -> None:
    """The second prompt is refused: the first must not have begun to answer."""

    async def body() -> None:
        refuse = ContextLengthExceeded(9000, 4096).info()
        backend = FakeBackend(
            script_for=lambda r: Script(refuse=refuse, hold_accept=True) if r.text == "b" else Script()
        )
        waiting = AsgiCall(application(backend), "POST", TEXT, {"prompt": ["a", "b"], "stream": True})
        await backend.submitted.wait()
        while len(backend.replies) < 2:
            await asyncio.sleep(0)
        await backend.replies[1].at_hold.wait()
        assert waiting.sent == []
        backend.release.set()
        assert (await waiting.end()).status == 400
        assert backend.replies[0].cancelled.is_set()

    run(body)


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_failure_inside_the_reply_ends_it_with_one_error(path: str) -> None:
    async def body() -> None:
        fields = {"messages": USER, "prompt": "x", "stream": True, **ASK_USAGE}
        done = await stream(Script(fail_at=2), path, fields)
        read = (strict_chunks.chat if path == CHAT else strict_chunks.text)(done.body, usage=True)
        assert read.error is not None
        assert read.error["code"] == "engine_crashed"
        assert read.texts == {0: "Hello there"}
        assert b"[DONE]" not in done.body
        assert done.complete

    run(body)


@pytest.mark.parametrize("field", ["skip_choice_done", "skip_terminal"])
def test_a_backend_that_breaks_its_promise_does_not_make_a_reply_look_complete(field: str) -> None:
    async def body() -> None:
        read = strict_chunks.chat((await stream(Script(**{field: True}), CHAT, chat_body())).body)
        assert read.error is not None
        assert read.error["type"] == "engine_error"

    run(body)


def test_headers_and_first_chunk_go_out_before_the_first_token() -> None:
    async def body() -> None:
        backend = FakeBackend(Script(hold_at=0))
        waiting = AsgiCall(application(backend), "POST", CHAT, chat_body())
        await waiting.until(lambda c: len(c.sent) == 2)
        await backend.replies[0].at_hold.wait()
        assert b'"role":"assistant","content":null' in waiting.body
        backend.release.set()
        strict_chunks.chat((await waiting.end()).body)

    run(body)


def test_silence_is_broken_by_comments() -> None:
    async def body() -> None:
        backend = FakeBackend(Script(hold_at=2))
        waiting = AsgiCall(application(backend, comment_s=0.01), "POST", CHAT, chat_body())
        await waiting.until(lambda c: c.body.count(b": keep-alive\n\n") >= 3)
        backend.release.set()
        read = strict_chunks.chat((await waiting.end()).body)
        assert read.n_comments >= 3
        assert read.texts == {0: TEXT_SAID}

    run(body)


def test_no_comment_goes_out_before_the_headers() -> None:
    async def body() -> None:
        backend = FakeBackend(Script(hold_accept=True))
        waiting = AsgiCall(application(backend, comment_s=0.0), "POST", CHAT, chat_body())
        await backend.submitted.wait()
        await backend.replies[0].at_hold.wait()
        for _ in range(20):  # with no patience at all, each turn of the loop is a chance to break the silence
            await asyncio.sleep(0)
        assert waiting.sent == []
        backend.release.set()
        strict_chunks.chat((await waiting.end()).body)

    run(body)


def test_errors_inside_a_stream_name_no_path() -> None:
    async def body() -> None:
        abort = "/build/llama/ggml/src/ggml.c:42: GGML_ASSERT failed; model /somewhere/private/fake-model.gguf"
        script = Script(fail_at=1, error=ErrorInfo("engine_crashed", abort, 500, "engine_error"))
        read = strict_chunks.chat((await stream(script, CHAT, chat_body())).body)
        assert read.error is not None
        assert read.error["message"] == "ggml.c:42: GGML_ASSERT failed; model fake-model.gguf"

    run(body)


# Controls: a reader that lets these pass would prove nothing.

Chunks = list[Any]


def _edit(chunks: Chunks, at: int, **choice: Any) -> Chunks:
    chunks[at]["choices"][0] |= choice
    return chunks


FAULTS: dict[str, Callable[[Chunks], Chunks]] = {
    "W4: first delta": lambda chunks: chunks[1:],
    "W4: role twice": lambda chunks: _edit(chunks, 2, delta={"role": "assistant", "content": "x"}),
    "W5: several kinds": lambda chunks: _edit(chunks, 2, delta={"content": "x", "tool_calls": []}),
    "W5: text together with a finish": lambda chunks: _edit(chunks, 3, finish_reason="stop"),
    "W5: logprobs together with a finish": lambda chunks: _edit(chunks, -2, logprobs={"content": []} | {"x": 1}),
    "W5: content ''": lambda chunks: _edit(chunks, 2, delta={"content": ""}),
    "W6: no finish_reason": lambda chunks: [chunks[2]["choices"][0].pop("finish_reason"), chunks][1],
    "W6: index": lambda chunks: _edit(chunks, 2, index=1),
    "W6: object": lambda chunks: [chunks[2].update(object="chat.completion"), chunks][1],
    "W6: id, created or model changes": lambda chunks: [chunks[2].update(id="other"), chunks][1],
    "W6: one choice in a chunk": lambda chunks: [chunks[2].update(choices=chunks[2]["choices"] * 2), chunks][1],
    "W8: finish_reason ''": lambda chunks: _edit(chunks, -2, finish_reason=""),
    "W8: something after the finish": lambda chunks: [*chunks[:-1], chunks[2], chunks[-1]],
    "W8: finished are []": lambda chunks: [*chunks[:-2], chunks[-1]],
    "W8: the last delta is not empty": lambda chunks: _edit(chunks, -2, delta={"extra": 1}),
    "W9: usage on a chunk": lambda chunks: [chunks[2].update(usage={}), chunks][1],
    "W9: usage must come": lambda chunks: chunks[:-1],
    "W9: usage.total_tokens": lambda chunks: [chunks[-1]["usage"].pop("total_tokens"), chunks][1],
}


def _recorded() -> Chunks:
    recorded: Chunks = []

    async def body() -> None:
        done = await stream(Script(), CHAT, chat_body(**ASK_USAGE))
        datas, _ = strict_chunks.events(done.body)
        recorded.extend(json.loads(data) for data in datas if data != "[DONE]")

    run(body)
    return recorded


def _bytes(chunks: Chunks) -> bytes:
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)


def test_the_recorded_stream_is_good() -> None:
    assert strict_chunks.chat(_bytes(_recorded()) + b"data: [DONE]\n\n", usage=True).texts == {0: TEXT_SAID}


@pytest.mark.parametrize("rule", FAULTS)
def test_control_a_planted_fault_is_named(rule: str) -> None:
    """Planted faults: one chunk of a good stream is damaged in one way."""
    with pytest.raises(strict_chunks.Broken) as noticed:
        strict_chunks.chat(_bytes(FAULTS[rule](_recorded())) + b"data: [DONE]\n\n", usage=True)
    assert str(noticed.value).startswith(rule)


@pytest.mark.parametrize(
    ("raw", "rule"),
    [
        (b"data:{}\n\ndata: [DONE]\n\n", "W3: not `data: `"),
        (b": ping\n\ndata: [DONE]\n\n", "W2"),
        (b"data: {}\ndata: {}\n\ndata: [DONE]\n\n", "W3: an event of several lines"),
        (b"data: [DONE]\n", "W3: the stream ends inside"),
        (b'data: {"error": "gone"}\n\ndata: [DONE]\n\n', "W6"),
    ],
)
def test_control_bad_framing_is_named(raw: bytes, rule: str) -> None:
    """Planted faults: bytes that some client cannot read."""
    with pytest.raises(strict_chunks.Broken) as noticed:
        strict_chunks.chat(raw)
    assert str(noticed.value).startswith(rule)


def test_control_a_stream_without_done_is_noticed() -> None:
    """Planted fault: the last event is missing."""
    with pytest.raises(strict_chunks.Broken, match="W8: the stream ends with"):
        strict_chunks.chat(_bytes(_recorded()), usage=True)
