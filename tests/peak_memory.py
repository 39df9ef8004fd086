"""How far the memory of a fresh process rises while it reads model files. Exact, and much faster than tracing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

CHILD = """
import sys
from pathlib import Path
from models import gguf
from models.errors import InvalidModel

def peak():
    if sys.platform == "linux":  # not ru_maxrss, which begins with what the parent had
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024
    if sys.platform == "win32":
        import psutil
        return psutil.Process().memory_info().peak_wset
    import resource
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

read, refused, before = getattr(gguf, sys.argv[1]), 0, peak()
for path in sorted(Path(sys.argv[2]).iterdir()):
    try:
        read(path)
    except InvalidModel:
        refused += 1
print(refused, peak() - before)
"""


class Cost(NamedTuple):
    """Files that were refused, and the bytes by which the peak rose."""

    refused: int
    growth: int


def cost(function: str, folder: Path) -> Cost:
    """Let `function` of models.gguf read every file in `folder`, one after the other in one process."""
    command = [sys.executable, "-c", CHILD, function, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    refused, growth = map(int, done.stdout.split())
    return Cost(refused, growth)
