"""Nothing a model writes makes the window load, open or run anything. Red pixels would show that a file was read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_openai_server import FakeOpenAiServer
from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QColor, QImage, QTextDocument
from PySide6.QtWidgets import QLabel, QTextEdit, QWidget
from pytestqt.qtbot import QtBot

from app.ui.markdown import FEATURES, TextOnlyDocument

RED = QColor(255, 0, 0)


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "red.png"
    image = QImage(48, 48, QImage.Format.Format_RGB32)
    image.fill(RED)
    assert image.save(str(path))
    return path


def red_pixels(widget: QWidget) -> int:
    image = widget.grab().toImage()
    return sum(image.pixelColor(x, y) == RED for x in range(0, image.width(), 4) for y in range(0, image.height(), 4))


def hostile(path: Path) -> str:
    return (
        f"![one]({path}) ![two](file://{path}) ![three][ref] **![four]({path})** [![five]({path})](http://127.0.0.1:9/)\n\n"
        f'<img src="{path}"> <a href="file://{path}">x</a>\n\n'
        f"| t |\n|---|\n| ![six]({path}) |\n\n- ![seven]({path})\n\n"
        f"[ref]: {path}\n"
    )


def shown_by(document: QTextDocument, text: str, qtbot: QtBot) -> QTextEdit:
    view = QTextEdit()
    qtbot.addWidget(view)
    document.setParent(view)
    view.setDocument(document)
    document.setMarkdown(text, FEATURES)
    view.resize(600, 400)
    view.show()
    return view


def test_no_image_is_loaded_from_what_a_model_writes(
    opened: Any, server: FakeOpenAiServer, qtbot: QtBot, picture: Path
) -> None:
    server.words = tuple(hostile(picture))
    opened.chat.send("show me")
    qtbot.waitUntil(lambda: not opened.chat.busy, timeout=20_000)
    transcript = opened.window.transcript
    assert transcript.toPlainText().count("[image: ") == 7
    assert "￼" not in transcript.toPlainText(), "an image object is in the document"
    assert red_pixels(opened.window) == 0
    block = transcript.document().begin()
    while block.isValid():
        part = block.begin()
        while not part.atEnd():
            assert not part.fragment().charFormat().isAnchor()
            part += 1
        block = block.next()


def test_control_a_plain_document_would_have_loaded_it(qtbot: QtBot, picture: Path) -> None:
    view = shown_by(QTextDocument(), hostile(picture), qtbot)
    assert red_pixels(view) > 0


def test_the_document_has_nothing_to_give_even_when_an_image_gets_into_it(qtbot: QtBot, picture: Path) -> None:
    view = shown_by(TextOnlyDocument(), hostile(picture), qtbot)
    assert red_pixels(view) == 0


def test_control_a_document_that_answers_with_nothing_lets_qt_read_the_file(qtbot: QtBot, picture: Path) -> None:
    class AnswersWithNothing(QTextDocument):
        def loadResource(self, kind: int, name: QUrl | str) -> None:
            return None

    view = shown_by(AnswersWithNothing(), f"![one]({picture})", qtbot)
    assert red_pixels(view) > 0


def test_an_error_is_never_taken_for_html(opened: Any, picture: Path, qtbot: QtBot) -> None:
    says = f'the server said <img src="{picture}">'
    opened.chat._set_problem(says)
    assert opened.window.problem.text.text() == says
    assert red_pixels(opened.window) == 0
    fault = QLabel(f'<img src="{picture}">')
    qtbot.addWidget(fault)
    assert red_pixels(fault) > 0, "the control shows nothing, so this test proves nothing"


def test_what_the_user_writes_is_shown_as_written(opened: Any, qtbot: QtBot) -> None:
    opened.chat.send("# <b>not</b> **markdown**")
    qtbot.waitUntil(lambda: not opened.chat.busy, timeout=20_000)
    assert "# <b>not</b> **markdown**" in opened.window.transcript.toPlainText()


def test_the_transcript_opens_no_links_and_takes_no_drops(opened: Any) -> None:
    transcript = opened.window.transcript
    assert not transcript.textInteractionFlags() & Qt.TextInteractionFlag.LinksAccessibleByMouse
    assert not transcript.textInteractionFlags() & Qt.TextInteractionFlag.LinksAccessibleByKeyboard
    assert not transcript.acceptDrops()
