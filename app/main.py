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


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words == [display.CHECK]:
        return display.check_here()
    problem = display.missing(os.environ)
    if not problem:
        check = display.start_check()
        _import_widgets()
        problem = display.verdict(check)
    if problem:
        sys.stderr.write(f"headrace: {problem}\n")
        return display.UNUSABLE
    return run()


def run(connect: Connect | None = None) -> int:
    """Show the window until it is closed. Everything it started is gone when this returns."""
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
    chat.start()
    memory.start()
    application.exec()
    memory.stop()
    if not chat.close():
        # The thread hangs inside a call that cannot be interrupted. A private service ends with our end of its pipe.
        os._exit(0)
    return 0


def _import_widgets() -> None:
    """While the child checks the display. A library that is missing is the child's to name."""
    try:
        import app.ui.main_window  # noqa: F401
    except ImportError:
        return


def _close_on_signals(window: object) -> None:
    """Ctrl-C in the terminal and a polite kill close the window; the memory gauge's timer lets Python notice."""
    from PySide6.QtWidgets import QWidget

    assert isinstance(window, QWidget)

    def close(_signal: int, _frame: FrameType | None) -> None:
        window.close()

    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), close)


if __name__ == "__main__":
    sys.exit(main())
