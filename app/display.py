"""Whether a window can be shown here, found out without dying: Qt aborts the process when its display plugin fails.

An X display is tried in this process, which takes a moment; anything else is tried by a child that may die of it.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from runtime.commands import argv

CHECK = "--check"
CHECK_S = 20.0
UNUSABLE = 3
MARK = "headrace: "
INSTEAD = "use `headrace chat` in a terminal instead"


def problem(environment: Mapping[str, str]) -> str:
    """What keeps a window from being shown, as one sentence; empty when nothing does."""
    found = missing(environment) or _libraries() or _x11(environment)
    if (
        found
        or not sys.platform.startswith("linux")
        or (_is_x11(environment) and not environment.get("WAYLAND_DISPLAY"))
    ):
        return found
    return _tried_by_child()


def check_here() -> int:
    """Make a QApplication in this process; the exit code. May abort, which is why it is called in a child."""
    _no_core_file()
    found = missing(os.environ) or _libraries() or _x11(os.environ)
    if found:
        sys.stderr.write(f"{MARK}{found}\n")
        return UNUSABLE
    from PySide6.QtWidgets import QApplication

    QApplication([])
    return 0


def missing(environment: Mapping[str, str], platform: str = sys.platform) -> str:
    """What is plainly missing, without loading anything."""
    if importlib.util.find_spec("PySide6") is None:
        return f"the window needs PySide6-Essentials, which is not installed; {INSTEAD}"
    named = any(environment.get(name) for name in ("QT_QPA_PLATFORM", "DISPLAY", "WAYLAND_DISPLAY"))
    if platform.startswith("linux") and not named:
        return f"the window needs a display and there is none; {INSTEAD}"
    return ""


def _libraries() -> str:
    try:
        from PySide6 import QtWidgets  # noqa: F401
    except ImportError as error:
        return f"the window needs a system library ({error}); {INSTEAD}"
    if not keeps_none():
        return f"this build of PySide6 would crash below Python 3.12; install 6.11.3 of it. Until then {INSTEAD}"
    return ""


def keeps_none(call: Callable[[], object] | None = None, calls: int = 100) -> bool:
    """Whether Qt's methods (or `call`) return a None of their own.

    PySide6 6.12.0 gives away one that it does not hold; below Python 3.12, where None is counted, the program dies of
    it after some thousand calls.
    """
    from PySide6.QtCore import QObject

    thing = QObject()
    call = call or partial(thing.setObjectName, "")
    before = sys.getrefcount(None)
    for _ in range(calls):
        call()
    return sys.getrefcount(None) > before - calls // 2


def _is_x11(environment: Mapping[str, str]) -> bool:
    """Whether Qt uses X11 here, or falls back to it when Wayland fails."""
    return bool(environment.get("DISPLAY")) and environment.get("QT_QPA_PLATFORM", "xcb").startswith("xcb")


def _x11(environment: Mapping[str, str]) -> str:
    """Load Qt's X11 plugin, which names the first library it misses, and knock at the display."""
    if not sys.platform.startswith("linux") or not _is_x11(environment):
        return ""
    from PySide6.QtCore import QLibraryInfo

    plugin = Path(QLibraryInfo.path(QLibraryInfo.LibraryPath.PluginsPath), "platforms", "libqxcb.so")
    try:
        ctypes.CDLL(str(plugin))
        xcb = ctypes.CDLL("libxcb.so.1")
    except OSError as error:
        return "" if environment.get("WAYLAND_DISPLAY") else f"the window needs a system library ({error}); {INSTEAD}"
    xcb.xcb_connect.restype = ctypes.c_void_p
    connection = ctypes.c_void_p(xcb.xcb_connect(environment["DISPLAY"].encode(), None))
    refused = xcb.xcb_connection_has_error(connection)
    xcb.xcb_disconnect(connection)
    if refused and not environment.get("WAYLAND_DISPLAY"):
        return f"the display {environment['DISPLAY']} does not answer; {INSTEAD}"
    return ""


def _tried_by_child() -> str:
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(
        argv("window", CHECK), stdin=null, stdout=null, stderr=pipe, text=True, errors="replace"
    ) as child:
        try:
            _, said = child.communicate(timeout=CHECK_S)
        except subprocess.TimeoutExpired:
            child.kill()
            return f"the display did not answer within {CHECK_S:.0f} s; {INSTEAD}"
    if child.returncode == 0:
        return ""
    lines = [line.removeprefix(MARK) for line in said.splitlines() if line.startswith(MARK)]
    return lines[-1] if lines else f"Qt could not use this display; {INSTEAD}"


def _no_core_file() -> None:
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
