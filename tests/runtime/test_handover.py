"""How a child gets its end of the channel, both ways."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runtime import handover, job_object

ECHO = """
import subprocess, sys
from runtime.handover import adopt
sock = adopt(sys.argv[1])
grandchild = subprocess.run(
    [sys.executable, "-c", f"import os; os.fstat({sock.fileno()})"], close_fds=False, stderr=subprocess.DEVNULL
)
sock.sendall(b"leaked" if grandchild.returncode == 0 else b"kept")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="descriptors are inherited on POSIX")
def test_a_child_inherits_its_end_and_passes_it_on_to_nobody() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        way = handover.offer(theirs)
        child = subprocess.Popen([sys.executable, "-P", "-c", ECHO, way.argument()], **way.popen_options())
        way.finish(child)
        assert theirs.fileno() == -1, "our copy of the child's end is still open"
        assert ours.recv(100) == b"kept"
        assert ours.recv(100) == b"", "the channel did not end with the child"
        assert child.wait() == 0
        assert not job_object.tie(child)


def _pipes() -> tuple[Any, Any]:
    reading, writing = os.pipe()
    return os.fdopen(reading, "rb"), os.fdopen(writing, "wb")


def test_a_socket_is_shared_with_the_process_that_says_its_id() -> None:
    ours, theirs = socket.socketpair()
    shared_with: list[int] = []

    def share(sock: socket.socket, pid: int) -> bytes:
        shared_with.append(pid)
        return str(os.dup(sock.fileno())).encode()

    way = handover.Shared(theirs, share)
    child_stdin, stdin = _pipes()
    stdout, child_stdout = _pipes()
    parent = threading.Thread(
        target=way.finish, args=(cast("subprocess.Popen[bytes]", SimpleNamespace(stdin=stdin, stdout=stdout)),)
    )
    parent.start()
    adopted = handover.adopt_shared(child_stdin, child_stdout, lambda data: socket.socket(fileno=int(data)))
    parent.join()
    with ours, adopted, child_stdin, child_stdout:
        adopted.sendall(b"here")
        assert ours.recv(10) == b"here"
    assert shared_with == [os.getpid()]
    assert theirs.fileno() == -1


def test_a_child_that_says_something_else_is_refused() -> None:
    ours, theirs = socket.socketpair()
    stdout, child_stdout = _pipes()
    child_stdin, stdin = _pipes()
    with ours, child_stdin, child_stdout:
        child_stdout.write(b"Traceback\n")
        child_stdout.flush()
        with pytest.raises(ConnectionError, match="Traceback"):
            handover.Shared(theirs, lambda sock, pid: b"").finish(
                cast(Any, SimpleNamespace(stdin=stdin, stdout=stdout))
            )


def test_an_unknown_channel_is_refused() -> None:
    with pytest.raises(ValueError, match="no such channel"):
        handover.adopt("pigeon")
