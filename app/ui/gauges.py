"""The right column: which model runs where, how full the memory is, and how fast the reply is.

What is unknown is "–" with the reason in the tooltip. Figures of a reply that is over are drawn muted.
"""

from __future__ import annotations

from PySide6.QtCore import QLocale, QRectF, Qt, Slot
from PySide6.QtGui import QFont, QPainter, QPainterPath, QPaintEvent
from PySide6.QtWidgets import QFrame, QGridLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget

from app.state.chat import ChatState, Model
from app.state.figures import Figures
from app.state.memory import Memory, MemoryState
from app.ui.theme import FIGURE_PX, SMALL_PX, STEP, Theme

WIDTH = 248
GIB = 1024**3
UNKNOWN = "–"
AMBER_FREE = 0.05
AMBER_CONTEXT = 0.85


class Bar(QWidget):
    """Parts of a whole, in colours named by token, on a track."""

    def __init__(self, theme: Theme, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._parts: tuple[tuple[float, str], ...] = ()
        self.setFixedHeight(STEP * 2)
        self.setAccessibleName(name)
        theme.changed.connect(self.update)

    def show_parts(self, *parts: tuple[float, str], says: str) -> None:
        """Each part is a share of the whole and a token; `says` is the same in words."""
        self._parts = parts
        self.setAccessibleDescription(says)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        area = QRectF(self.rect())
        round_ends = QPainterPath()
        round_ends.addRoundedRect(area, area.height() / 2, area.height() / 2)
        painter.setClipPath(round_ends)
        painter.fillRect(area, self._theme.color("track"))
        left = 0.0
        for share, token in self._parts:
            width = max(0.0, min(1.0, share)) * area.width()
            painter.fillRect(QRectF(left, 0, width, area.height()), self._theme.color(token))
            left += width
        painter.end()


class Gauges(QWidget):
    def __init__(self, chat: ChatState, memory: MemoryState, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("gauges")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setFixedWidth(WIDTH)
        self._chat = chat
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(STEP * 4, STEP * 4, STEP * 4, STEP * 4)
        self._column.setSpacing(STEP)
        self._add_model(theme)
        self._add_memory(theme)
        self._add_reply(theme)
        self._column.addStretch(1)
        chat.model_changed.connect(self._on_model)
        chat.figures_changed.connect(self._on_figures)
        memory.changed.connect(self._on_memory)
        self._on_model(chat.model)
        self._on_figures(chat.figures)
        self._on_memory(memory.memory)

    def _add_model(self, theme: Theme) -> None:
        self._title(self.tr("Model"))
        self.model_name = _label("", bold=True)
        self.model_where = _label("", tone="muted")
        self.loading = Bar(theme, self.tr("Model loading"))
        for widget in (self.model_name, self.model_where, self.loading):
            self._column.addWidget(widget)

    def _add_memory(self, theme: Theme) -> None:
        self._line()
        self._title(self.tr("This machine's RAM"))
        self.ram = Bar(theme, self.tr("Memory of this machine"))
        self.ram_text = _label("", tone="muted")
        self._column.addSpacing(STEP)
        self._column.addWidget(self.ram)
        self._column.addWidget(self.ram_text)

    def _add_reply(self, theme: Theme) -> None:
        self._line()
        self.reply_title = self._title(self.tr("This reply"))
        self.speed = _label(UNKNOWN, pixels=FIGURE_PX)
        self.speed.setAccessibleName(self.tr("Tokens per second"))
        self._column.addWidget(self.speed)
        grid = QGridLayout()
        grid.setVerticalSpacing(STEP)
        self.first_token = self._row(grid, 0, self.tr("First token"))
        self.prompt = self._row(grid, 1, self.tr("Prompt"))
        self.cached = self._row(grid, 2, self.tr("From cache"))
        self.written = self._row(grid, 3, self.tr("Written"))
        grid.setColumnStretch(0, 1)
        self._column.addLayout(grid)
        self._column.addSpacing(STEP * 2)
        self.context = Bar(theme, self.tr("Context in use"))
        self.context_text = _label("", tone="muted")
        self._column.addWidget(self.context)
        self._column.addWidget(self.context_text)

    def _title(self, text: str) -> QLabel:
        label = _label(text, tone="muted", pixels=SMALL_PX, bold=True)
        self._column.addWidget(label)
        return label

    def _line(self) -> None:
        line = QFrame()
        line.setFixedHeight(1 + STEP * 4)
        self._column.addWidget(line)

    def _row(self, grid: QGridLayout, row: int, name: str) -> QLabel:
        value = _label(UNKNOWN)
        value.setWordWrap(False)
        value.setSizePolicy(QSizePolicy.Policy.Minimum, QSizePolicy.Policy.Preferred)
        value.setAccessibleName(name)
        value.setAlignment(Qt.AlignmentFlag.AlignRight)
        grid.addWidget(_label(name, tone="muted"), row, 0)
        grid.addWidget(value, row, 1)
        return value

    @Slot(object)
    def _on_model(self, model: Model) -> None:
        self.model_name.setText(model.name or self.tr("Looking for a model"))
        self.model_name.setToolTip(_plain(model.name))
        self.model_where.setText(self._where(model))
        self.model_where.setToolTip(_plain(model.plan))
        self.loading.setVisible(model.state == "loading")
        self.loading.show_parts((model.fraction or 0, "accent"), says=self.model_where.text())
        self._on_figures(self._chat.figures)

    def _where(self, model: Model) -> str:
        if model.state == "failed":
            return self.tr("not running")
        if model.state == "ready":
            # "llama 135M Q4_1: CPU, 2 threads, …": what it runs on comes first.
            lines = [model.where, ", ".join(model.plan.partition(": ")[2].split(", ")[:2])]
            return "\n".join(line[0].upper() + line[1:] for line in lines if line)
        if not model.fraction:
            return self.tr("starting …")
        return self.tr("loading, {0} %").format(round(100 * model.fraction))

    @Slot(object)
    def _on_memory(self, memory: Memory) -> None:
        sizes = [QLocale().toString(size / GIB, "f", 1) for size in (memory.ours, memory.others, memory.free)]
        says = self.tr("{0} ours · {1} other").format(*sizes) + "\n"
        says += self.tr("{0} free of {1} GiB").format(sizes[2], QLocale().toString(memory.total / GIB, "f", 1))
        ours = "warn" if memory.free < AMBER_FREE * memory.total else "accent"
        self.ram.show_parts((memory.ours / memory.total, ours), (memory.others / memory.total, "other"), says=says)
        self.ram_text.setText(says)

    @Slot(object)
    def _on_figures(self, figures: Figures) -> None:
        over = not self._chat.busy
        self.reply_title.setText(self.tr("Last reply") if over and figures.per_second else self.tr("This reply"))
        about = "≈ " if figures.is_live else ""
        self._say(self.speed, figures.per_second, about + "{} tok/s", 1, over)
        self._say(self.first_token, figures.first_token_s, "{} s", 2, over)
        self._say(self.prompt, figures.n_prompt, "{} tokens", 0, over)
        self._say(self.cached, figures.n_cached, "{} tokens", 0, over)
        self._say(self.written, figures.n_generated, "{} tokens", 0, over)
        self._show_context(figures)

    def _show_context(self, figures: Figures) -> None:
        size, prompt, written = self._chat.model.context, figures.n_prompt, figures.n_generated
        known = size is not None and prompt is not None and written is not None
        self.context.setVisible(known)
        self.context_text.setVisible(known)
        if size and prompt is not None and written is not None:
            share = (prompt + written) / size
            whole = QLocale().toString(size)
            says = self.tr("context {0} of {1}").format(QLocale().toString(prompt + written), whole)
            self.context.show_parts((share, "warn" if share > AMBER_CONTEXT else "accent"), says=says)
            self.context_text.setText(says)

    def _say(self, label: QLabel, value: float | None, form: str, decimals: int, over: bool) -> None:
        if value is None:
            label.setText(UNKNOWN)
            label.setToolTip(self.tr("Known when a reply is complete") if decimals == 0 else self.tr("No reply yet"))
        else:
            label.setText(form.format(QLocale().toString(float(value), "f", decimals)))
            label.setToolTip("")
        _set_tone(label, "stale" if over or value is None else "")


def _label(text: str, *, tone: str = "", pixels: int | None = None, bold: bool = False) -> QLabel:
    """A label that shows its text as it is: a name or a sentence from elsewhere must not become HTML."""
    label = QLabel(text)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setWordWrap(True)
    label.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
    label.setProperty("tone", tone)
    font = QFont(label.font())
    if pixels is not None:
        font.setPixelSize(pixels)
    if bold:
        font.setWeight(QFont.Weight.DemiBold)
    label.setFont(font)
    return label


def _set_tone(label: QLabel, tone: str) -> None:
    if label.property("tone") != tone:
        label.setProperty("tone", tone)
        label.style().unpolish(label)
        label.style().polish(label)


def _plain(text: str) -> str:
    """For a tooltip, which would take anything that looks like HTML for it."""
    return text.replace("<", "‹").replace("&", "＆")
