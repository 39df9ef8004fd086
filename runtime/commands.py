"""How each child process is started: a frozen application has no `python -m`, and this table is the one place to know.

The modules are named, never imported: the service starts a worker without seeing the engine.
"""

from __future__ import annotations

import sys

CHILDREN = {
    "worker": "runtime.worker.main",
    "render": "runtime.render.main",
    "probe": "runtime.llama.probe",
    "selftest": "runtime.llama.selftest",
    "service": "runtime.service.main",
    "window": "app.main",
}


def argv(kind: str, *arguments: str) -> list[str]:
    """Command line that starts child `kind`. Raises KeyError for a kind that is not in the table."""
    module = CHILDREN[kind]
    if getattr(sys, "frozen", False):
        return [sys.executable, "--child", kind, *arguments]
    # -P keeps the current folder off sys.path: a file named like one of our modules must not be imported from there.
    return [sys.executable, "-P", "-m", module, *arguments]
