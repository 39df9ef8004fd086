"""The conversation in the window: what is typed, what comes back, and every way a reply can end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from fake_openai_server import FakeOpenAiServer
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton, QPlainTextEdit, QTextEdit
from pytestqt.qtbot import QtBot

from app.backend import Connect
from runtime.cli.connect import Connection, Progress
from runtime.cli.problems import Problem

WAIT_MS = 20_000


def type_and_send(qtbot: QtBot, opened: Any, text: str) -> None:
    editor = opened.window.composer.editor
    qtbot.keyClicks(editor, text)
    qtbot.keyClick(editor, Qt.Key.Key_Return)


def wait_idle(qtbot: QtBot, opened: Any) -> None:
    qtbot.waitUntil(lambda: not opened.chat.busy, timeout=WAIT_MS)


def shown(opened: Any) -> str:
    return str(opened.window.transcript.toPlainText())


def test_text_appears_in_order_with_the_figures_of_the_server(
    opened: Any, server: FakeOpenAiServer, qtbot: QtBot
) -> None:
    server.words = tuple(f"w{n} " for n in range(200))
    type_and_send(qtbot, opened, "hi")
    wait_idle(qtbot, opened)
    assert [turn.text for turn in opened.chat.turns] == ["hi", "".join(server.words)]
    assert "".join(server.words).strip() in shown(opened)
    gauges = opened.window.gauges
    assert gauges.speed.text() == "50.0 tok/s"
    assert gauges.prompt.text() == "12 tokens"
    assert gauges.cached.text() == "5 tokens"
    assert gauges.first_token.text().endswith(" s")
    assert gauges.model_where.text() == "A fake service\nCPU, 2 threads"


def test_text_is_drawn_far_less_often_than_it_comes(opened: Any, server: FakeOpenAiServer, qtbot: QtBot) -> None:
    server.words = tuple(f"{n} " for n in range(3000))
    drawn: list[None] = []
    opened.chat.turn_grew.connect(lambda: drawn.append(None))
    type_and_send(qtbot, opened, "hi")
    wait_idle(qtbot, opened)
    assert 0 < len(drawn) < len(server.words) / 5


def test_enter_sends_and_shift_enter_begins_a_line(opened: Any, server: FakeOpenAiServer, qtbot: QtBot) -> None:
    editor = opened.window.composer.editor
    qtbot.keyClick(editor, Qt.Key.Key_Return)
    assert not opened.chat.busy, "an empty message was sent"
    qtbot.keyClicks(editor, "one")
    qtbot.keyClick(editor, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    assert not opened.chat.busy
    type_and_send(qtbot, opened, "two")
    wait_idle(qtbot, opened)
    assert server.bodies[0]["messages"] == [{"role": "user", "content": "one\ntwo"}]
    assert editor.toPlainText() == ""


def test_escape_stops_and_keeps_the_partial_reply_marked(opened: Any, server: FakeOpenAiServer, qtbot: QtBot) -> None:
    server.gate = 2
    type_and_send(qtbot, opened, "hi")
    qtbot.waitUntil(lambda: "Hello there" in shown(opened), timeout=WAIT_MS)
    assert opened.window.composer.stop_button.isVisible()
    qtbot.keyClick(opened.window.composer.editor, Qt.Key.Key_Escape)
    assert opened.chat.turns[-1].state == "stopped"
    assert server.disconnected.wait(10), "the server still writes"
    qtbot.waitUntil(lambda: shown(opened).endswith("Hello there\nstopped\n"), timeout=WAIT_MS)
    server.gate = None
    type_and_send(qtbot, opened, "go on")
    wait_idle(qtbot, opened)
    assert [message["content"] for message in server.bodies[1]["messages"]] == ["hi", "Hello there", "go on"]


def test_the_stop_button_does_what_escape_does(opened: Any, server: FakeOpenAiServer, qtbot: QtBot) -> None:
    server.gate = 1
    type_and_send(qtbot, opened, "hi")
    assert server.at_gate.wait(10)
    qtbot.mouseClick(opened.window.composer.stop_button, Qt.MouseButton.LeftButton)
    assert not opened.chat.busy
    assert server.disconnected.wait(10)


def test_an_error_shows_its_sentence_and_retry_works(opened: Any, server: FakeOpenAiServer, qtbot: QtBot) -> None:
    server.mode = "error_midway"
    type_and_send(qtbot, opened, "hi")
    wait_idle(qtbot, opened)
    problem = opened.window.problem
    assert problem.isVisible()
    assert problem.text.text() == "The model process stopped."
    assert "incomplete" in shown(opened)
    server.mode = "complete"
    qtbot.mouseClick(problem.retry, Qt.MouseButton.LeftButton)
    wait_idle(qtbot, opened)
    assert not problem.isVisible()
    assert [(turn.text, turn.state) for turn in opened.chat.turns] == [("hi", "done"), ("Hello there!", "done")]
    assert server.bodies[0]["messages"] == server.bodies[1]["messages"]


def test_a_model_that_cannot_start_says_so_and_retry_starts_it(
    open_window: Any, connect_to: Callable[..., Connect], server: FakeOpenAiServer, qtbot: QtBot
) -> None:
    starts: list[int] = []

    def flaky(progress: Progress) -> AbstractContextManager[Connection]:
        starts.append(1)
        if len(starts) == 1:
            raise Problem("the starter model is not on this computer yet\nand more")
        return connect_to(server)(progress)

    opened = open_window(flaky)
    qtbot.waitUntil(opened.window.problem.isVisible, timeout=WAIT_MS)
    assert opened.window.problem.text.text() == "The starter model is not on this computer yet."
    qtbot.mouseClick(opened.window.problem.retry, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: opened.chat.model.state == "ready", timeout=WAIT_MS)
    assert not opened.window.problem.isVisible()


def test_a_question_asked_while_the_model_loads_is_answered_then(
    open_window: Any, connect_to: Callable[..., Connect], server: FakeOpenAiServer, qtbot: QtBot
) -> None:
    @contextmanager
    def slow(progress: Progress) -> Iterator[Connection]:
        assert server.release.wait(20)
        with connect_to(server)(progress) as connection:
            yield connection

    opened = open_window(slow)
    type_and_send(qtbot, opened, "hi")
    assert "waiting for the model" in shown(opened)
    server.release.set()
    wait_idle(qtbot, opened)
    assert opened.chat.turns[-1].text == "Hello there!"


def test_a_service_that_went_away_is_started_anew_by_retry(
    open_window: Any, connect_to: Callable[..., Connect], qtbot: QtBot
) -> None:
    with FakeOpenAiServer() as first, FakeOpenAiServer(words=("back",)) as second:
        servers = [first, second]
        opened = open_window(lambda progress: connect_to(servers.pop(0))(progress))
        qtbot.waitUntil(lambda: opened.chat.model.state == "ready", timeout=WAIT_MS)
        first._http.shutdown()
        first._http.server_close()
        type_and_send(qtbot, opened, "hi")
        qtbot.waitUntil(lambda: opened.chat.model.state == "failed", timeout=WAIT_MS)
        qtbot.mouseClick(opened.window.problem.retry, Qt.MouseButton.LeftButton)
        wait_idle(qtbot, opened)
        assert opened.chat.turns[-1].text == "back"


def test_a_new_chat_forgets_and_late_words_stay_away(opened: Any, server: FakeOpenAiServer, qtbot: QtBot) -> None:
    server.gate = 1
    type_and_send(qtbot, opened, "secret")
    assert server.at_gate.wait(10)
    qtbot.keyClick(opened.window.composer.editor, Qt.Key.Key_N, Qt.KeyboardModifier.ControlModifier)
    assert opened.chat.turns == []
    server.gate = None
    type_and_send(qtbot, opened, "fresh")
    wait_idle(qtbot, opened)
    assert "secret" not in shown(opened)
    assert server.bodies[1]["messages"] == [{"role": "user", "content": "fresh"}]
    assert opened.chat.turns[-1].text == "Hello there!"


def test_an_unanswered_question_is_not_sent_again_with_the_next(
    opened: Any, server: FakeOpenAiServer, qtbot: QtBot
) -> None:
    server.mode = "refuse"
    type_and_send(qtbot, opened, "lost")
    wait_idle(qtbot, opened)
    server.mode = "complete"
    type_and_send(qtbot, opened, "next")
    wait_idle(qtbot, opened)
    assert [message["content"] for message in server.bodies[1]["messages"]] == ["next"]


def test_every_control_has_a_name_for_screen_readers(opened: Any) -> None:
    controls = [
        widget
        for kind in (QAbstractButton, QPlainTextEdit, QTextEdit)
        for widget in opened.window.findChildren(kind)
        if not widget.objectName().startswith("qt_")
    ]
    assert len(controls) >= 6
    assert [widget for widget in controls if not widget.accessibleName()] == []
