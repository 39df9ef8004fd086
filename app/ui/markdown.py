"""A model's markdown as a document that holds text only: no image, no link, no HTML, nothing that would be loaded.

Qt would read a file for `![](/etc/…)` and look for one at `\\\\server\\share`; so images become words before anything
lays the document out, and a document of ours has nothing to give when it is asked for a resource.
"""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import QObject, QUrl
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontDatabase,
    QImage,
    QTextBlock,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextDocumentFragment,
    QTextFormat,
)

from app.ui.theme import BODY_PX, CODE_PX, STEP

LINE_PERCENT = 140
HEADING_PX = {1: 19, 2: 17, 3: 15}
FEATURES = QTextDocument.MarkdownFeature.MarkdownDialectGitHub | QTextDocument.MarkdownFeature.MarkdownNoHTML


class TextOnlyDocument(QTextDocument):
    """Gives an empty picture for every resource. Returning nothing would make Qt try the name as a file."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.setUndoRedoEnabled(False)

    def loadResource(self, kind: int, name: QUrl | str) -> QImage:
        return QImage(1, 1, QImage.Format.Format_ARGB32)


def fragment(text: str, code_background: QColor) -> QTextDocumentFragment:
    """The markdown, ready to be inserted at the end of the line above it.

    Its first line is empty, because the first line of what is inserted always takes on the look of where it lands.
    """
    document = TextOnlyDocument()
    document.setMarkdown(text, FEATURES)
    for start, length, format in reversed(list(_foreign(document))):
        _replace(document, start, length, format)
    for block in _blocks(document):
        _dress(block, code_background)
    QTextCursor(document).insertBlock()
    return QTextDocumentFragment(document)


def _blocks(document: QTextDocument) -> Iterator[QTextBlock]:
    block = document.begin()
    while block.isValid():
        yield block
        block = block.next()


def _foreign(document: QTextDocument) -> Iterator[tuple[int, int, QTextCharFormat]]:
    """Where images and links are, in order."""
    for block in _blocks(document):
        part = block.begin()
        while not part.atEnd():
            piece = part.fragment()
            format = piece.charFormat()
            if format.isImageFormat() or format.isAnchor():
                yield piece.position(), piece.length(), format
            part += 1


def _replace(document: QTextDocument, start: int, length: int, format: QTextCharFormat) -> None:
    cursor = QTextCursor(document)
    cursor.setPosition(start)
    cursor.setPosition(start + length, QTextCursor.MoveMode.KeepAnchor)
    said = cursor.selectedText()
    if format.isImageFormat():
        said = f"[image: {format.property(QTextFormat.Property.ImageAltText) or 'no description'}]" * length
    elif format.anchorHref() not in (said, f"mailto:{said}"):
        said = f"{said} ({format.anchorHref()})"
    plain = QTextCharFormat()
    plain.setFontWeight(format.fontWeight())
    cursor.insertText(said, plain)


def _dress(block: QTextBlock, code_background: QColor) -> None:
    cursor = QTextCursor(block)
    old = block.blockFormat()
    new = QTextBlockFormat()
    if _is_code(old):
        new.setBackground(code_background)
        new.setNonBreakableLines(False)
        new.setTextIndent(STEP * 2)
        # Space between lines would show as stripes: Qt leaves it out of a block's background.
        new.setLineHeight(100, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        new.setTopMargin(0 if _is_code(block.previous().blockFormat()) else STEP * 2)
        new.setBottomMargin(0 if _is_code(block.next().blockFormat()) else STEP * 2)
    else:
        new.setLineHeight(LINE_PERCENT, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        new.setTopMargin(STEP * 3 if old.headingLevel() else 0)
        new.setBottomMargin(STEP if block.textList() else STEP * 2)
    cursor.mergeBlockFormat(new)
    _dress_text(cursor, block, old)


def _dress_text(cursor: QTextCursor, block: QTextBlock, format: QTextBlockFormat) -> None:
    whole = QTextCharFormat()
    if _is_code(format):
        whole.setFont(code_font())
    elif level := format.headingLevel():
        whole.setProperty(QTextFormat.Property.FontPixelSize, HEADING_PX.get(level, BODY_PX))
        whole.setProperty(QTextFormat.Property.FontSizeAdjustment, 0)
        whole.setFontWeight(QFont.Weight.DemiBold)
    else:
        _dress_inline_code(block)
        return
    cursor.select(QTextCursor.SelectionType.BlockUnderCursor)
    cursor.setPosition(block.position())
    cursor.movePosition(QTextCursor.MoveOperation.EndOfBlock, QTextCursor.MoveMode.KeepAnchor)
    cursor.mergeCharFormat(whole)


def _dress_inline_code(block: QTextBlock) -> None:
    spans: list[tuple[int, int]] = []
    part = block.begin()
    while not part.atEnd():
        piece = part.fragment()
        if piece.charFormat().fontFixedPitch():
            spans.append((piece.position(), piece.length()))
        part += 1
    font = QTextCharFormat()
    font.setFont(code_font())
    for start, length in spans:
        cursor = QTextCursor(block)
        cursor.setPosition(start)
        cursor.setPosition(start + length, QTextCursor.MoveMode.KeepAnchor)
        cursor.mergeCharFormat(font)


def _is_code(format: QTextBlockFormat) -> bool:
    kinds = (QTextFormat.Property.BlockCodeFence, QTextFormat.Property.BlockCodeLanguage)
    return any(format.hasProperty(kind) for kind in kinds) or format.nonBreakableLines()


def code_font() -> QFont:
    font = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
    font.setPixelSize(CODE_PX)
    return font
