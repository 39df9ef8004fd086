"""What llama.cpp says. It explains failures in log lines only, so the last lines are kept and can be collected.

Debug lines (hundreds for every context) are passed over. `install` sets the process-wide callback once; every thread of
llama.cpp writes through it. After `repeat_errors` errors also go to stderr, to be quoted after an abort.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

LINES_KEPT = 400
LINE_CHARACTERS = 2000
DEBUG, INFO, WARN, ERROR, CONTINUED = 1, 2, 3, 4, 5

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Line:
    """One line as llama.cpp wrote it, without the line break. `level` is ggml's: 2 info, 3 warning, 4 error."""

    level: int
    text: str


class Recorder:
    """Joins the pieces of lines and hands whole ones to whoever collects. Called with the GIL held."""

    def __init__(self) -> None:
        self.kept: deque[Line] = deque(maxlen=LINES_KEPT)
        self._collecting: tuple[list[Line], ...] = ()
        self._level = INFO
        self._open = ""
        self.repeats_errors = False

    def write(self, level: int, text: str) -> None:
        if level != CONTINUED:
            if self._open:
                self._close()
            self._level = level
        if self._level == DEBUG:
            return
        *whole, rest = (self._open + text).split("\n")
        for part in whole:
            self._open = part
            self._close()
        self._open = rest[:LINE_CHARACTERS]

    def _close(self) -> None:
        line, self._open = Line(self._level, self._open[:LINE_CHARACTERS].rstrip()), ""
        if not line.text:
            return
        self.kept.append(line)
        for lines in self._collecting:
            lines.append(line)
        logger.debug("%s", line.text)
        if self.repeats_errors and line.level == ERROR and sys.stderr is not None:
            sys.stderr.write(line.text + "\n")

    @contextlib.contextmanager
    def captured(self) -> Iterator[list[Line]]:
        lines: list[Line] = []
        self._collecting += (lines,)
        try:
            yield lines
        finally:
            self._collecting = tuple(other for other in self._collecting if other is not lines)


_recorder = Recorder()
_callback: Any = None


def install(module: Any) -> None:
    """Route llama.cpp's log here. `module` is the ctypes layer; called once by `library.lib`."""
    global _callback

    def receive(level: int, text: bytes | None, _data: Any) -> None:
        _recorder.write(level, (text or b"").decode("utf-8", "replace"))

    _callback = module.llama_log_callback(receive)  # kept: llama.cpp holds the pointer as long as the process lives
    module.llama_log_set(_callback, None)
    # A line written while Python shuts down must not call into it.
    atexit.register(module.llama_log_set, module.llama_log_callback(), None)


def captured() -> contextlib.AbstractContextManager[list[Line]]:
    """`with captured() as lines:` collects every line written meanwhile, by any thread."""
    return _recorder.captured()


def repeat_errors() -> None:
    """From now on errors are written to stderr too. For a worker, whose last words the supervisor quotes."""
    _recorder.repeats_errors = True


def last_lines() -> list[Line]:
    """The newest lines, oldest first, at most LINES_KEPT."""
    return list(_recorder.kept)


def reason(lines: Iterable[Line], otherwise: str) -> str:
    """The errors in `lines` as one sentence, else the warnings, else `otherwise`. Function names are left out."""
    lines = list(lines)
    for level in (ERROR, WARN):
        texts = [re.sub(r"^[\w:~]+: ", "", line.text) for line in lines if line.level == level]
        if texts:
            return "; ".join(dict.fromkeys(texts))
    return otherwise
