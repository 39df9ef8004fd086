"""Running a child program of the set-up: its output goes to the log, its last lines into the error.

`Log` owns the log file. Each run begins with the command, so that a reader can repeat it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shlex
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from start_say import SetupFailed

TAIL_LINES = 20
TICK_S = 1.0
OnLine = Callable[[str | None], None]


class CommandFailed(SetupFailed):
    """`tail` are the last lines of the output, `code` the exit status (negative: a signal)."""

    def __init__(self, what: str, code: int, tail: Sequence[str], log: Path) -> None:
        lines = "\n".join(f"    {line}" for line in tail)
        super().__init__(f"{what} failed ({ending(code)}). The last lines:\n{lines}\nThe whole log: {log}")
        self.code = code
        self.tail = tuple(tail)


class Log:
    """Opened at the first run, so that a start with nothing to do leaves the log of the last work alone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: TextIO | None = None

    def write(self, line: str) -> None:
        if self._file is None:
            self._file = self.path.open("w", encoding="utf-8", errors="replace")
        self._file.write(line + "\n")
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def run(
    what: str,
    command: Sequence[str | Path],
    *,
    log: Log,
    environment: Mapping[str, str],
    on_line: OnLine = lambda _: None,
    timeout_s: float | None = None,
) -> list[str]:
    """Run to the end and return the output's last lines. Raises CommandFailed, after `timeout_s` too.

    `on_line` hears each line, and None about once a second while there is none. An interrupt ends the child too.
    """
    began = time.monotonic()
    words = [str(word) for word in command]
    log.write("$ " + shlex.join(words))
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    try:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise CommandFailed(what, 127, [str(error)], log.path) from error
    with contextlib.closing(_lines(child)) as lines:
        try:
            for line in lines:
                if line is not None:
                    log.write(line)
                    if line.strip():
                        tail.append(line)
                on_line(line)
                if timeout_s is not None and time.monotonic() - began > timeout_s:
                    child.kill()
                    tail.append(f"It did not end within {timeout_s:.0f} s.")
                    break
        except BaseException:
            child.terminate()
            raise
        finally:
            code = child.wait()
    if code != 0:
        raise CommandFailed(what, code, tail, log.path)
    return list(tail)


def _lines(child: subprocess.Popen[str]) -> Generator[str | None, None, None]:
    """The lines of the child as they come, None when a second passed without one."""
    waiting: queue.Queue[str | None] = queue.Queue()
    assert child.stdout is not None

    def read(stream: TextIO) -> None:
        with stream:
            for line in stream:
                waiting.put(line.rstrip("\n"))
        waiting.put(None)

    reader = threading.Thread(target=read, args=(child.stdout,), daemon=True)
    reader.start()
    try:
        while True:
            try:
                line = waiting.get(timeout=TICK_S)
            except queue.Empty:
                yield None
                continue
            if line is None:
                return
            yield line
    finally:
        # Not for ever: a grandchild that outlived the child may hold the pipe.
        reader.join(TICK_S)


def quick(command: Sequence[str | Path], *, text: str = "", timeout_s: float = 20.0) -> tuple[int, str]:
    """Exit status and output (both streams) of a question to a tool; 127 when it is not there or does not answer."""
    try:
        done = subprocess.run(
            [str(word) for word in command],
            input=text,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, str(error)
    return done.returncode, done.stdout + done.stderr


def ending(code: int) -> str:
    """How a program ended, for people: "exit code 1", "SIGSEGV", "0xC000001D"."""
    if code < 0:
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"
    return f"exit code {code}" if code < 256 else f"0x{code & 0xFFFFFFFF:08X}"
