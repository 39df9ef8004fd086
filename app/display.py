"""Whether a window can be shown here, found out without dying: Qt aborts the process when its display plugin fails."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from runtime.commands import argv

CHECK = "--check"
CHECK_S = 20.0
UNUSABLE = 3
MARK = "headrace: "


def start_check() -> subprocess.Popen[str]:
    """A child that makes a QApplication, or fails to."""
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(argv("window", CHECK), stdin=null, stdout=null, stderr=pipe, text=True, errors="replace")


def verdict(check: subprocess.Popen[str]) -> str:
    """What is wrong, as one sentence; empty when nothing is."""
    try:
        _, said = check.communicate(timeout=CHECK_S)
    except subprocess.TimeoutExpired:
        check.kill()
        check.communicate()
        return f"the window cannot be opened: the display did not answer within {CHECK_S:.0f} s"
    if check.returncode == 0:
        return ""
    lines = [line.removeprefix(MARK) for line in said.splitlines() if line.startswith(MARK)]
    return lines[-1] if lines else "the window cannot be opened: Qt could not use this display"


def missing(environment: Mapping[str, str], platform: str = sys.platform) -> str:
    """What is plainly missing, without starting anything; empty when nothing is."""
    if importlib.util.find_spec("PySide6") is None:
        return "the window needs PySide6-Essentials, which is not installed; use `headrace chat` in a terminal instead"
    named = environment.get("QT_QPA_PLATFORM") or environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")
    if platform.startswith("linux") and not named:
        return "the window needs a display and there is none; use `headrace chat` in a terminal instead"
    return ""


def check_here() -> int:
    """Make a QApplication in this process; the exit code. May abort, which is why it runs in a child."""
    _no_core_file()
    problem = missing(os.environ) or _libraries(os.environ)
    if problem:
        sys.stderr.write(f"{MARK}{problem}\n")
        return UNUSABLE
    from PySide6.QtWidgets import QApplication

    QApplication([])
    return 0


def _libraries(environment: Mapping[str, str]) -> str:
    """The first system library that Qt needs and the linker does not find, by name."""
    try:
        from PySide6 import QtWidgets
    except ImportError as error:
        return f"the window needs a system library: {error}"
    wants_x11 = environment.get("QT_QPA_PLATFORM", "xcb").startswith("xcb") and environment.get("DISPLAY")
    plugin = Path(QtWidgets.__file__).parent / "Qt" / "plugins" / "platforms" / "libqxcb.so"
    if sys.platform.startswith("linux") and wants_x11 and plugin.is_file() and not environment.get("WAYLAND_DISPLAY"):
        try:
            ctypes.CDLL(str(plugin))
        except OSError as error:
            return f"the window needs a system library: {error}"
    return ""


def _no_core_file() -> None:
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
