"""Replies in one piece, the model list, the pages about the service, and errors."""

from __future__ import annotations

from typing import Any

import pytest
from asgi_call import AsgiCall, call
from fakes import WORDS, FakeBackend, Script
from service_bench import CHAT, OPTIONS, TEXT, USER, application, run

from runtime.config import ServiceOptions
from runtime.errors import (
    ContextLengthExceeded,
    EngineCrashed,
    ErrorInfo,
    HeadraceError,
    ModelDisabled,
    Overloaded,
    ShuttingDown,
)
from runtime.service.names import alias

SAID = "".join(WORDS)


async def ask(backend: FakeBackend, path: str = CHAT, **fields: Any) -> AsgiCall:
    return await call(application(backend), "POST", path, {"messages": USER, "prompt": "hi there", **fields})


def test_a_chat_reply() -> None:
    async def body() -> None:
        done = await ask(FakeBackend())
        assert done.status == 200
        assert done.headers["content-type"] == "application/json"
        reply = done.json()
        assert reply["id"].startswith("chatcmpl-")
        assert reply["object"] == "chat.completion"
        assert reply["model"] == "fake-model"
        assert reply["system_fingerprint"].startswith("fp_")
        assert isinstance(reply["created"], int)
        message = {"role": "assistant", "content": SAID, "refusal": None}
        assert reply["choices"] == [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}]
        assert reply["usage"]["total_tokens"] == 7
        assert reply["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}
        assert reply["timings"]["predicted_per_second"] == 40.0

    run(body)


def test_a_text_reply() -> None:
    async def body() -> None:
        reply = (await ask(FakeBackend(), TEXT, logprobs=1)).json()
        assert reply["id"].startswith("cmpl-")
        assert reply["object"] == "text_completion"
        choice = reply["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == (SAID, "stop")
        assert choice["logprobs"]["tokens"] == list(WORDS)
        assert choice["logprobs"]["text_offset"] == [0, 5, 11, 12, 19]
        assert choice["logprobs"]["top_logprobs"][0] == {"Hello": -0.25}

    run(body)


def test_echo_puts_the_prompt_in_front() -> None:
    async def body() -> None:
        reply = (await ask(FakeBackend(), TEXT, echo=True)).json()
        assert reply["choices"][0]["text"] == "hi there" + SAID
        assert reply["usage"]["completion_tokens"] == len(WORDS)

    run(body)


def test_prompts_and_choices_come_in_order() -> None:
    async def body() -> None:
        backend = FakeBackend(script_for=lambda request: Script(words=(f"<{request.text}>",)))
        reply = (await ask(backend, TEXT, prompt=["a", "b"], n=2)).json()
        assert [choice["text"] for choice in reply["choices"]] == ["<a>", "<a>", "<b>", "<b>"]
        assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2, 3]
        assert reply["usage"]["prompt_tokens"] == 2

    run(body)


def test_logprobs_of_a_whole_chat() -> None:
    async def body() -> None:
        done = await ask(FakeBackend(Script(end_token=True)), logprobs=True, top_logprobs=1)
        content = done.json()["choices"][0]["logprobs"]["content"]
        assert "".join(entry["token"] for entry in content) == SAID
        assert content[0]["top_logprobs"] == [{"token": "Hello", "logprob": -0.25, "bytes": list(b"Hello")}]

    run(body)


ERRORS: list[tuple[ErrorInfo, int]] = [
    (ContextLengthExceeded(9000, 4096).info(), 400),
    (EngineCrashed("the model process ended by signal 11").info(), 500),
    (ShuttingDown("closing").info(), 503),
    (ErrorInfo("odd", "a status no error can have", 200), 500),
]


@pytest.mark.parametrize("at", [None, 0, 3])
@pytest.mark.parametrize(("info", "status"), ERRORS, ids=lambda value: getattr(value, "code", value))
def test_a_failed_reply_is_an_http_error_wherever_it_failed(info: ErrorInfo, status: int, at: int | None) -> None:
    async def body() -> None:
        script = Script(refuse=info) if at is None else Script(fail_at=at, error=info)
        done = await ask(FakeBackend(script))
        assert done.status == status
        error = done.json()["error"]
        assert (error["code"], error["type"], error["param"]) == (info.code, info.type, info.param)
        assert error["message"] == info.message
        assert info.numbers.items() <= error.items()

    run(body)


@pytest.mark.parametrize(
    ("error", "status"), [(Overloaded("256 requests wait", retry_after_s=3), 429), (ModelDisabled("crashed"), 503)]
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_refused_request(error: HeadraceError, status: int, stream: bool) -> None:
    async def body() -> None:
        backend = FakeBackend()
        backend.refusal = error
        done = await ask(backend, stream=stream)
        assert done.status == status
        assert done.json()["error"]["message"] == error.message
        assert done.headers.get("retry-after") == ("3" if status == 429 else None)

    run(body)


def test_when_one_of_several_prompts_is_refused_the_others_end() -> None:
    async def body() -> None:
        backend = FakeBackend(Script(hold_at=0))
        backend.refusal, backend.refuse_after = Overloaded("full"), 2
        assert (await ask(backend, TEXT, prompt=["a", "b", "c"])).status == 429
        assert backend.n_cancelled == len(backend.replies) == 2

    run(body)


def test_when_one_of_several_prompts_fails_the_others_end() -> None:
    async def body() -> None:
        failing = Script(fail_at=0)
        scripts = {"a": Script(hold_at=1), "b": failing, "c": Script(hold_at=1)}
        backend = FakeBackend(script_for=lambda request: scripts[str(request.text)])
        assert (await ask(backend, TEXT, prompt=["a", "b", "c"])).status == 500
        assert [reply.cancelled.is_set() for reply in backend.replies] == [True, False, True]

    run(body)


def test_a_closed_service_takes_nothing_new() -> None:
    async def body() -> None:
        backend = FakeBackend()
        backend.state = "closed"
        done = await ask(backend)
        assert (done.status, done.json()["error"]["code"]) == (503, "shutting_down")
        assert backend.requests == []

    run(body)


class Clumsy(FakeBackend):
    """Planted fault: it raises what nobody expects."""

    async def submit(self, request: Any) -> Any:
        raise KeyError("/home/someone/secret")


def test_our_own_bugs_are_a_500_without_details() -> None:
    async def body() -> None:
        started = AsgiCall(application(Clumsy()), "POST", CHAT, {"messages": USER})
        with pytest.raises(KeyError):  # for the log of the server; the client gets the answer first
            await started.end()
        assert started.status == 500
        assert started.json()["error"]["code"] == "internal_error"
        assert b"secret" not in started.body
        assert b"Traceback" not in started.body

    run(body)


@pytest.mark.parametrize("path", ["/v1/models", "/models", "/v1/models/", "/models/"])
def test_the_model_list(path: str) -> None:
    async def body() -> None:
        listed = (await call(application(FakeBackend()), "GET", path)).json()
        assert listed["object"] == "list"
        entry = listed["data"][0]
        assert (entry["id"], entry["object"]) == ("fake-model", "model")
        assert isinstance(entry["created"], int)
        assert isinstance(entry["owned_by"], str)
        assert entry["context_length"] == 4096
        assert listed["models"][0]["model"] == "fake-model"

    run(body)


def test_one_model() -> None:
    async def body() -> None:
        app = application(FakeBackend(), model="org/model")
        assert (await call(app, "GET", "/v1/models/org/model")).json()["id"] == "org/model"
        missing = await call(app, "GET", "/v1/models/../../etc/passwd")
        assert (missing.status, missing.json()["error"]["code"]) == (404, "not_found")

    run(body)


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        ("smol", "smol"),
        ("org/model", "org/model"),
        ("/home/ann/models/x.Q4_1.gguf", "x.Q4_1"),
        ("./x.gguf", "x"),
        ("models/x.gguf", "x"),
        (r"C:\models\x.gguf", "x"),
        ("~/x", "x"),
    ],
)
def test_a_model_named_by_its_file_shows_no_folder(named: str, shown: str) -> None:
    assert alias(ServiceOptions(named, "/x")) == shown


@pytest.mark.parametrize("model", ["", "gpt-4", "../../etc/passwd", "x" * 256])
def test_any_model_name_is_answered_by_the_one_there_is(model: str) -> None:
    async def body() -> None:
        assert (await ask(FakeBackend(), model=model)).json()["model"] == "fake-model"

    run(body)


@pytest.mark.parametrize("path", ["/health", "/v1/health", "/health/"])
@pytest.mark.parametrize(
    ("state", "status", "said"),
    [
        ("ready", 200, "ok"),
        ("loading", 503, "Loading model"),
        ("restarting", 503, "Loading model"),
        ("disabled", 503, "disabled"),
        ("closed", 503, "shutting down"),
    ],
)
def test_health(path: str, state: str, status: int, said: str) -> None:
    async def body() -> None:
        backend = FakeBackend()
        backend.state, backend.loading = state, 0.25
        well = await call(application(backend, api_key="k"), "GET", path)
        assert well.status == status
        answer = well.json()
        if status == 200:
            assert answer == {"status": said}
        else:
            assert (answer["error"]["type"], answer["error"]["code"]) == ("unavailable_error", 503)
            assert said in answer["error"]["message"]
            assert answer["error"].get("loaded") == (0.25 if "Loading" in said else None)

    run(body)


def test_health_says_why_the_model_is_disabled() -> None:
    async def body() -> None:
        backend = FakeBackend()
        backend.state = "disabled"
        backend.problem = ErrorInfo("model_load_failed", f"{OPTIONS.model_path}: not a GGUF file", 500)
        answer = (await call(application(backend), "GET", "/health")).json()
        assert answer["error"]["message"] == "fake-model.gguf: not a GGUF file"

    run(body)


def test_the_first_page_says_who_we_are() -> None:
    async def body() -> None:
        about = (await call(application(FakeBackend()), "GET", "/")).json()
        assert (about["name"], about["model"], about["state"]) == ("headrace", "fake-model", "ready")
        assert "http://127.0.0.1:8033/v1" in about["connect"]

    run(body)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nope", 404),
        ("GET", "/v2/models", 404),
        ("GET", "/v1/v1/models", 404),
        ("POST", "/v1/embeddings", 404),
        ("GET", "/docs", 404),
        ("GET", "/openapi.json", 404),
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/health", 405),
    ],
)
def test_unknown_routes_and_methods_are_json_errors(method: str, path: str, status: int) -> None:
    async def body() -> None:
        refused = await call(application(FakeBackend()), method, path)
        assert refused.status == status
        assert refused.json()["error"]["message"]
        assert ("allow" in refused.headers) == (status == 405)
        assert "location" not in refused.headers

    run(body)


@pytest.mark.parametrize("path", [CHAT, TEXT, "/chat/completions", "/completions", CHAT + "/", "/completions/"])
def test_every_way_to_write_a_route(path: str) -> None:
    async def body() -> None:
        assert (await ask(FakeBackend(), path)).status == 200

    run(body)
