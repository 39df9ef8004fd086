"""Colours by name in two tables, and how the system's scheme picks one. No other file of the window names a colour."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from string import Template

from PySide6.QtCore import QObject, Qt, Signal, Slot
from PySide6.QtGui import QColor, QFont, QGuiApplication, QPalette
from PySide6.QtWidgets import QApplication

BODY_PX = 14
SMALL_PX = 12
FIGURE_PX = 26
CODE_PX = 13
STEP = 4
MEASURE_CHARS = 76


@dataclass(frozen=True, slots=True)
class Tokens:
    """`track` lies under bars, `code` behind code; `on_accent` is text on the accent."""

    surface: str
    raised: str
    text: str
    muted: str
    line: str
    accent: str
    on_accent: str
    ok: str
    warn: str
    bad: str
    track: str
    other: str
    code: str


LIGHT = Tokens(
    surface="#fbfbfa",
    raised="#f1f2f4",
    text="#1d2127",
    muted="#5b636e",
    line="#dcdfe4",
    accent="#2a5bc7",
    on_accent="#ffffff",
    ok="#1a7439",
    warn="#835500",
    bad="#b3261e",
    track="#dfe2e7",
    other="#9aa2ad",
    code="#eef0f3",
)
DARK = Tokens(
    surface="#16181c",
    raised="#1f2228",
    text="#e5e8ec",
    muted="#9ba4b0",
    line="#30353d",
    accent="#86aaff",
    on_accent="#0f1420",
    ok="#5fc47d",
    warn="#dba74a",
    bad="#ff8f85",
    track="#343a43",
    other="#6b7480",
    code="#22262d",
)

STYLE = Template(
    """
QWidget#window, QWidget#middle { background: $surface; }
QWidget#gauges { background: $raised; border: none; border-left: 1px solid $line; }
QWidget#header { border: none; border-bottom: 1px solid $line; }
QTextEdit { background: $surface; border: none; }
QPlainTextEdit { background: transparent; border: none; padding: 0; }
QFrame#composer { background: $raised; border: 1px solid $line; border-radius: 8px; }
QFrame#composer[focused="true"] { border: 1px solid $accent; }
QFrame#problem { background: $raised; border: 1px solid $bad; border-radius: 8px; }
QLabel { background: transparent; }
QLabel[tone="muted"] { color: $muted; }
QLabel[tone="bad"] { color: $bad; }
QLabel[tone="stale"] { color: $muted; }
QPushButton { background: $surface; color: $text; border: 1px solid $line; border-radius: 8px; padding: 5px 12px; }
QPushButton:hover { border-color: $muted; }
QPushButton:focus { border: 1px solid $accent; }
QPushButton:disabled { color: $muted; }
QPushButton#send { background: $accent; color: $on_accent; border: 1px solid $accent; }
QPushButton#send:focus { border: 1px solid $text; }
QPushButton#send:disabled { background: $track; color: $muted; border: 1px solid $track; }
QScrollBar:vertical { background: transparent; width: 10px; margin: 0; }
QScrollBar::handle:vertical { background: $track; border-radius: 4px; min-height: 32px; margin: 1px; }
QScrollBar::handle:vertical:hover { background: $other; }
QScrollBar::add-line:vertical, QScrollBar::sub-line:vertical { height: 0; }
QScrollBar::add-page:vertical, QScrollBar::sub-page:vertical { background: transparent; }
QToolTip { background: $raised; color: $text; border: 1px solid $line; padding: 4px; }
"""
)


class Theme(QObject):
    """The table in use. Follows the system while it lives."""

    changed = Signal()

    def __init__(self, application: QApplication) -> None:
        super().__init__(application)
        self._application = application
        self.tokens = LIGHT
        hints = QGuiApplication.styleHints()
        hints.colorSchemeChanged.connect(self._on_scheme)
        application.setStyle("Fusion")
        font = QFont(application.font())
        font.setPixelSize(BODY_PX)
        application.setFont(font)
        self._on_scheme(hints.colorScheme())

    def color(self, name: str) -> QColor:
        return QColor(getattr(self.tokens, name))

    @Slot(Qt.ColorScheme)
    def _on_scheme(self, scheme: Qt.ColorScheme) -> None:
        self.use(DARK if scheme == Qt.ColorScheme.Dark else LIGHT)

    def use(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self._application.setPalette(palette(tokens))
        self._application.setStyleSheet(STYLE.substitute(asdict(tokens)))
        self.changed.emit()


def palette(tokens: Tokens) -> QPalette:
    role = QPalette.ColorRole
    colours = QPalette()
    for target, token in (
        (role.Window, tokens.surface),
        (role.Base, tokens.surface),
        (role.AlternateBase, tokens.raised),
        (role.Button, tokens.raised),
        (role.ToolTipBase, tokens.raised),
        (role.WindowText, tokens.text),
        (role.Text, tokens.text),
        (role.ButtonText, tokens.text),
        (role.ToolTipText, tokens.text),
        (role.PlaceholderText, tokens.muted),
        (role.Highlight, tokens.accent),
        (role.HighlightedText, tokens.on_accent),
        (role.Link, tokens.accent),
        (role.Accent, tokens.accent),
    ):
        colours.setColor(target, QColor(token))
    colours.setColor(QPalette.ColorGroup.Disabled, role.Text, QColor(tokens.muted))
    return colours
