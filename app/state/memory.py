"""How full this machine's memory is, looked at once a second."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import psutil
from PySide6.QtCore import QObject, QTimer, Signal, Slot

LOOK_MS = 1000


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes. `ours` is the window and the processes it started; `free` is what a program could still get."""

    ours: int
    others: int
    free: int
    total: int


class MemoryState(QObject):
    changed = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.memory = look()
        self._timer = QTimer(self)
        self._timer.setInterval(LOOK_MS)
        self._timer.timeout.connect(self._on_look)

    def start(self) -> None:
        self._timer.start()

    def stop(self) -> None:
        self._timer.stop()

    @Slot()
    def _on_look(self) -> None:
        self.memory = look()
        self.changed.emit(self.memory)


def look() -> Memory:
    machine = psutil.virtual_memory()
    used = machine.total - machine.available
    ours = min(_ours(), used)
    return Memory(ours, used - ours, machine.available, machine.total)


def _ours() -> int:
    me = psutil.Process()
    total = 0
    with suppress(psutil.Error):
        for process in (me, *me.children(recursive=True)):
            with suppress(psutil.Error):
                total += process.memory_info().rss
    return total
