"""One conversation and everything the window says about it.

Lives on the Qt thread. Only `send`, `stop`, `retry`, `new_chat` and what the backend tells change it; widgets connect
to its signals. Text that arrives is gathered and announced about thirty times a second, however fast it comes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.backend import Backend, Connect, Heard, Loading, Ready, Said, Unavailable, starter_service
from app.state.figures import NO_FIGURES, Figures, Stopwatch
from runtime.stream import End, Failed, Reasoning, Text, Usage

REPAINT_MS = 33
SENTENCE_CHARS = 300


@dataclass(frozen=True, slots=True)
class Turn:
    """`state` of a reply: queued until the model is loaded, then waiting, thinking, writing, and at last done, stopped
    or incomplete. What a person wrote is done.
    """

    role: str
    text: str
    state: str = "done"


@dataclass(frozen=True, slots=True)
class Model:
    """`state` is loading, ready or failed. `fraction` is 0 to 1, None while nobody knows."""

    state: str = "loading"
    name: str = ""
    where: str = ""
    plan: str = ""
    fraction: float | None = None
    context: int | None = None


class ChatState(QObject):
    """`turns_changed`: turns came or went. `turn_grew`: the last one has more text or another state."""

    turns_changed = Signal()
    turn_grew = Signal()
    busy_changed = Signal(bool)
    model_changed = Signal(object)
    figures_changed = Signal(object)
    problem_changed = Signal(str)
    _told = Signal(object)

    def __init__(self, connect: Connect = starter_service, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.turns: list[Turn] = []
        self.model = Model()
        self.figures: Figures = NO_FIGURES
        self.problem = ""
        self._ticket: int | None = None
        self._watch = Stopwatch()
        self._told.connect(self._on_told)
        self._backend = Backend(self._told.emit, connect)
        self._repaint = QTimer(self)
        self._repaint.setSingleShot(True)
        self._repaint.setInterval(REPAINT_MS)
        self._repaint.timeout.connect(self._on_repaint)

    @property
    def busy(self) -> bool:
        return self._ticket is not None

    def start(self) -> None:
        self._backend.start()

    def close(self) -> bool:
        """End the thread and a private service. Whether that came about in time; may be called twice."""
        self._repaint.stop()
        return self._backend.close()

    @Slot(str)
    def send(self, text: str) -> bool:
        """Whether the message was taken: not while a reply is being written, and not when it is empty."""
        if self.busy or not text.strip():
            return False
        self.turns.append(Turn("user", text.strip()))
        if self.model.state == "failed":
            self._backend.reopen()
        self._ask()
        return True

    @Slot()
    def stop(self) -> None:
        """Stop the reply and keep what it has."""
        if self._ticket is not None:
            self._backend.cancel(self._ticket)
            self._finish("stopped")

    @Slot()
    def retry(self) -> None:
        """Ask the last question again, and start the model again where it is gone."""
        if self.busy:
            return
        if self.model.state == "failed":
            self._set_model(Model(name=self.model.name))
            self._backend.reopen()
        if self.turns and self.turns[-1].role == "assistant" and self.turns[-1].state == "incomplete":
            self.turns.pop()
        if self.turns and self.turns[-1].role == "user":
            self._ask()
        else:
            self._set_problem("")

    @Slot()
    def new_chat(self) -> None:
        self.stop()
        self.turns.clear()
        self._set_problem("")
        self._set_figures(NO_FIGURES)
        self.turns_changed.emit()

    def messages(self) -> list[dict[str, str]]:
        """What the model is sent: a question that was never answered is left out, unless it is the newest."""
        kept: list[Turn] = []
        for turn in self.turns:
            if turn.role == "assistant" and not turn.text:
                continue
            if kept and kept[-1].role == turn.role:
                kept.pop()
            kept.append(turn)
        return [{"role": turn.role, "content": turn.text} for turn in kept]

    def _ask(self) -> None:
        self._set_problem("")
        self._watch = Stopwatch()
        self._ticket = self._backend.ask(self.messages())
        self.turns.append(Turn("assistant", "", "waiting" if self.model.state == "ready" else "queued"))
        self._set_figures(NO_FIGURES)
        self.turns_changed.emit()
        self.busy_changed.emit(True)

    @Slot(object)
    def _on_told(self, said: Said) -> None:
        match said:
            case Loading(name, fraction):
                self._set_model(Model("loading", name, fraction=fraction))
            case Ready(name, where, plan, context):
                self._set_model(Model("ready", name, where, plan, 1.0, context))
                self._begin_waiting()
            case Unavailable(message):
                self._set_model(replace(self.model, state="failed", fraction=None))
                self._set_problem(sentence(message))
            case Heard(ticket, _, _) if ticket == self._ticket:
                self._on_heard(said)

    def _on_heard(self, heard: Heard) -> None:
        match heard.event:
            case Text(text):
                self._grow(text, "writing", heard.at_s)
            case Reasoning():
                self._grow("", "thinking", heard.at_s)
            case Usage():
                self._watch.usage = heard.event
            case End():
                self._finish("done")
            case Failed(error):
                self._finish("incomplete")
                self._set_problem(sentence(error.message))

    def _begin_waiting(self) -> None:
        """The model is loaded: a question that was waiting for it is being read from now on."""
        if self.busy and self.turns[-1].state == "queued":
            self._watch = Stopwatch()
            self.turns[-1] = replace(self.turns[-1], state="waiting")
            self.turn_grew.emit()

    def _grow(self, text: str, state: str, at_s: float) -> None:
        self._watch.tick(at_s)
        last = self.turns[-1]
        self.turns[-1] = replace(last, text=last.text + text, state=state)
        if not self._repaint.isActive():
            self._repaint.start()

    @Slot()
    def _on_repaint(self) -> None:
        self._set_figures(self._watch.live())
        self.turn_grew.emit()

    def _finish(self, state: str) -> None:
        self._repaint.stop()
        self._ticket = None
        self.turns[-1] = replace(self.turns[-1], state=state)
        self._set_figures(self._watch.final())
        self.turn_grew.emit()
        self.busy_changed.emit(False)

    def _set_model(self, model: Model) -> None:
        self.model = model
        self.model_changed.emit(model)

    def _set_figures(self, figures: Figures) -> None:
        self.figures = figures
        self.figures_changed.emit(figures)

    def _set_problem(self, problem: str) -> None:
        self.problem = problem
        self.problem_changed.emit(problem)


def sentence(message: str) -> str:
    """One calm sentence from an error: its first line, begun and ended as a sentence is."""
    line = next(iter(message.strip().splitlines()), "").strip()
    if not line:
        return "Something went wrong; try again."
    if len(line) > SENTENCE_CHARS:
        line = line[: SENTENCE_CHARS - 1] + "…"
    return line[0].upper() + line[1:] + ("" if line[-1] in ".!?…" else ".")
