"""How one end of a socket pair gets into a child process: inherited on POSIX, `socket.share` over stdin on Windows.

The parent picks a way with `offer`; the child gets the socket with `adopt`, from the first argument it was given.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import IO, Any, Protocol

INHERITED = "fd:"
SHARED = "stdin"


class Handover(Protocol):
    """The parent's side, for one child."""

    def argument(self) -> str:
        """What the child's command line says."""

    def popen_options(self) -> dict[str, Any]: ...

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        """Give the child its end and let go of it here. Raises OSError when the child is gone."""

    def abandon(self) -> None:
        """No child came of it."""


class Inherited:
    """The child gets the descriptor itself; every other one stays closed to it."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def argument(self) -> str:
        return f"{INHERITED}{self._end.fileno()}"

    def popen_options(self) -> dict[str, Any]:
        null = subprocess.DEVNULL
        return {"pass_fds": (self._end.fileno(),), "stdin": null, "stdout": null}

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        self._end.close()

    def abandon(self) -> None:
        self._end.close()


class Shared:
    """The child says its process id, and gets a description of the socket that only that process can open.

    It says so itself because the process we start may be a launcher with the real interpreter as its child.
    """

    def __init__(self, end: socket.socket, share: Callable[[socket.socket, int], bytes]) -> None:
        self._end = end
        self._share = share

    def argument(self) -> str:
        return SHARED

    def popen_options(self) -> dict[str, Any]:
        return {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        with self._end, process.stdin, process.stdout:
            said = process.stdout.readline().strip()
            if not said.isdigit():
                raise ConnectionError(f"the worker announced itself with {said[:40]!r} instead of its process id")
            process.stdin.write(self._share(self._end, int(said)).hex().encode() + b"\n")
            process.stdin.flush()

    def abandon(self) -> None:
        self._end.close()


def offer(end: socket.socket) -> Handover:
    """The way this system has."""
    if sys.platform == "win32":
        return Shared(end, lambda sock, pid: sock.share(pid))
    return Inherited(end)


def adopt(argument: str) -> socket.socket:
    """In the child: the socket it was given. Nothing this process starts will inherit it."""
    if argument.startswith(INHERITED):
        sock = socket.socket(fileno=int(argument.removeprefix(INHERITED)))
        sock.set_inheritable(False)
        return sock
    if argument != SHARED:
        raise ValueError(f"no such channel: {argument!r}")
    if sys.platform == "win32":
        return adopt_shared(sys.stdin.buffer, sys.stdout.buffer, socket.fromshare)
    raise ValueError("sockets are shared over stdin on Windows only")


def adopt_shared(stdin: IO[bytes], stdout: IO[bytes], open_shared: Callable[[bytes], socket.socket]) -> socket.socket:
    """The child's part of `Shared`."""
    stdout.write(f"{os.getpid()}\n".encode())
    stdout.flush()
    return open_shared(bytes.fromhex(stdin.readline().decode("ascii")))
