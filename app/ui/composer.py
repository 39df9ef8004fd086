"""Where a message is written: Enter sends, Shift+Enter begins a line, Esc stops the reply."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, Signal, Slot
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPlainTextEdit, QPushButton, QWidget

from app.state.chat import ChatState
from app.ui.theme import STEP

MAX_LINES = 8


class Editor(QPlainTextEdit):
    """Plain text, as tall as it needs to be."""

    sent = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setPlaceholderText(self.tr("Message …"))
        self.setAccessibleName(self.tr("Message"))
        self.setAccessibleDescription(self.tr("Enter sends, Shift+Enter begins a new line, Escape stops the reply"))
        self.setTabChangesFocus(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.document().setDocumentMargin(2)
        self.document().documentLayout().documentSizeChanged.connect(self._on_size)
        self._on_size()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if enter and not event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            self.sent.emit()
        else:
            super().keyPressEvent(event)

    @Slot()
    def _on_size(self) -> None:
        lines = min(MAX_LINES, max(1, int(self.document().size().height())))
        self.setFixedHeight(lines * self.fontMetrics().lineSpacing() + 2 * int(self.document().documentMargin()) + 4)
        all_shown = lines < MAX_LINES
        policy = Qt.ScrollBarPolicy.ScrollBarAlwaysOff if all_shown else Qt.ScrollBarPolicy.ScrollBarAsNeeded
        self.setVerticalScrollBarPolicy(policy)


class Composer(QFrame):
    """The editor with Send, or with Stop while a reply is being written. A draft may be written meanwhile."""

    def __init__(self, chat: ChatState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("composer")
        self._chat = chat
        self.editor = Editor(self)
        self.send_button = _button(self.tr("Send"), self.tr("Send the message (Enter)"), "send", self)
        self.stop_button = _button(self.tr("Stop"), self.tr("Stop the reply (Esc)"), "stop", self)
        row = QHBoxLayout(self)
        row.setContentsMargins(STEP * 3, STEP * 2, STEP * 2, STEP * 2)
        row.setSpacing(STEP * 2)
        row.addWidget(self.editor, 1)
        row.addWidget(self.send_button, 0, Qt.AlignmentFlag.AlignBottom)
        row.addWidget(self.stop_button, 0, Qt.AlignmentFlag.AlignBottom)
        self.editor.sent.connect(self._on_send)
        self.editor.textChanged.connect(self._on_text)
        self.editor.installEventFilter(self)
        self.send_button.clicked.connect(self._on_send)
        self.stop_button.clicked.connect(chat.stop)
        chat.busy_changed.connect(self._on_busy)
        self.setFocusProxy(self.editor)
        self._on_busy(chat.busy)
        self._on_text()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.FocusIn, QEvent.Type.FocusOut):
            self.setProperty("focused", event.type() == QEvent.Type.FocusIn)
            self.style().unpolish(self)
            self.style().polish(self)
        return super().eventFilter(watched, event)

    @Slot()
    def _on_send(self) -> None:
        if self._chat.send(self.editor.toPlainText()):
            self.editor.clear()

    @Slot()
    def _on_text(self) -> None:
        self.send_button.setEnabled(bool(self.editor.toPlainText().strip()))

    @Slot(bool)
    def _on_busy(self, busy: bool) -> None:
        had_focus = self.stop_button.hasFocus() or self.send_button.hasFocus()
        self.send_button.setVisible(not busy)
        self.stop_button.setVisible(busy)
        if had_focus:
            self.editor.setFocus()


def _button(text: str, hint: str, name: str, parent: QWidget) -> QPushButton:
    button = QPushButton(text, parent)
    button.setObjectName(name)
    button.setAccessibleName(text)
    button.setToolTip(hint)
    button.setAutoDefault(False)
    return button
