"""Reading what the user types, with a history that outlives the program where the platform offers line editing."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

from models import limits
from runtime.paths import data_home, private_folder

HISTORY_FILE = "chat_history"
HISTORY_LINES = 1000
QUOTES = '"""'


class History:
    """A file of past inputs, one JSON string a line, readable by this user only.

    A home that cannot be written leaves the history in memory: a chat must not fail for it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.lines = self._read()

    def add(self, text: str) -> None:
        if self.lines and self.lines[-1] == text:
            return
        self.lines.append(text)
        with suppress(OSError):
            private_folder(self._path.parent)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, limits.FILE_MODE)
            with open(descriptor, "a", encoding="utf-8") as file:
                file.write(json.dumps(text) + "\n")

    def _read(self) -> list[str]:
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return []
        if len(lines) > 2 * HISTORY_LINES:
            lines = lines[-HISTORY_LINES:]
            self._rewrite(lines)
        return [text for text in map(_parsed, lines) if text]

    def _rewrite(self, lines: list[str]) -> None:
        aside = self._path.with_name(self._path.name + ".new")
        with suppress(OSError):
            aside.unlink(missing_ok=True)
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, limits.FILE_MODE)
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
            aside.replace(self._path)


class Keyboard:
    """Asks for one input at a time. Raises EOFError at Ctrl-D and KeyboardInterrupt at Ctrl-C."""

    def __init__(self, history: History | None = None) -> None:
        self._history = history or History(data_home() / HISTORY_FILE)
        self._readline = _line_editor()
        if self._readline is not None:
            self._readline.set_auto_history(False)
            for text in self._history.lines[-HISTORY_LINES:]:
                self._readline.add_history(text)

    def ask(self, prompt: str) -> str:
        """One message. A line that ends with a backslash goes on; three quotes open a text that three quotes close."""
        text = self._whole(prompt)
        if text.strip():
            self._history.add(text)
            if self._readline is not None:
                self._readline.add_history(text)
        return text

    def _whole(self, prompt: str) -> str:
        text = input(self._visible(prompt))
        if text.lstrip().startswith(QUOTES):
            text = text.lstrip().removeprefix(QUOTES)
            while not text.rstrip().endswith(QUOTES):
                text += "\n" + input("… " if _speaks_unicode() else "... ")
            return text.rstrip().removesuffix(QUOTES).strip("\n")
        while text.endswith("\\"):
            text = text[:-1] + "\n" + input("… " if _speaks_unicode() else "... ")
        return text

    def _visible(self, prompt: str) -> str:
        if not _speaks_unicode():
            prompt = prompt.encode("ascii", "replace").decode().replace("?", ">")
        if self._readline is None or not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
            return prompt
        # The two control characters tell the line editor that what they enclose takes no room.
        return f"\x01\x1b[1;36m\x02{prompt}\x01\x1b[0m\x02"


@contextmanager
def quiet_keyboard() -> Iterator[None]:
    """While the block runs, keys are not echoed: they would land in the middle of a reply. They are read afterwards.

    Where there is no terminal, or no way to quiet it, nothing changes.
    """
    try:
        import termios
    except ImportError:
        yield
        return
    try:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (OSError, ValueError, termios.error):
        yield
        return
    quiet = before[:]
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _line_editor() -> ModuleType | None:
    try:
        import readline
    except ImportError:
        return None
    return readline


def _speaks_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def _parsed(line: str) -> str:
    with suppress(ValueError):
        text = json.loads(line)
        if isinstance(text, str):
            return text
    return ""
