"""The conversation as one document: every turn is a frame, and only the last one is drawn anew while it grows."""

from __future__ import annotations

import time

from PySide6.QtCore import Qt, QTimer, Slot
from PySide6.QtGui import (
    QFont,
    QFontMetrics,
    QResizeEvent,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextFormat,
    QTextFrame,
    QTextFrameFormat,
)
from PySide6.QtWidgets import QTextEdit, QWidget

from app.state.chat import ChatState, Turn
from app.ui.markdown import LINE_PERCENT, TextOnlyDocument, fragment
from app.ui.theme import BODY_PX, MEASURE_CHARS, SMALL_PX, STEP, Theme

# Drawing takes cores that the model needs: after a drawing that took t, wait at least this many t.
REST = 10
NOTES = {
    "queued": "waiting for the model …",
    "waiting": "reading …",
    "thinking": "thinking …",
    "stopped": "stopped",
    "incomplete": "incomplete",
}


class Transcript(QTextEdit):
    """Read-only; nothing in it can be clicked, and nothing is ever loaded for it."""

    def __init__(self, chat: ChatState, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._chat = chat
        self._theme = theme
        self._frames: list[QTextFrame] = []
        self._drawn: list[Turn] = []
        self._rest = QTimer(self)
        self._rest.setSingleShot(True)
        self._rest.timeout.connect(self._on_grew)
        self._document = TextOnlyDocument(self)
        self._document.setIndentWidth(STEP * 6)
        self.setDocument(self._document)
        self.setReadOnly(True)
        self.setAcceptRichText(False)
        self.setAcceptDrops(False)
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setTabChangesFocus(True)
        self.setAccessibleName(self.tr("Conversation"))
        chat.turns_changed.connect(self._on_turns)
        chat.turn_grew.connect(self._on_grew)
        theme.changed.connect(self._on_theme)
        self._on_theme()

    def resizeEvent(self, event: QResizeEvent) -> None:
        at_end = self._is_at_end()
        super().resizeEvent(event)
        self._centre()
        if at_end:
            self._to_end()

    @Slot()
    def _on_theme(self) -> None:
        self._frames.clear()
        self._drawn.clear()
        self._document.clear()
        self._centre()
        self._on_turns()

    @Slot()
    def _on_turns(self) -> None:
        """Keep what is still there, draw what is new."""
        turns = self._chat.turns
        same = 0
        while same < min(len(turns), len(self._drawn)) and turns[same] == self._drawn[same]:
            same += 1
        if same < len(self._drawn) or not self._frames:
            same = 0
            self._frames.clear()
            self._drawn.clear()
            self._document.clear()
            self._centre()
        if not turns:
            self._greet()
        for turn in turns[same:]:
            self._frames.append(self._new_frame(turn.role))
            self._drawn.append(turn)
            self._draw(self._frames[-1], turn)
        self._to_end()

    @Slot()
    def _on_grew(self) -> None:
        if not self._frames or not self._chat.turns:
            return
        turn, drawn = self._chat.turns[-1], self._drawn[-1]
        # More text may wait; how a reply stands may not.
        if turn == drawn or (self._rest.isActive() and turn.state == drawn.state):
            return
        at_end = self._is_at_end()
        start = time.monotonic()
        self._draw(self._frames[-1], turn)
        self._drawn[-1] = turn
        if at_end:
            self._to_end()
        self._rest.start(int((time.monotonic() - start) * 1000 * REST))

    def _new_frame(self, role: str) -> QTextFrame:
        cursor = QTextCursor(self._document)
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.setBlockFormat(_gap())
        format = QTextFrameFormat()
        format.setPadding(STEP * 3)
        if role == "user":
            format.setBackground(self._theme.color("raised"))
        frame = cursor.insertFrame(format)
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.setBlockFormat(_gap())
        return frame

    def _greet(self) -> None:
        format = _block()
        format.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        cursor = QTextCursor(self._document)
        cursor.setBlockFormat(format)
        muted = QTextCharFormat()
        muted.setForeground(self._theme.color("muted"))
        cursor.insertText(self.tr("Ask something. What you write stays on this computer."), muted)

    def _draw(self, frame: QTextFrame, turn: Turn) -> None:
        cursor = frame.firstCursorPosition()
        cursor.beginEditBlock()
        cursor.setPosition(frame.lastPosition(), QTextCursor.MoveMode.KeepAnchor)
        cursor.removeSelectedText()
        cursor.setBlockFormat(_block(bottom=STEP))
        cursor.insertText(self._label(turn), self._small(QFont.Weight.DemiBold))
        if turn.text and turn.role == "user":
            cursor.insertBlock(_block(), QTextCharFormat())
            cursor.insertText(turn.text, QTextCharFormat())
        elif turn.text:
            cursor.insertFragment(fragment(turn.text, self._theme.color("code")))
        if note := NOTES.get(turn.state):
            cursor = frame.lastCursorPosition()
            cursor.insertBlock(_block(), self._small())
            cursor.insertText(self.tr(note), self._small())
        cursor.endEditBlock()

    def _label(self, turn: Turn) -> str:
        return self.tr("You") if turn.role == "user" else self._chat.model.name or self.tr("Model")

    def _small(self, weight: QFont.Weight = QFont.Weight.Normal) -> QTextCharFormat:
        format = QTextCharFormat()
        format.setProperty(QTextFormat.Property.FontPixelSize, SMALL_PX)
        format.setFontWeight(weight)
        format.setForeground(self._theme.color("muted"))
        return format

    def _centre(self) -> None:
        """A line holds at most 76 characters; what is left of the width goes to both sides."""
        font = QFont(self.font())
        font.setPixelSize(BODY_PX)
        measure = QFontMetrics(font).averageCharWidth() * MEASURE_CHARS
        side = max(STEP * 4, (self.viewport().width() - measure) // 2)
        # The greeting of an empty chat stands a third down; a conversation begins at the top.
        top = STEP if self._chat.turns else self.viewport().height() // 3
        root = self._document.rootFrame()
        format = root.frameFormat()
        if (format.leftMargin(), format.topMargin()) != (side, top):
            format.setLeftMargin(side)
            format.setRightMargin(side)
            format.setTopMargin(top)
            root.setFrameFormat(format)

    def _is_at_end(self) -> bool:
        bar = self.verticalScrollBar()
        return bar.value() >= bar.maximum() - STEP * 4

    def _to_end(self) -> None:
        self.verticalScrollBar().setValue(self.verticalScrollBar().maximum())


def _block(bottom: int = 0) -> QTextBlockFormat:
    format = QTextBlockFormat()
    format.setLineHeight(LINE_PERCENT, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
    format.setBottomMargin(bottom)
    return format


def _gap() -> QTextBlockFormat:
    """The empty line that Qt keeps around a frame, made a narrow one."""
    format = QTextBlockFormat()
    format.setLineHeight(STEP * 3, QTextBlockFormat.LineHeightTypes.FixedHeight.value)
    return format
