"""One set-up at a time for one user: two would build the same wheel and write the same .venv."""

from __future__ import annotations

import contextlib
import errno
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

RETRY_S = 0.5
HELD = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)  # EACCES and EDEADLK are Windows' words


@contextlib.contextmanager
def held(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file; `waiting` is called once if another process has it. The system frees it when we die."""
    with path.open("a+b") as file:
        said = False
        while not _take(file):
            if not said:
                waiting()
                said = True
            time.sleep(RETRY_S)
        yield


def _take(file: BinaryIO) -> bool:
    """False when another process has it. A disk that knows no locks (some network homes) cannot refuse one."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in HELD
    return True
