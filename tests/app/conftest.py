"""What every test of the window shares: Qt without a screen, a fake service to talk to, and no thread left behind."""

from __future__ import annotations

import os

os.environ["QT_QPA_PLATFORM"] = "offscreen"

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from fake_openai_server import FakeOpenAiServer
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.backend import Connect
from app.state.chat import ChatState
from app.state.memory import MemoryState
from app.ui.main_window import MainWindow
from app.ui.theme import Theme
from runtime.cli.connect import Connection, Progress
from runtime.client import Client


@dataclass(frozen=True)
class Opened:
    """A window that is shown and talks to `server`."""

    window: MainWindow
    chat: ChatState
    theme: Theme


def to(server: FakeOpenAiServer) -> Connect:
    """A start that takes no time: the service is there already."""

    @contextmanager
    def connect(progress: Progress) -> Iterator[Connection]:
        progress("fake-model", 0.5)
        with Client(server.url) as client:
            yield Connection(client, "fake-model", "a fake service", "fake: CPU, 2 threads, context 4096")

    return connect


@pytest.fixture
def connect_to() -> Callable[[FakeOpenAiServer], Connect]:
    return to


@pytest.fixture
def server() -> Iterator[FakeOpenAiServer]:
    with FakeOpenAiServer() as running:
        yield running


@pytest.fixture
def open_window(qapp: QApplication, qtbot: QtBot) -> Iterator[Callable[[Connect], Opened]]:
    """Opens windows, and at the end shows that their threads are gone."""
    opened: list[Opened] = []

    def open_(connect: Connect) -> Opened:
        chat = ChatState(connect)
        theme = Theme(qapp)
        window = MainWindow(chat, MemoryState(), theme)
        qtbot.addWidget(window)
        window.show()
        chat.start()
        opened.append(Opened(window, chat, theme))
        return opened[-1]

    yield open_
    for one in opened:
        assert one.chat.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "backend"]


@pytest.fixture
def opened(open_window: Callable[[Connect], Opened], server: FakeOpenAiServer, qtbot: QtBot) -> Opened:
    one = open_window(to(server))
    qtbot.waitUntil(lambda: one.chat.model.state == "ready", timeout=20_000)
    return one
