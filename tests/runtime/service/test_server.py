"""Ports, signals and endings: sentences instead of tracebacks, and streams that end in order."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import strict_chunks
from fakes import FakeBackend, Script
from service_bench import CHAT, USER, LiveServer, read_response, status_of

from runtime import commands
from runtime.config import EngineOptions, ServiceOptions
from runtime.service.doors import CannotServe
from runtime.service.listen import listen, port_of
from runtime.service.main import serve

PROGRAM = Path(__file__).parents[2] / "fake_service_program.py"
ROOT = PROGRAM.parents[1]
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="signals as POSIX has them")


@contextmanager
def listening(host: str, port: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(listener) for listener in listen(host, port)]


def test_port_0_is_any_free_port_on_both_loopbacks() -> None:
    with listening("127.0.0.1", 0) as listeners:
        port = port_of(listeners[0])
        assert port > 0
        assert {port_of(listener) for listener in listeners} == {port}
        for listener in listeners:
            with socket.create_connection(listener.getsockname()[:2], timeout=5):
                pass


def test_a_port_in_use_is_one_sentence_that_names_its_owner() -> None:
    with listening("127.0.0.1", 0) as listeners:
        port = port_of(listeners[0])
        with pytest.raises(CannotServe) as refused:
            listen("127.0.0.1", port)
        assert f"port {port} is taken by" in refused.value.message
        assert f"process {os.getpid()}" in refused.value.message
        assert "--port" in refused.value.message
        assert "\n" not in refused.value.message


@pytest.mark.parametrize("host", ["203.0.113.7", "no such host", "x" * 300, "2001:db8::7"])
def test_an_address_of_another_computer(host: str) -> None:
    with pytest.raises(CannotServe, match="--host"):
        listen(host, 0)


def test_all_addresses() -> None:
    with (
        listening("0.0.0.0", 0) as listeners,
        socket.create_connection(("127.0.0.1", port_of(listeners[0])), timeout=5),
    ):
        assert len(listeners) == 1


def open_stream(port: int) -> socket.socket:
    """A connection with a reply in the middle."""
    body = json.dumps({"messages": USER, "stream": True}).encode()
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


def read_until(connection: socket.socket, what: bytes) -> bytes:
    data = b""
    while what not in data:
        piece = connection.recv(65536)
        assert piece, data
        data += piece
    return data


def read_all(connection: socket.socket) -> bytes:
    data = b""
    while piece := connection.recv(65536):
        data += piece
    return data


def unchunked(data: bytes) -> bytes:
    body = data.partition(b"\r\n\r\n")[2]
    parts = []
    while body:
        size, _, body = body.partition(b"\r\n")
        parts.append(body[: int(size, 16)])
        body = body[int(size, 16) + 2 :]
    return b"".join(parts)


def test_stopping_ends_streams_with_their_terminal_event() -> None:
    with LiveServer(FakeBackend(Script(hold_at=2))) as server, open_stream(server.port) as stream:
        data = read_until(stream, b" there")
        server.stop()
        data += read_all(stream)
        read = strict_chunks.chat(unchunked(data))
        assert read.error is not None
        assert read.error["code"] == "shutting_down"
        assert read.texts == {0: "Hello there"}
    assert server.backend.n_closed == 1


def test_stopping_closes_idle_connections_and_takes_no_new_ones() -> None:
    with LiveServer() as server, server.connect() as idle:
        idle.sendall(f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        assert status_of(read_response(idle)) == 200
        server.stop()
        assert idle.recv(100) == b""
    with pytest.raises(OSError, match="refused"):
        server.connect()


@contextmanager
def program(*argv: str, stdin: bytes = b"") -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env, cwd=ROOT) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(stdin)
            process.stdin.flush()
            yield process
        finally:
            process.kill()


def announcement(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr.read().decode() if process.stderr else ""
    return dict(json.loads(line))


@POSIX
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_ends_streams_and_the_program_with_exit_code_0(name: str) -> None:
    with program(sys.executable, str(PROGRAM)) as process:
        port = announcement(process)["port"]
        with open_stream(port) as stream:
            data = read_until(stream, b" there")
            process.send_signal(getattr(signal, name))
            data += read_all(stream)
        assert process.wait(20) == 0
        error = strict_chunks.chat(unchunked(data)).error
        assert error is not None
        assert error["code"] == "shutting_down"
        assert process.stderr is not None
        assert process.stderr.read() == b""


@POSIX
def test_a_second_signal_ends_the_program_at_once() -> None:
    with program(sys.executable, str(PROGRAM), "stuck") as process:
        port = announcement(process)["port"]
        with open_stream(port) as stream:
            read_until(stream, b" there")
            process.send_signal(signal.SIGTERM)
            # Once it takes no new connections the first signal has been heard.
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=5).close()
                except OSError:
                    break
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 128 + signal.SIGTERM


def child_options(**service: Any) -> bytes:
    options = {"service": {"model": "m", "model_path": "/no/such.gguf", "port": 0, **service}}
    return json.dumps({**options, "engine": {"model_path": "/no/such.gguf"}}).encode() + b"\n"


def test_the_child_says_why_there_is_no_model_and_ends_with_its_parent() -> None:
    with program(*commands.argv("service", "--announce"), stdin=child_options()) as process:
        said = announcement(process)
        assert said["pid"] == process.pid
        message = _unwell(said["port"])
        assert "such.gguf" in message
        assert "/no/" not in message
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert b"such.gguf" in process.stderr.read()


def _unwell(port: int) -> str:
    """What /health says once it is settled that there is no model."""
    while True:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            response = read_response(connection)
        error = json.loads(response.partition(b"\r\n\r\n")[2])["error"]
        if "Loading" not in error["message"]:
            return str(error["message"])


@pytest.mark.parametrize(
    ("stdin", "code", "said"),
    [
        (b"", 2, "first line of stdin"),
        (b"not json\n", 2, "first line of stdin"),
        (b'{"service": {}}\n', 2, "model"),
        (b'{"service": {"model": "m", "model_path": "x", "portt": 1}}\n', 2, "engine"),
        (child_options(host="0.0.0.0"), 1, "--api-key"),
    ],
    ids=["nothing", "not JSON", "no model", "no engine", "open host"],
)
def test_a_child_with_bad_options_says_so_in_a_sentence(stdin: bytes, code: int, said: str) -> None:
    with program(*commands.argv("service", "--announce"), stdin=stdin) as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.stderr is not None
        complaint = process.stderr.read().decode()
        assert process.wait(20) == code
        assert said in complaint
        assert complaint.startswith("headrace: ")
        assert "Traceback" not in complaint
        assert complaint.count("\n") == 1


def test_serving_a_model_that_is_not_there_ends_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    path = "/no/such/model.gguf"
    assert serve(ServiceOptions("m", path, port=0), EngineOptions(path), say=lambda _: None) == 1
    assert "model.gguf" in capsys.readouterr().err


def test_serving_on_a_port_in_use_ends_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with listening("127.0.0.1", 0) as listeners:
        port = port_of(listeners[0])
        assert serve(ServiceOptions("m", "x.gguf", port=port), EngineOptions("x.gguf"), say=lambda _: None) == 1
        complaint = capsys.readouterr().err
        assert f"port {port} is taken" in complaint
        assert complaint.count("\n") == 1


@pytest.mark.weights
def test_serving_the_starter_model_tells_the_plan(starter_model: Path) -> None:
    options = child_options(model_path=str(starter_model)).replace(b"/no/such.gguf", str(starter_model).encode())
    with program(sys.executable, "-c", SERVE, stdin=options) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().decode() for _ in range(2)]
        assert "http://127.0.0.1:" in lines[0]
        assert "context" in lines[1]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


# `headrace serve` without its command line: in the process's own main thread, so that signals reach it.
SERVE = """
import msgspec, sys
from runtime.service.main import Options, serve
options = msgspec.json.decode(sys.stdin.readline(), type=Options)
sys.exit(serve(options.service, options.engine))
"""
