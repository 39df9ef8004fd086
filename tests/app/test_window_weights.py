"""The window with the real engine: a private service, the starter model, words on the screen, nothing left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from pytestqt.qtbot import QtBot

from runtime.cli.connect import Connection, Progress
from runtime.config import EngineOptions
from runtime.private import PrivateService


@pytest.mark.weights
def test_a_real_model_answers_and_is_gone_after_the_window(open_window: Any, starter_model: Path, qtbot: QtBot) -> None:
    pids: list[int] = []

    @contextmanager
    def connect(progress: Progress) -> Iterator[Connection]:
        service = PrivateService(
            EngineOptions(str(starter_model), ctx=512, threads=1),
            model="starter",
            on_progress=lambda part: progress("starter", part),
        )
        with closing(service):
            service.start()
            pids.append(service.pid)
            yield Connection(service.client, "starter", "a private service", str(service.client.about()["plan"]))

    opened = open_window(connect)
    opened.chat.send("Say hello.")
    qtbot.waitUntil(lambda: len(opened.chat.turns[-1].text) > 10, timeout=120_000)
    word = opened.chat.turns[-1].text.split()[0].strip("*#`")
    # The transcript is painted a moment after the state changed.
    qtbot.waitUntil(lambda: word in opened.window.transcript.toPlainText(), timeout=30_000)
    assert opened.window.gauges.model_where.text().startswith("A private service\nCPU")
    opened.window.close()
    assert opened.chat.close()
    qtbot.waitUntil(lambda: not psutil.pid_exists(pids[0]), timeout=30_000)
