"""`headrace` without a command: the window where there is a display, else a terminal chat, else the help."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Mapping

from runtime.commands import CHILDREN, argv

# The window's exit code when no window can be opened on this display; it has said why.
NO_WINDOW = 3


def start(help_text: Callable[[], str]) -> int:
    if has_display(os.environ) and window_is_installed():
        code = subprocess.call(argv("window"))
        if code != NO_WINDOW:
            return code
    if sys.stdin.isatty() and sys.stdout.isatty():
        from runtime.cli.talk import Wish, run

        return run(Wish())
    sys.stdout.write(help_text() + "\n")
    return 0


def has_display(environment: Mapping[str, str], platform: str = sys.platform) -> bool:
    if platform in ("win32", "darwin"):
        return "SSH_CONNECTION" not in environment
    return bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def window_is_installed() -> bool:
    """Found by name: the command line never imports the window."""
    return all(_exists(name) for name in ("PySide6", CHILDREN["window"]))


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
