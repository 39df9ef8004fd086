"""The chat window. `python -P -m app.main` opens it; with --check it only says whether it could.

Exit codes: 0 after the window was closed, 3 when there can be no window here, with one sentence on stderr.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING

from app import display

if TYPE_CHECKING:
    from app.backend import Connect
    from app.ui.main_window import MainWindow


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words == [display.CHECK]:
        return display.check_here()
    problem = display.problem(os.environ)
    if problem:
        sys.stderr.write(f"{display.MARK}{problem}\n")
        return display.UNUSABLE
    return run()


def run(connect: Connect | None = None) -> int:
    """Show the window until it is closed. Everything it started is gone when this returns."""
    from PySide6.QtCore import QTimer
    from PySide6.QtWidgets import QApplication

    from app.backend import starter_service
    from app.state.chat import ChatState
    from app.state.memory import MemoryState
    from app.ui.main_window import MainWindow
    from app.ui.theme import Theme

    application = QApplication(["headrace"])
    application.setApplicationName("headrace")
    application.setApplicationDisplayName("Headrace")
    chat = ChatState(connect or starter_service, application)
    memory = MemoryState(application)
    window = MainWindow(chat, memory, Theme(application))
    window.closed.connect(application.quit)
    _close_on_signals(window)
    window.show()
    QTimer.singleShot(0, chat.start)
    memory.start()
    application.exec()
    memory.stop()
    if not chat.close():
        # The thread hangs inside a call that cannot be interrupted. A private service ends with our end of its pipe.
        os._exit(0)
    return 0


def _close_on_signals(window: MainWindow) -> None:
    """Ctrl-C in the terminal and a polite kill close the window; the memory gauge's timer lets Python notice."""
    from PySide6.QtCore import QTimer

    def close(_signal: int, _frame: FrameType | None) -> None:
        # Not here: the signal may have come in the middle of a drawing.
        QTimer.singleShot(0, window.close)

    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), close)


if __name__ == "__main__":
    sys.exit(main())
