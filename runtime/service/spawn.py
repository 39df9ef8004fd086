"""Starting worker processes and learning how they ended.

All of them are started on one thread that lives as long as the service: Linux ties a child to the thread that started
it. A worker's stderr is kept, its last bytes only; it tells why llama.cpp gave up.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from runtime import handover, job_object

TAIL_BYTES = 8 * 1024
LINE_CHARS = 400
HANDOVER_S = 30.0
# Variables that change what llama.cpp computes must not leak in from the shell that started the service.
_SCRUBBED = ("GGML_", "LLAMA_")
_TELLING = re.compile(r"GGML_ASSERT|abort|error|failed|out of memory|terminate called|what\(\)", re.IGNORECASE)
_FOLDERS = re.compile(r"(?:[A-Za-z]:)?[\\/](?:[^\s\\/:'\"]+[\\/])+")


class WorkerProcess:
    """One child and our end of its channel. `kill` and `wait` may be called from any thread, and again."""

    def __init__(self, process: subprocess.Popen[bytes], end: socket.socket) -> None:
        self._process = process
        self.socket = end
        self.was_killed = False
        self._tail = bytearray()
        self._reader = threading.Thread(target=self._read_stderr, name="worker-stderr", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """For stopped processes too, which no other signal ends."""
        self.was_killed = self.was_killed or self._process.poll() is None
        with contextlib.suppress(OSError):
            self._process.kill()

    def wait(self, grace_s: float) -> int:
        """Its exit code, negative for a signal. Kills it if it has not ended after `grace_s`."""
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        self._reader.join(1.0)
        return self._process.returncode

    def last_words(self) -> str:
        """The two most telling of its last lines on stderr, without folders; "" if there is none."""
        lines = [line.strip() for line in bytes(self._tail).decode("utf-8", "replace").splitlines()]
        lines = [line for line in lines if line]
        telling = [line for line in lines if _TELLING.search(line)][-2:] or lines[-1:]
        return "; ".join(_FOLDERS.sub("", line)[:LINE_CHARS] for line in telling)

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            while data := os.read(stream.fileno(), 4096):
                self._tail += data
                del self._tail[:-TAIL_BYTES]


class Spawner:
    """Starts workers with one command. `close` ends the thread, and with it every worker it started."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command = list(command)
        self._environment = worker_environment(environment)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spawner")

    async def start(self) -> WorkerProcess:
        """Raises OSError if the system will not start another process."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._start)

    async def wait(self, process: WorkerProcess, grace_s: float) -> int:
        return await asyncio.get_running_loop().run_in_executor(self._thread, process.wait, grace_s)

    def close(self) -> None:
        self._thread.shutdown()

    def _start(self) -> WorkerProcess:
        ours, theirs = socket.socketpair()
        way = handover.offer(theirs)
        command = [*self._command, way.argument(), str(os.getpid())]
        options = {"stderr": subprocess.PIPE, "env": self._environment, **way.popen_options(), **_own_group()}
        try:
            child = subprocess.Popen(command, **options)
        except OSError:
            ours.close()
            way.abandon()
            raise
        job_object.tie(child)
        process = WorkerProcess(child, ours)
        timer = threading.Timer(HANDOVER_S, process.kill)
        timer.start()
        try:
            way.finish(child)
        except OSError:
            # It died at once. How is told by its exit code, as soon as the channel is seen to have ended.
            process.kill()
        finally:
            timer.cancel()
        return process


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a worker sees of ours."""
    kept = {name: value for name, value in environment.items() if not name.upper().startswith(_SCRUBBED)}
    # Otherwise every abort starts a debugger on the dying process, which takes long and prints memory.
    return kept | {"GGML_NO_BACKTRACE": "1"}


def _own_group() -> dict[str, Any]:
    """Ctrl-C in the terminal is for the service; it tells the worker itself."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}
