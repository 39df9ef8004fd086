"""What the user reads while a set-up runs: one line a step, one that counts while something takes long.

On a terminal the counting line updates in place; elsewhere a line is written about every ten seconds.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

QUIET_INTERVAL_S = 10.0


class SetupFailed(Exception):
    """The message says what happened and what to do."""


class Voice:
    """Owns the screen. `step` names what is being done; `count` says how far it is; `done` ends the step's line."""

    def __init__(self, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out or sys.stdout
        self._clock = clock
        self._live = self._out.isatty()
        self._name = ""
        self._began = self._spoke = 0.0
        self._width = 0
        self._row = ""

    def line(self, text: str) -> None:
        self._wipe()
        self._write(text + "\n")

    def step(self, name: str, text: str) -> None:
        """Begin a step: `text` is what it is busy with."""
        self._name = name
        self._began = self._clock()
        self._spoke = float("-inf")
        self.count(text)

    def count(self, text: str) -> None:
        """How far the step is. Cheap enough to be called for every line of a child's output."""
        now = self._clock()
        row = f"  {self._name:<14} {text}"
        if self._live:
            self._draw(row)
        elif now - self._spoke >= QUIET_INTERVAL_S:
            self._write(row + "\n")
            self._spoke = now

    def done(self, text: str) -> None:
        self.line(f"  {self._name:<14} {text} ({duration(self._clock() - self._began)})")

    def _draw(self, row: str) -> None:
        columns = shutil.get_terminal_size().columns
        row = row[: max(columns - 1, 20)]
        if row == self._row:
            return
        self._row = row
        # Spaces instead of an escape code: every console understands them.
        self._write("\r" + row + " " * max(0, self._width - len(row)))
        self._width = len(row)

    def _wipe(self) -> None:
        if self._width:
            self._write("\r" + " " * self._width + "\r")
            self._width = 0
            self._row = ""

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
        except UnicodeEncodeError:
            encoding = self._out.encoding or "ascii"
            self._out.write(text.encode(encoding, "replace").decode(encoding))
        self._out.flush()


def duration(seconds: float) -> str:
    """ "7 s", "2 min 05 s"."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"
