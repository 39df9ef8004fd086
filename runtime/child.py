"""A child program that announces itself with one JSON line on its stdout and ends when its stdin closes.

The parent keeps the last lines of the child's stderr: they are the text of the error when it dies.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

from runtime.errors import HeadraceError

STDERR_LINES = 40
LINE_CHARS = 2000


class ChildEnded(HeadraceError):
    """The child is gone, or said nothing in time. `tail` is what it wrote last."""

    code = "child_ended"

    def __init__(self, message: str, tail: str = "") -> None:
        super().__init__(f"{message}\n{tail}" if tail else message)
        self.tail = tail


class Child:
    """Owns one child process. Call from one thread; `end` may be called twice."""

    def __init__(self, argv: Sequence[str], first_line: Mapping[str, Any], *, name: str = "service") -> None:
        """Start it and hand it `first_line` as JSON on stdin, where other users cannot read it."""
        self._name = name
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._tail: deque[str] = deque(maxlen=STDERR_LINES)
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, **_own_group())
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._threads = [
            threading.Thread(target=self._read_stdout, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._read_stderr, args=(self._process.stderr,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        self._write(first_line)

    @property
    def pid(self) -> int:
        return self._process.pid

    def announcement(self, timeout_s: float) -> dict[str, Any]:
        """The child's JSON line. Raises ChildEnded when it dies, or says nothing for `timeout_s`."""
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            message = f"the {self._name} process said nothing for {timeout_s:.0f} s"
            raise ChildEnded(message, self.tail()) from None
        if line is None:
            raise self.ended()
        try:
            said = json.loads(line)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            raise ChildEnded(f"the {self._name} process announced itself with {line[:200]!r}", self.tail())
        return said

    def wait(self, timeout_s: float) -> bool:
        """Whether the child has ended within `timeout_s`."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self._process.returncode is not None

    def ended(self) -> ChildEnded:
        """The error that says how the child ended. Call it when it has, or is about to."""
        self.wait(2.0)
        for thread in self._threads:
            thread.join(1.0)
        return ChildEnded(f"the {self._name} process ended {_how(self._process.returncode)}", self.tail())

    def tail(self) -> str:
        return "\n".join(self._tail)

    def end(self, grace_s: float = 6.0) -> None:
        """Ask it to end by closing its stdin, then with a signal, and kill it when neither helped within `grace_s`."""
        stdin = self._process.stdin
        assert stdin is not None
        with suppress(OSError):
            stdin.close()
        # The signal comes later, not at once: asked twice, a service drops what it is doing.
        if not self.wait(grace_s):
            self._process.terminate()
        if not self.wait(grace_s / 2):
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join(1.0)

    def _write(self, first_line: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        # A child that died at once closes the pipe; how it died is told by announcement().
        with suppress(OSError):
            self._process.stdin.write(json.dumps(first_line).encode() + b"\n")
            self._process.stdin.flush()

    def _read_stdout(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                self._lines.put(line.decode("utf-8", "replace"))
        self._lines.put(None)

    def _read_stderr(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                self._tail.append(line.decode("utf-8", "replace").rstrip()[:LINE_CHARS])


def _own_group() -> dict[str, Any]:
    """Ctrl-C in the terminal stops a reply; it must not reach the service that writes it."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


def _how(returncode: int | None) -> str:
    if returncode is None:
        return "its output without ending"
    if returncode < 0:
        return f"by signal {-returncode}"
    return f"with exit code {returncode}"
