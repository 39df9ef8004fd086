"""Limits of connections and of requests as they come in, on a real server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from typing import Any

import pytest
from fakes import FakeBackend, Script
from service_bench import CHAT, USER, LiveServer, read_response, run, status_of

from models import limits
from runtime.service import protocol

ASK = json.dumps({"messages": USER}).encode()


def head(port: int, *lines: str, method: str = "POST", path: str = CHAT) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", *lines, "", ""]).encode()


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (*pieces, b""))


@pytest.fixture(params=["httptools", "h11"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both of uvicorn's parsers: the second is what a machine without httptools has."""
    if request.param == "h11":
        from uvicorn.protocols.http.h11_impl import H11Protocol

        monkeypatch.setattr(protocol, "_fastest", lambda: H11Protocol)
    return str(request.param)


def is_error(response: bytes, status: int, code: str) -> bool:
    body = response.partition(b"\r\n\r\n")[2]
    return status_of(response) == status and json.loads(body)["error"]["code"] == code


@pytest.mark.usefixtures("parser")
def test_bodies_with_a_length_and_in_chunks() -> None:
    with LiveServer(body_bytes=1000) as server:
        port = server.port
        whole = server.exchange(head(port, f"Content-Length: {len(ASK)}"), ASK)
        assert status_of(whole) == 200
        pieces = server.exchange(head(port, "Transfer-Encoding: chunked"), chunked(ASK[:5], ASK[5:]))
        assert status_of(pieces) == 200
        declared = server.exchange(head(port, "Content-Length: 1001"))
        assert is_error(declared, 413, "body_too_large")
        grown = server.exchange(head(port, "Transfer-Encoding: chunked"), chunked(*[b"x" * 100] * 11))
        assert is_error(grown, 413, "body_too_large")
        assert len(server.backend.requests) == 2


def test_a_client_that_sends_all_of_a_large_body_still_reads_the_answer() -> None:
    with LiveServer(body_bytes=1000) as server:
        big = b"x" * 5_000_000
        assert status_of(server.exchange(head(server.port, f"Content-Length: {len(big)}"), big)) == 413


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    "lines",
    [
        [f"X-{at}: y" for at in range(limits.HEADER_COUNT)],
        ["X: " + "y" * limits.HEADER_BYTES],
        ["X: " + "y" * 300_000],
        [f"X-{at}: y" for at in range(10_000)],
    ],
    ids=["count", "bytes", "many bytes", "many lines"],
)
def test_headers_over_the_limits(lines: list[str]) -> None:
    with LiveServer() as server:
        assert is_error(
            server.exchange(head(server.port, *lines, method="GET", path="/health")), 431, "headers_too_large"
        )


@pytest.mark.usefixtures("parser")
def test_headers_that_never_end_are_cut_off() -> None:
    with LiveServer() as server, server.connect() as connection:
        connection.sendall(f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nX: ".encode())
        assert _send_until_cut_off(connection, 50_000_000) < 50_000_000


def _send_until_cut_off(connection: socket.socket, n_bytes: int) -> int:
    sent = 0
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        while sent < n_bytes:
            connection.sendall(b"y" * 10_000)
            sent += 10_000
    return sent


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET\r\n\r\n",
        b"BAD METHOD / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n folded: b\r\nX : y\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
    ],
    ids=lambda raw: repr(raw[:30]),
)
def test_what_is_not_http(raw: bytes) -> None:
    with LiveServer() as server:
        assert is_error(server.exchange(raw), 400, "invalid_request")


def test_a_length_beside_chunks_is_refused() -> None:
    """Two servers that disagree about where a body ends can be made to read one as the next request."""
    with LiveServer() as server:
        lines = ("Content-Length: 4", "Transfer-Encoding: chunked")
        assert status_of(server.exchange(head(server.port, *lines), chunked(ASK))) == 400


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("sent", ["nothing", "half a head", "half a body", "half a second head"])
def test_a_request_that_does_not_come_is_not_waited_for(sent: str) -> None:
    with LiveServer(receive_s=0.2) as server, server.connect() as connection:
        if sent == "half a head":
            connection.sendall(head(server.port)[:30])
        elif sent == "half a body":
            connection.sendall(head(server.port, "Content-Length: 100") + b"x")
        elif sent == "half a second head":
            connection.sendall(head(server.port, method="GET", path="/health"))
            assert status_of(read_response(connection)) == 200
            connection.sendall(b"GET /hea")
        assert connection.recv(1000) == b""
        assert server.backend.requests == []


@pytest.mark.usefixtures("parser")
def test_the_deadline_is_for_the_request_not_for_the_reply() -> None:
    with LiveServer(FakeBackend(Script(hold_at=1)), receive_s=0.1) as server, server.connect() as connection:
        connection.sendall(head(server.port, f"Content-Length: {len(ASK)}") + ASK)
        server.wait(_hold_past_the_deadline(server.backend))
        assert status_of(read_response(connection)) == 200


async def _hold_past_the_deadline(backend: FakeBackend) -> None:
    await backend.submitted.wait()
    await backend.replies[0].at_hold.wait()
    passed = asyncio.Event()
    asyncio.get_running_loop().call_later(0.3, passed.set)  # three deadlines later
    await passed.wait()
    backend.release.set()


def test_an_idle_connection_is_closed_after_a_while() -> None:
    with LiveServer(keep_alive_s=1) as server, server.connect() as connection:
        connection.sendall(head(server.port, method="GET", path="/health"))
        assert status_of(read_response(connection)) == 200
        assert connection.recv(1000) == b""


def test_idle_connections_give_way_to_new_ones() -> None:
    with LiveServer(connections=4) as server:
        idle = [server.connect() for _ in range(12)]
        assert status_of(server.exchange(head(server.port, method="GET", path="/health"))) == 200
        for connection in idle:
            connection.close()


def test_when_all_connections_are_being_answered_the_next_is_refused() -> None:
    with LiveServer(FakeBackend(Script(hold_at=1)), connections=3) as server:
        busy = [server.connect() for _ in range(3)]
        for connection in busy:
            connection.sendall(head(server.port, f"Content-Length: {len(ASK)}") + ASK)
        server.wait(_all_held(server.backend, 3))
        assert is_error(server.exchange(), 429, "rate_limit_exceeded")
        server.soon(server.backend.release.set)
        assert [status_of(read_response(connection)) for connection in busy] == [200] * 3
        for connection in busy:
            connection.close()
        assert status_of(server.exchange(head(server.port, method="GET", path="/health"))) == 200


async def _all_held(backend: FakeBackend, n: int) -> None:
    while len(backend.replies) < n:
        await backend.submitted.wait()
        backend.submitted.clear()
    for reply in backend.replies:
        await reply.at_hold.wait()


def test_a_reader_that_reads_nothing_is_let_go() -> None:
    """Its send buffer fills, nothing is read for a while, and its request is cancelled."""
    words = ("x" * 100_000,) * 400
    with LiveServer(FakeBackend(Script(words=words)), keep_alive_s=0.3) as server, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        body = json.dumps({"messages": USER, "stream": True}).encode()
        connection.sendall(head(server.port, f"Content-Length: {len(body)}") + body)
        server.wait(_cancelled(server.backend))
        assert status_of(server.exchange(head(server.port, method="GET", path="/health"))) == 200


async def _cancelled(backend: FakeBackend) -> None:
    await backend.submitted.wait()
    await backend.replies[0].cancelled.wait()


def test_a_websocket_is_answered_like_any_request() -> None:
    with LiveServer() as server:
        lines = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x", "Sec-WebSocket-Version: 13")
        response = server.exchange(head(server.port, *lines, method="GET", path="/v1/responses"))
        assert status_of(response) == 404


def test_head_has_no_body() -> None:
    with LiveServer() as server, server.connect() as connection:
        for path in ("/", "/health", "/v1/models", "/metrics"):
            connection.sendall(head(server.port, method="HEAD", path=path))
            response = connection.recv(65536)
            assert status_of(response) == 200
            assert response.endswith(b"\r\n\r\n")


def test_answers_do_not_name_the_server() -> None:
    with LiveServer() as server:
        response = server.exchange(head(server.port, method="GET", path="/nope")).lower()
        assert b"\r\nserver:" not in response
        assert b"uvicorn" not in response


def test_control_without_our_protocol_slow_requests_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: the deadline never ends a request."""
    monkeypatch.setattr(protocol._Bounded, "_too_slow", lambda self: None)
    with LiveServer(receive_s=0.05) as server, server.connect() as connection:
        connection.settimeout(0.5)
        with pytest.raises(TimeoutError):
            connection.recv(1000)


def test_waiting_helpers_really_wait() -> None:
    """Control of this file's own helper: it returns only when the reply was cancelled."""

    async def body() -> None:
        backend = FakeBackend(Script(hold_at=0))
        waiting: Any = asyncio.ensure_future(_cancelled(backend))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()

    run(body)
