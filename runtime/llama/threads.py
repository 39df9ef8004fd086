"""How many threads to compute with. ggml's threads spin at every layer's barrier, so one too many stalls them all."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

CPU_FOLDER = Path("/sys/devices/system/cpu")
QUOTA_FILE = Path("/sys/fs/cgroup/cpu.max")


def default_threads() -> int:
    """Physical cores this process may use, at least 1: its CPU affinity and a container's quota are honoured."""
    cores = _linux_cores(_allowed()) if sys.platform == "linux" else _physical_cores()
    quota = _quota() if sys.platform == "linux" else None
    return max(1, min(cores, quota) if quota else cores)


def count_cores(allowed: set[int], siblings: dict[int, str]) -> int:
    """Distinct cores among `allowed` CPUs. `siblings` names the threads of each CPU's core; a CPU not named is one."""
    return len({siblings.get(cpu, str(cpu)) for cpu in allowed})


def parse_quota(text: str) -> int | None:
    """Whole CPUs of a cgroup v2 cpu.max line ("200000 100000" is 2), rounded up; None for no limit."""
    quota, _, period = text.strip().partition(" ")
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:
        return None
    return max(1, math.ceil(int(quota) / int(period)))


def _allowed() -> set[int]:
    getaffinity = getattr(os, "sched_getaffinity", None)
    return getaffinity(0) if getaffinity is not None else set(range(os.cpu_count() or 1))


def _linux_cores(allowed: set[int]) -> int:
    siblings = {}
    for cpu in allowed:
        try:
            siblings[cpu] = (CPU_FOLDER / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip()
        except OSError:
            continue
    return count_cores(allowed, siblings)


def _quota() -> int | None:
    try:
        return parse_quota(QUOTA_FILE.read_text())
    except OSError:
        return None


def _physical_cores() -> int:
    """macOS and Windows. psutil may not be installed yet when the self-test of a fresh build asks."""
    try:
        import psutil
    except ImportError:
        return os.cpu_count() or 1
    return psutil.cpu_count(logical=False) or os.cpu_count() or 1
