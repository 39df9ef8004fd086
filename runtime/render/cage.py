"""The limits the render child puts on itself, and how its processor time is measured.

Each limit is a row: on a platform without it the row says "absent", and the worker's own clock is what remains.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

ABSENT = "absent"
SET = "set"


def has_processor_timer() -> bool:
    return hasattr(signal, "setitimer")


def confine(memory_bytes: int) -> dict[str, str]:
    """Limit this process for good: memory may grow by `memory_bytes`, no files are written, no core is left."""
    rows: dict[str, Callable[[], bool]] = {
        "address space": lambda: _limit_growth(memory_bytes),
        "file size": lambda: _limit("RLIMIT_FSIZE", 0),
        "core": lambda: _limit("RLIMIT_CORE", 0),
    }
    return {name: SET if row() else ABSENT for name, row in rows.items()}


def start_timer(seconds: float) -> None:
    """End this process, without any Python running, once it has used `seconds` of processor time."""
    if has_processor_timer():
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, seconds)


def stop_timer() -> None:
    if has_processor_timer():
        signal.setitimer(signal.ITIMER_PROF, 0)


def _limit_growth(memory_bytes: int) -> bool:
    # Only Linux enforces RLIMIT_AS and says how much address space is in use.
    if not sys.platform.startswith("linux"):
        return False
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return _limit("RLIMIT_AS", pages * os.sysconf("SC_PAGE_SIZE") + memory_bytes)


def _limit(name: str, value: int) -> bool:
    try:
        import resource
    except ImportError:
        return False
    which = getattr(resource, name, None)
    if which is None:
        return False
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))
    return True
