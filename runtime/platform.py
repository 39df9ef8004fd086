"""What this system offers to keep processes in their place: one table, "absent" where a row is absent.

`confine_worker` applies the rows a child sets on itself, for good. The parent's rows are applied where children are
started (`runtime/service/spawn.py`); the render child sets its own limits (`runtime/render/cage.py`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ABSENT = "absent"
# Above every ordinary program, so that when memory runs out the kernel takes a worker, never the service or a desktop.
WORKER_OOM_SCORE = 500

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38


class ParentGone(Exception):
    """The process that started this one had ended before they could be tied together."""


@dataclass(frozen=True, slots=True)
class Row:
    """One protection. `how` names the mechanism; `apply` is None where the parent or nobody applies it."""

    name: str
    how: str = ABSENT
    apply: Callable[[int], None] | None = None


def rows(system: str = sys.platform) -> tuple[Row, ...]:
    """The table for a `sys.platform`. `apply` takes the process id of the parent."""
    if system.startswith("linux"):
        return (
            Row("channel to a worker", "inherited socket"),
            Row("end with the parent", "end of channel, PR_SET_PDEATHSIG", _die_with_parent),
            Row("worker dies first when memory runs out", f"oom_score_adj +{WORKER_OOM_SCORE}", _volunteer_for_oom),
            Row("no core dumps", "RLIMIT_CORE 0, not dumpable", _no_core_linux),
            Row("no new privileges", "PR_SET_NO_NEW_PRIVS", _no_new_privileges),
            Row("private files", "umask 077", _private_files),
            Row("memory limit of a template render", "RLIMIT_AS"),
            Row("processor time limit of a template render", "ITIMER_PROF"),
        )
    if system == "win32":
        return (
            Row("channel to a worker", "socket.share over stdin"),
            Row("end with the parent", "end of channel, Job Object with kill on close"),
            Row("worker dies first when memory runs out"),
            Row("no core dumps"),
            Row("no new privileges"),
            Row("private files"),
            Row("memory limit of a template render"),
            Row("processor time limit of a template render"),
        )
    return (
        Row("channel to a worker", "inherited socket"),
        Row("end with the parent", "end of channel"),
        Row("worker dies first when memory runs out"),
        Row("no core dumps", "RLIMIT_CORE 0", _no_core),
        Row("no new privileges"),
        Row("private files", "umask 077", _private_files),
        Row("memory limit of a template render"),
        Row("processor time limit of a template render", "ITIMER_PROF"),
    )


def describe() -> dict[str, str]:
    """The table of this system, for a bug report."""
    return {row.name: row.how for row in rows()}


def confine_worker(parent_pid: int) -> dict[str, str]:
    """Apply to this process what a worker sets on itself, and say how each row went. Raises ParentGone.

    A row the system refuses is reported, not fatal: the process works without it.
    """
    outcome = {}
    for row in rows():
        outcome[row.name] = row.how
        if row.apply is None:
            continue
        try:
            row.apply(parent_pid)
        except OSError as error:
            outcome[row.name] = f"refused: {error.strerror or error}"
    return outcome


def peak_memory_bytes() -> int:
    """The most memory this process has had resident so far."""
    if sys.platform == "win32":
        import psutil

        return int(psutil.Process().memory_info().peak_wset)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _die_with_parent(parent_pid: int) -> None:
    if sys.platform != "win32":
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The signal is sent at the parent's death only, so a parent that had died before is noticed here.
    if os.getppid() != parent_pid:
        raise ParentGone(f"process {parent_pid}, which started this worker, has ended")


def _volunteer_for_oom(_parent_pid: int) -> None:
    Path("/proc/self/oom_score_adj").write_text(str(WORKER_OOM_SCORE), encoding="ascii")


def _no_core(_parent_pid: int) -> None:
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _no_core_linux(parent_pid: int) -> None:
    _no_core(parent_pid)
    # The limit does not hold where core_pattern is a pipe to a crash reporter; this does.
    _prctl(_PR_SET_DUMPABLE, 0)


def _no_new_privileges(_parent_pid: int) -> None:
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def _private_files(_parent_pid: int) -> None:
    os.umask(0o077)


def _prctl(option: int, value: int) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    if libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def oom_score(pid: int) -> int | None:
    """How ready process `pid` is to be taken when memory runs out; None where the system does not say."""
    with contextlib.suppress(OSError, ValueError):
        return int(Path(f"/proc/{pid}/oom_score_adj").read_text(encoding="ascii"))
    return None
