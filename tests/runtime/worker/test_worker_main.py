"""The worker process around its engine: what it does with frames, with a stop, and with the end of its channel."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from runtime.config import EngineOptions, ServiceOptions
from runtime.errors import ModelLoadFailed
from runtime.frames import Cancel, Frame, Load, LoadFailed, Ping, Pong, Ready, Stop, Submit, ToService, ToWorker, encode
from runtime.request import ChatRequest
from runtime.service.supervisor import Supervisor
from runtime.transport import Splitter, Transport
from runtime.worker import main as module
from runtime.worker.main import EX_OK, EX_SOFTWARE, EX_USAGE, Serving

READY = Ready(1, 1, 1, 1, 1, 1, "fake", "fake", "fake")
LOAD = Load(EngineOptions("no model"))
PATIENCE_S = 20.0


class FakeEngine:
    """Remembers what it was told. `load` and `close` wait for their gates."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.told: list[Any] = []
        self.may_load, self.may_close = threading.Event(), threading.Event()
        self.may_load.set()
        self.may_close.set()
        self._problem = problem

    def make(self, options: EngineOptions, send: Callable[[Frame], None]) -> FakeEngine:
        self.told.append(options)
        self._send = send
        return self

    def load(self) -> Ready:
        self.may_load.wait()
        if self._problem is not None:
            raise self._problem
        return READY

    def submit(self, request: ChatRequest) -> None:
        self.told.append(request)

    def cancel(self, id: str) -> None:
        self.told.append(id)

    def ping(self, nonce: int) -> None:
        self.told.append(nonce)

    def close(self) -> None:
        self.may_close.wait()
        self.told.append("closed")


class Peer:
    """The service's side of a worker that serves on a thread of this process."""

    def __init__(self, engine: FakeEngine) -> None:
        ours, self.socket = socket.socketpair()
        self.socket.settimeout(PATIENCE_S)
        self.codes: list[int] = []
        self.forced = threading.Event()
        self._frames: list[Any] = []
        self._splitter = Splitter(ToService, self._frames.append)
        transport = Transport(ours, ToWorker)
        serving = Serving(transport, engine.make, lambda code: self.forced.set())
        self.thread = threading.Thread(target=lambda: self.codes.append(serving.run()), daemon=True)
        self.thread.start()
        self.transport = transport

    def send(self, *frames: Frame) -> None:
        self.socket.sendall(b"".join(map(encode, frames)))

    def hear(self) -> Any:
        while not self._frames:
            self._splitter.feed(self.socket.recv(100_000))
        return self._frames.pop(0)

    def code(self) -> int:
        self.thread.join(PATIENCE_S)
        return self.codes[0]


@contextmanager
def serving(engine: FakeEngine) -> Iterator[Peer]:
    peer = Peer(engine)
    with peer.socket:
        yield peer
    peer.thread.join(PATIENCE_S)
    peer.transport.close()


def test_frames_become_calls_and_a_stop_closes_the_engine() -> None:
    engine = FakeEngine()
    with serving(engine) as peer:
        peer.send(LOAD)
        assert peer.hear() == READY
        request = ChatRequest("a", text="x")
        peer.send(Submit(request), Cancel("a"), Ping(7), Stop())
        assert peer.code() == EX_OK
    assert engine.told == [LOAD.options, request, "a", 7, "closed"]


def test_the_end_of_the_channel_closes_the_engine() -> None:
    engine = FakeEngine()
    with serving(engine) as peer:
        peer.send(LOAD)
        assert peer.hear() == READY
        peer.socket.shutdown(socket.SHUT_RDWR)
        assert peer.code() == EX_OK
    assert engine.told[-1] == "closed"


@pytest.mark.parametrize("how", ["stop", "end of the channel"])
def test_a_load_does_not_hold_up_the_end(how: str) -> None:
    engine = FakeEngine()
    engine.may_load.clear()
    with serving(engine) as peer:
        peer.send(LOAD)
        if how == "stop":
            peer.send(Stop())
        else:
            peer.socket.shutdown(socket.SHUT_WR)
        assert peer.code() == EX_OK
        engine.may_load.set()
    assert "closed" not in engine.told


def test_a_close_that_takes_too_long_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_S", 0.05)
    engine = FakeEngine()
    engine.may_close.clear()
    with serving(engine) as peer:
        peer.send(LOAD)
        assert peer.hear() == READY
        peer.send(Stop())
        assert peer.forced.wait(PATIENCE_S)
        engine.may_close.set()


def test_a_model_that_cannot_be_loaded_is_told() -> None:
    with serving(FakeEngine(ModelLoadFailed("unknown architecture"))) as peer:
        peer.send(LOAD)
        assert peer.hear() == LoadFailed(ModelLoadFailed("unknown architecture").info())


def test_a_surprise_while_loading_is_told_too(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(FakeEngine(ZeroDivisionError("planted"))) as peer:
        peer.send(LOAD)
        told = peer.hear()
    assert isinstance(told, LoadFailed)
    assert "ZeroDivisionError: planted" in told.error.message
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "sent",
    [encode(Submit(ChatRequest("a"))), encode(LOAD) * 2, encode(Pong(1, None)), b"\xff\xff\xff\xff"],  # type: ignore[arg-type]
    ids=["a request before the model", "two loads", "the other direction", "too long"],
)
def test_a_service_that_breaks_the_rules_ends_the_worker(sent: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    engine = FakeEngine()
    engine.may_load.clear()
    with serving(engine) as peer:
        peer.socket.sendall(sent)
        assert peer.code() == EX_USAGE
        engine.may_load.set()
    assert "the service sent" in capsys.readouterr().err


THREAD_DIES = """
import threading
from runtime.worker import main
threading.excepthook = main._thread_died
threading.Thread(target=lambda: 1 / 0, name="engine").start()
threading.Event().wait()
"""


def test_a_thread_that_dies_takes_the_process_with_it() -> None:
    ended = subprocess.run([sys.executable, "-P", "-c", THREAD_DIES], capture_output=True, text=True, check=False)
    assert ended.returncode == EX_SOFTWARE
    assert ended.stderr.splitlines()[-1] == "error: thread engine ended by ZeroDivisionError: division by zero"


def test_the_real_program_refuses_a_missing_model_through_the_supervisor(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = str(tmp_path / "missing.gguf")
        supervisor = Supervisor(EngineOptions(path), ServiceOptions("missing", path))
        await supervisor.start()
        assert await asyncio.wait_for(supervisor.settled(), PATIENCE_S) == "disabled"
        assert supervisor.problem is not None
        assert "missing.gguf: " in supervisor.problem.message
        assert str(tmp_path) not in supervisor.problem.message
        await supervisor.close()

    asyncio.run(scenario())
