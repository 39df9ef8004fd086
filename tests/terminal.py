"""A terminal for tests: a screen that understands what our programs send, and a program running on a real pty."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence

SEQUENCE = re.compile(r"\x1b(?:\[([0-9;?]*)([A-Za-z])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-B]|[=>78])")
TAKE_THE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)


class Screen:
    """Rows of text with a cursor. Rows that leave at the top go to `scrollback` and can never be changed again."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.scrollback: list[str] = []
        self._rows: list[list[str]] = [[] for _ in range(height)]
        self._row = self._column = 0
        self._rest = ""

    @property
    def text(self) -> str:
        """Everything a person can see or scroll back to, without empty rows at the end."""
        return "\n".join([*self.scrollback, *("".join(row).rstrip() for row in self._rows)]).rstrip()

    def feed(self, data: str) -> None:
        data, self._rest = self._rest + data, ""
        index = 0
        while index < len(data):
            if data[index] != "\x1b":
                self._put(data[index])
                index += 1
            elif match := SEQUENCE.match(data, index):
                self._control(match[1] or "", match[2] or "")
                index = match.end()
            else:
                self._rest = data[index:]
                return

    def _put(self, char: str) -> None:
        if char == "\n":
            self._down()
        elif char == "\r":
            self._column = 0
        elif char == "\b":
            self._column = max(0, self._column - 1)
        elif char >= " ":
            if self._column == self.width:
                self._column = 0
                self._down()
            row = self._rows[self._row]
            row.extend(" " * (self._column + 1 - len(row)))
            row[self._column] = char
            self._column += 1

    def _down(self) -> None:
        if self._row < self.height - 1:
            self._row += 1
            return
        self.scrollback.append("".join(self._rows.pop(0)).rstrip())
        self._rows.append([])

    def _control(self, arguments: str, letter: str) -> None:
        count = int(arguments) if arguments.isdigit() else 0
        row = self._rows[self._row]
        if letter == "A":
            self._row = max(0, self._row - (count or 1))
        elif letter == "C":
            self._column = min(self.width - 1, self._column + (count or 1))
        elif letter == "D":
            self._column = max(0, self._column - (count or 1))
        elif letter == "G":
            self._column = (count or 1) - 1
        elif letter == "K" and count == 2:
            row.clear()
        elif letter == "K":
            del row[self._column :]
        elif letter == "J":
            del row[self._column :]
            for below in self._rows[self._row + 1 :]:
                below.clear()
        else:
            assert letter in ("", "m", "h", "l"), f"this screen does not know CSI {arguments}{letter}"


class Program:
    """A program with a pty as its terminal. `expect` waits for text; a wait that fails shows the screen."""

    def __init__(
        self, argv: Sequence[str], *, width: int = 80, height: int = 24, env: dict[str, str] | None = None
    ) -> None:
        self.screen = Screen(width, height)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "", "LINES": "", **(env or {})}
        command = [sys.executable, "-c", TAKE_THE_TERMINAL, *argv]
        self._process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env=environment
        )
        os.close(slave)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._master)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def expect(self, text: str, *, times: int = 1, timeout_s: float = 30) -> None:
        """Until `text` is on the screen, or in what has scrolled, at least `times`."""
        self.expect_that(lambda seen: seen.count(text) >= times, f"{text!r} {times} times", timeout_s=timeout_s)

    def expect_that(
        self, holds: Callable[[str], bool], what: str = "what was expected", *, timeout_s: float = 30
    ) -> None:
        """The same for anything that can be said of the screen's text."""
        end = time.monotonic() + timeout_s
        while not holds(self.screen.text):
            assert self._read(end), f"{what} did not appear:\n{self.screen.text}"

    def wait(self, timeout_s: float = 30) -> int:
        """The exit code, with everything the program wrote on the screen."""
        end = time.monotonic() + timeout_s
        while self._read(end):
            pass
        return self._process.wait(timeout_s)

    def _read(self, end: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:
            return False
        self.screen.feed(self._decoder.decode(data))
        return bool(data)
