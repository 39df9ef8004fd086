"""The window: arranges the conversation, the composer and the gauges, and owns the keys that work everywhere in it."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal, Slot
from PySide6.QtGui import QCloseEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QMainWindow, QPushButton, QVBoxLayout, QWidget

from app.state.chat import ChatState
from app.state.memory import MemoryState
from app.ui.composer import Composer
from app.ui.gauges import Gauges
from app.ui.theme import STEP, Theme
from app.ui.transcript import Transcript

SIZE = QSize(1120, 720)
SMALLEST = QSize(720, 440)


class Problem(QFrame):
    """One sentence of what happened, and a way to try again; hidden while all is well."""

    retried = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("problem")
        self.text = QLabel()
        self.text.setTextFormat(Qt.TextFormat.PlainText)
        self.text.setWordWrap(True)
        self.text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.text.setAccessibleName(self.tr("Problem"))
        self.retry = QPushButton(self.tr("Retry"))
        self.retry.setAccessibleName(self.tr("Retry"))
        self.retry.clicked.connect(self.retried)
        row = QHBoxLayout(self)
        row.setContentsMargins(STEP * 3, STEP * 2, STEP * 2, STEP * 2)
        row.addWidget(self.text, 1)
        row.addWidget(self.retry, 0, Qt.AlignmentFlag.AlignTop)
        self.hide()

    @Slot(str)
    def show_problem(self, sentence: str) -> None:
        self.text.setText(sentence)
        self.setVisible(bool(sentence))


class MainWindow(QMainWindow):
    """Closing it hides it at once; `closed` tells whoever owns the state to end it."""

    closed = Signal()

    def __init__(self, chat: ChatState, memory: MemoryState, theme: Theme) -> None:
        super().__init__()
        self.setWindowTitle("Headrace")
        self.resize(SIZE)
        self.setMinimumSize(SMALLEST)
        self.transcript = Transcript(chat, theme)
        self.composer = Composer(chat)
        self.gauges = Gauges(chat, memory, theme)
        self.problem = Problem()
        self.new_button = QPushButton(self.tr("New chat"))
        self.new_button.setAccessibleName(self.tr("New chat"))
        self.new_button.setToolTip(self.tr("Forget this conversation and begin another ({0})").format(_new_keys()))
        self.setCentralWidget(self._arranged())
        self.new_button.clicked.connect(self._on_new)
        self.problem.retried.connect(chat.retry)
        chat.problem_changed.connect(self.problem.show_problem)
        self._chat = chat
        QShortcut(QKeySequence(QKeySequence.StandardKey.New), self, self._on_new)
        QShortcut(QKeySequence(Qt.Key.Key_Escape), self, chat.stop)
        QShortcut(QKeySequence(QKeySequence.StandardKey.Quit), self, self.close)
        self.composer.setFocus()

    def closeEvent(self, event: QCloseEvent) -> None:
        self.hide()
        event.accept()
        self.closed.emit()

    @Slot()
    def _on_new(self) -> None:
        self._chat.new_chat()
        self.composer.setFocus()

    def _arranged(self) -> QWidget:
        whole = QWidget()
        whole.setObjectName("window")
        row = QHBoxLayout(whole)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addWidget(self._middle(), 1)
        row.addWidget(self.gauges)
        return whole

    def _middle(self) -> QWidget:
        middle = QWidget()
        middle.setObjectName("middle")
        column = QVBoxLayout(middle)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self._header())
        column.addWidget(self.transcript, 1)
        below = QVBoxLayout()
        below.setContentsMargins(STEP * 4, STEP * 2, STEP * 4, STEP * 4)
        below.setSpacing(STEP * 2)
        below.addWidget(self.problem)
        below.addWidget(self.composer)
        column.addLayout(below)
        return middle

    def _header(self) -> QWidget:
        header = QWidget()
        header.setObjectName("header")
        header.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        row = QHBoxLayout(header)
        row.setContentsMargins(STEP * 4, STEP * 2, STEP * 4, STEP * 2)
        row.addWidget(self.new_button)
        row.addStretch(1)
        return header


def _new_keys() -> str:
    return QKeySequence(QKeySequence.StandardKey.New).toString(QKeySequence.SequenceFormat.NativeText)
