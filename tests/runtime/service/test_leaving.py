"""A client that leaves stops the work, wherever its request is."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from typing import Any

import pytest
from asgi_call import AsgiCall
from fakes import FakeBackend, FakeReply, Script
from service_bench import CHAT, TEXT, USER, LiveServer, application, run

BODY = {"messages": USER, "prompt": ["a", "b"]}
STAGES = {
    "before it is accepted": Script(hold_accept=True),
    "in prefill": Script(hold_at=0),
    "in the reply": Script(hold_at=3),
}


async def _held(backend: FakeBackend, n: int) -> list[FakeReply]:
    while len(backend.replies) < n:
        await backend.submitted.wait()
        backend.submitted.clear()
    for reply in backend.replies:
        await reply.at_hold.wait()
    return backend.replies


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("path", "n"), [(CHAT, 1), (TEXT, 2)], ids=["chat", "two prompts"])
def test_leaving_cancels(stage: str, stream: bool, path: str, n: int) -> None:
    async def body() -> None:
        backend = FakeBackend(STAGES[stage])
        waiting = AsgiCall(application(backend), "POST", path, {**BODY, "stream": stream})
        replies = await _held(backend, n)
        before = len(waiting.sent)
        waiting.leave()
        await waiting.end()
        assert [reply.cancelled.is_set() for reply in replies] == [True] * n
        assert len(waiting.sent) == before
        assert waiting.n_receives_waiting == 0

    run(body)


def test_one_prompt_waits_for_acceptance_of_another_when_the_client_leaves() -> None:
    async def body() -> None:
        scripts = {"a": Script(), "b": Script(hold_accept=True)}
        backend = FakeBackend(script_for=lambda request: scripts[str(request.text)])
        waiting = AsgiCall(application(backend), "POST", TEXT, {**BODY, "stream": True})
        while len(backend.replies) < 2:
            await backend.submitted.wait()
            backend.submitted.clear()
        await backend.replies[1].at_hold.wait()
        waiting.leave()
        await waiting.end()
        assert backend.n_cancelled == 2
        assert waiting.sent == []

    run(body)


def test_there_is_one_receive_during_a_reply() -> None:
    async def body() -> None:
        backend = FakeBackend(Script(hold_at=3))
        waiting = AsgiCall(application(backend), "POST", CHAT, {**BODY, "stream": True})
        await _held(backend, 1)
        while not waiting.n_receives_waiting:
            await asyncio.sleep(0)
        assert waiting.n_receives_waiting == 1
        backend.release.set()
        await waiting.end()
        assert waiting.n_receives_waiting == 0

    run(body)


def test_a_reply_that_ended_is_not_cancelled() -> None:
    async def body() -> None:
        backend = FakeBackend()
        done = AsgiCall(application(backend), "POST", CHAT, {**BODY, "stream": True})
        await done.end()
        done.leave()
        assert backend.n_cancelled == 0

    run(body)


def _request(port: int, path: str, body: Any) -> bytes:
    raw = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {len(raw)}\r\n\r\n"
    return head.encode() + raw


def _close(connection: socket.socket, how: str) -> None:
    if how == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif how == "half":
        connection.shutdown(socket.SHUT_WR)
        return
    connection.close()


@pytest.mark.parametrize("how", ["close", "reset", "half"])
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_leaving_a_real_server(stage: str, stream: bool, how: str) -> None:
    with LiveServer(FakeBackend(STAGES[stage])) as server, server.connect() as connection:
        connection.sendall(_request(server.port, CHAT, {**BODY, "stream": stream}))
        server.wait(_held(server.backend, 1))
        _close(connection, how)
        server.wait(server.backend.replies[0].cancelled.wait())
        assert server.backend.n_cancelled == 1


def test_the_next_request_on_the_server_is_answered() -> None:
    with LiveServer(FakeBackend(STAGES["in the reply"])) as server:
        for _ in range(3):
            connection = server.connect()
            connection.sendall(_request(server.port, CHAT, {**BODY, "stream": True}))
            server.wait(_held(server.backend, len(server.backend.replies) or 1))
            connection.close()
        server.soon(lambda: setattr(server.backend, "script", Script()))
        assert b"Hello there, friend!" in server.exchange(_request(server.port, CHAT, BODY))


def test_control_without_the_watch_leaving_is_not_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: nobody watches the client."""
    from runtime.service.line import Line

    async def blind(self: Line, on_gone: Any) -> None:
        pass

    monkeypatch.setattr(Line, "watch", blind)

    async def body() -> None:
        backend = FakeBackend(Script(hold_at=3))
        waiting = AsgiCall(application(backend), "POST", CHAT, {**BODY, "stream": True})
        await _held(backend, 1)
        waiting.leave()
        assert not backend.replies[0].cancelled.is_set()
        backend.release.set()
        await waiting.end()
        assert backend.n_cancelled == 0

    run(body)
