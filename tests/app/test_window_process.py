"""The window as a program: it is refused in one sentence where it cannot be, and it leaves nothing behind."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from fake_openai_server import FakeOpenAiServer
from pytestqt.qtbot import QtBot

from app import display
from runtime.commands import argv

TESTS = Path(__file__).parent.parent
CLOSED_WHILE_STREAMING = """
import sys
sys.path.insert(0, {tests!r})
from contextlib import contextmanager
from fake_openai_server import FakeOpenAiServer
from PySide6.QtCore import QTimer
from app import main
from app.ui import main_window
from runtime.cli.connect import Connection
from runtime.client import Client
from runtime.config import EngineOptions
from runtime.private import PrivateService

@contextmanager
def connect(progress):
    command = [sys.executable, {child!r}, "serve"]
    with PrivateService(EngineOptions("x"), model="m", command=command) as private, Client(server.url) as client:
        print(private.pid, flush=True)
        yield Connection(client, "m", "a private service")

class Impatient(main_window.MainWindow):
    # Asks as soon as it is shown, and is closed as soon as the first word is there.
    def __init__(self, *args):
        super().__init__(*args)
        self._chat.turn_grew.connect(self._close_at_the_first_word)
        QTimer.singleShot(0, lambda: self._chat.send("hi"))

    def _close_at_the_first_word(self):
        if self._chat.turns[-1].text and self.isVisible():
            print("busy" if self._chat.busy else "idle", flush=True)
            self.close()

main_window.MainWindow = Impatient
with FakeOpenAiServer(gate=2) as server:
    code = main.run(connect)
sys.exit(code)
"""


def program(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    bare = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")}
    return subprocess.run(
        argv("window", *arguments), env=bare | environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_close_while_streaming_ends_the_thread(opened: Any, server: FakeOpenAiServer, qtbot: QtBot) -> None:
    server.gate = 1
    opened.chat.send("hi")
    assert server.at_gate.wait(10)
    with qtbot.waitSignal(opened.window.closed):
        opened.window.close()
    assert opened.chat.close()
    assert server.disconnected.wait(10)


def test_closed_while_streaming_the_program_exits_0_and_its_service_is_gone() -> None:
    source = CLOSED_WHILE_STREAMING.format(tests=str(TESTS), child=str(TESTS / "fake_service_child.py"))
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=30, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    pid, at_close = ran.stdout.split()
    assert at_close == "busy", "the reply was over already"
    assert not psutil.pid_exists(int(pid))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere there always is a display")
def test_without_a_display_one_sentence_and_exit_code_3() -> None:
    ran = program()
    assert ran.returncode == display.UNUSABLE
    assert ran.stderr.count("\n") == 1
    assert "headrace chat" in ran.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="X11")
@pytest.mark.parametrize("arguments", [(), ("--check",)], ids=["window", "check"])
def test_a_display_that_does_not_answer_is_a_sentence_not_an_abort(arguments: tuple[str, ...]) -> None:
    ran = program(*arguments, DISPLAY="127.0.0.1:9999")
    assert (ran.returncode, ran.stdout) == (display.UNUSABLE, "")
    assert ran.stderr.count("\n") == 1


def test_the_check_passes_where_qt_can_draw() -> None:
    ran = program("--check", QT_QPA_PLATFORM="offscreen")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_check_fails_where_qt_would_abort() -> None:
    assert program("--check", QT_QPA_PLATFORM="no-such-platform").returncode != 0
    ran = program(QT_QPA_PLATFORM="no-such-platform")
    assert ran.returncode == display.UNUSABLE
    assert ran.stderr.count("\n") == 1


def test_a_missing_pyside_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "PySide6-Essentials" in display.missing({"DISPLAY": ":0"})


def test_the_installed_pyside_gives_no_none_away() -> None:
    assert display.keeps_none(), "this PySide6 crashes below Python 3.12 after some thousand calls: pin another"


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="None is immortal there")
def test_control_a_call_that_gives_none_away_is_noticed() -> None:
    assert not display.keeps_none(lambda: ctypes.pythonapi.Py_DecRef(ctypes.py_object(None)), calls=100)
    for _ in range(100):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(None))
