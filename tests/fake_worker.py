"""A worker program without a model: real frames over the real transport, and misbehaviour where a script says so.

fake_worker.py FOLDER[,FLAG…] CHANNEL PARENT_PID. FOLDER counts the lives; a file `hold-load` in it makes every life
stop in the middle of loading. Flags: `loose` leaves out the platform's protections, `stubborn` ignores the end of the
channel.

A script is JSON: in `EngineOptions.chaos` for loading, in `ChatRequest.text` for a request.
{"tokens": 3, "at": "accept" | "prefill" | "decode" | "done" | "load", "do": ACTION, "lives": how many lives do it}
One request is served at a time, in order.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime import platform
from runtime.errors import ModelLoadFailed
from runtime.frames import (
    HEADER,
    Accepted,
    Cancel,
    ChoiceDone,
    Delta,
    Done,
    EngineStats,
    Frame,
    Load,
    LoadFailed,
    Loading,
    Ping,
    Pong,
    Progress,
    Ready,
    Stop,
    Submit,
    Timings,
    ToWorker,
)
from runtime.handover import adopt
from runtime.request import ChatRequest
from runtime.transport import Transport

ALWAYS = 1_000_000


@dataclass(frozen=True, slots=True)
class Script:
    """What one request, or the load, does. Acts only in the first `lives` lives."""

    at: str = ""
    do: str = ""
    tokens: int = 3
    lives: int = ALWAYS

    @classmethod
    def parse(cls, text: str | None) -> Script:
        return cls(**json.loads(text)) if text else cls()


class FakeWorker:
    """The main thread reads frames; the engine thread, which may hang, does everything else."""

    def __init__(self, transport: Transport, folder: Path) -> None:
        self._transport = transport
        self._folder = folder
        self._life = _count_life(folder)
        self._inbox: queue.SimpleQueue[Submit | Ping | Stop] = queue.SimpleQueue()
        self._cancelled: set[str] = set()
        self._changed = threading.Condition()
        self._lingers = False

    def run(self) -> None:
        for frame in self._transport:
            if isinstance(frame, Stop):
                break
            if isinstance(frame, Load):
                threading.Thread(target=self._engine, args=(frame,), daemon=True).start()
            elif isinstance(frame, Cancel):
                with self._changed:
                    self._cancelled.add(frame.id)
                    self._changed.notify_all()
            else:
                with self._changed:
                    self._inbox.put(frame)
                    self._changed.notify_all()
        self._transport.flush(1.0)
        if self._lingers:
            threading.Event().wait()

    def _engine(self, load: Load) -> None:
        script = Script.parse(load.options.chaos)
        self._send(Loading(0.1))
        if (self._folder / "hold-load").exists():
            threading.Event().wait()
        if self._acts(script, "load"):
            self._act(script.do, "load")
        self._send(Loading(1.0))
        self._send(Ready(4096, 4096, 97, load.options.parallel, 1, 1, "fake", f"life {self._life}", "fake"))
        while True:
            frame = self._inbox.get()
            if isinstance(frame, Submit):
                self._serve(frame.request, Script.parse(frame.request.text))
            else:
                self._pong(frame)

    def _serve(self, request: ChatRequest, script: Script) -> None:
        id = request.id
        done = Done(id, 2, 0, script.tokens, Timings(0.0, 1.0, 1.0, 2, script.tokens))
        for stage, frames in (
            ("accept", ()),
            ("prefill", (Accepted(id, 2), Progress(id, 1, 2))),
            ("decode", (Progress(id, 2, 2), Delta(id, 0, "t0 ", 1))),
            ("done", (*(Delta(id, 0, f"t{i} ", 1) for i in range(1, script.tokens)), ChoiceDone(id, 0, "stop"))),
        ):
            for frame in frames:
                self._send(frame)
            if id in self._cancelled:
                self._send(Done(id, 2, 0, 0, done.timings, cancelled=True))
                return
            if self._acts(script, stage) and self._act(script.do, id):
                return
        self._send(done)

    def _acts(self, script: Script, stage: str) -> bool:
        return script.at == stage and self._life <= script.lives

    def _act(self, do: str, id: str) -> bool:
        """Whether the request is over, or will never be."""
        match do:
            case "hold":
                return self._hold(id)
            case "deaf":
                threading.Event().wait()
            case "kill" | "segv" | "stop":
                os.kill(os.getpid(), getattr(signal, {"kill": "SIGKILL", "segv": "SIGSEGV", "stop": "SIGSTOP"}[do]))
                # Another thread may take the signal, some time after this one goes on.
                threading.Event().wait()
            case "abort":
                sys.stderr.write("/home/somebody/build/ggml.c:42: GGML_ASSERT(planted) failed\n")
                sys.stderr.flush()
                os.abort()
            case "exit":
                os._exit(3)
            case "close":
                self._lingers = True
                self._transport.close()
                threading.Event().wait()
            case "garbage":
                self._raw(HEADER.pack(5) + b"nonse")
            case "oversize":
                self._raw(HEADER.pack(2**32 - 1))
            case "foreign":
                self._send(Ping(1))
            case "fail":
                self._send(LoadFailed(ModelLoadFailed("planted: unknown model architecture").info()))
                threading.Event().wait()
            case "lose":
                return True
            case "twice":
                self._send(Done(id, 2, 0, 3, Timings(0.0, 1.0, 1.0, 2, 3)))
            case "late":
                self._send(Done(id, 2, 0, 3, Timings(0.0, 1.0, 1.0, 2, 3)))
                self._send(Delta(id, 0, "late", 1))
                return True
            case _:
                raise ValueError(do)
        return False

    def _hold(self, id: str) -> bool:
        """Answer pings and nothing else until the request is cancelled."""
        waiting: list[Submit | Stop] = []
        while id not in self._cancelled:
            with self._changed:
                while self._inbox.empty() and id not in self._cancelled:
                    self._changed.wait()
            while not self._inbox.empty():
                frame = self._inbox.get()
                if isinstance(frame, Ping):
                    self._pong(frame)
                else:
                    waiting.append(frame)
        self._send(Done(id, 2, 0, 0, Timings(0.0, 1.0, 1.0, 2, 0), cancelled=True))
        for frame in waiting:
            self._inbox.put(frame)
        return True

    def _pong(self, frame: Any) -> None:
        self._send(Pong(frame.nonce, EngineStats(n_steps=self._life)))

    def _send(self, frame: Frame) -> None:
        self._transport.send(frame)

    def _raw(self, data: bytes) -> None:
        self._transport.flush(1.0)
        self._transport._socket.sendall(data)


def _count_life(folder: Path) -> int:
    file = folder / "lives"
    life = int(file.read_text(encoding="ascii")) + 1 if file.exists() else 1
    file.write_text(str(life), encoding="ascii")
    return life


def main() -> None:
    where, channel, parent = sys.argv[1:]
    path, *flags = where.split(",")
    folder = Path(path)
    if "loose" not in flags:
        platform.confine_worker(int(parent))
    transport = Transport(adopt(channel), ToWorker)
    FakeWorker(transport, folder).run()
    if "stubborn" in flags:
        # Tells whoever reads the pipe that this process has outlived its channel.
        (folder / "outlived").write_text(str(os.getpid()), encoding="ascii")
        threading.Event().wait()
    os._exit(0)


if __name__ == "__main__":
    main()
