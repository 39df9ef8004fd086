"""The private service: it is there when the block begins and gone when it ends, however it behaves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from runtime.child import Child, ChildEnded
from runtime.config import EngineOptions
from runtime.private import PrivateService
from runtime.stream import End

FAKE = Path(__file__).parent.parent / "fake_service_child.py"
OPTIONS = EngineOptions("/nowhere/model.gguf", ctx=512)


def service(mode: str, **options: float) -> PrivateService:
    return PrivateService(OPTIONS, model="model", command=[sys.executable, str(FAKE), mode], **options)  # type: ignore[arg-type]


def test_starts_reports_progress_answers_and_ends() -> None:
    heard: list[float | None] = []
    private = service("serve")
    private._on_progress = heard.append
    with private as running:
        pid = running.pid
        assert running.client.models() == ("fake-model",)
        assert list(running.client.stream_chat([{"role": "user", "content": "hi"}]))[-1] == End("stop")
        assert running.failure() is None
    assert heard == [0.25, 0.5, 1.0]
    assert not psutil.pid_exists(pid)
    private.close()


def test_the_key_never_shows_in_the_command_line() -> None:
    with service("serve") as running:
        arguments = psutil.Process(running.pid).cmdline()
        assert running.api_key not in " ".join(arguments)


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("die", r"exit code 3\nggml abort: planted"),
        ("die_while_loading", r"by signal 9\nout of memory: planted"),
        ("garbage", "announced itself with 'hello"),
    ],
)
def test_a_child_that_fails_says_why_and_leaves_nothing(mode: str, says: str) -> None:
    private = service(mode)
    with pytest.raises(ChildEnded, match=says):
        private.start()
    assert not psutil.pid_exists(private.pid)


def test_a_child_that_says_nothing_is_given_up() -> None:
    private = service("mute", start_s=0.2)
    with pytest.raises(ChildEnded, match="said nothing"):
        private.start()
    assert not psutil.pid_exists(private.pid)


def test_a_child_that_ignores_the_end_is_killed() -> None:
    child = Child([sys.executable, str(FAKE), "stubborn"], {"service": {"api_key": None}})
    child.announcement(30)
    child.end(grace_s=0.2)
    assert not psutil.pid_exists(child.pid)


@pytest.mark.skipif(sys.platform == "win32", reason="process groups are POSIX")
def test_ctrl_c_in_the_terminal_does_not_reach_the_child() -> None:
    """The child leads its own session, so the terminal's signals go to its parent only."""
    import os

    with service("serve") as running:
        assert os.getsid(running.pid) == running.pid != os.getsid(0)


def test_the_child_ends_when_its_parent_is_killed() -> None:
    """Nobody closes the pipe politely here: the parent dies by SIGKILL and the kernel closes it."""
    source = (
        "import sys, threading\n"
        "from runtime.private import PrivateService\n"
        "from runtime.config import EngineOptions\n"
        f"s = PrivateService(EngineOptions('x'), model='m', command=[sys.executable, {str(FAKE)!r}, 'serve']).start()\n"
        "print(s.pid, flush=True)\n"
        "threading.Event().wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        child.wait(10)
