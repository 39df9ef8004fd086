"""Can a window be shown here, and which system libraries does Qt lack? Installs them where that asks nothing."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from start_run import CommandFailed, quick, run
from start_tools import Tools

# Library Qt's xcb platform needs: package by package manager (apt-get, dnf, pacman, zypper).
PACKAGES: dict[str, tuple[str, str, str, str]] = {
    "libxcb-cursor.so.0": ("libxcb-cursor0", "xcb-util-cursor", "xcb-util-cursor", "libxcb-cursor0"),
    "libxcb-icccm.so.4": ("libxcb-icccm4", "xcb-util-wm", "xcb-util-wm", "libxcb-icccm4"),
    "libxcb-keysyms.so.1": ("libxcb-keysyms1", "xcb-util-keysyms", "xcb-util-keysyms", "libxcb-keysyms1"),
    "libxcb-image.so.0": ("libxcb-image0", "xcb-util-image", "xcb-util-image", "libxcb-image0"),
    "libxcb-render-util.so.0": (
        "libxcb-render-util0", "xcb-util-renderutil", "xcb-util-renderutil", "libxcb-render-util0",
    ),
    "libxcb-shape.so.0": ("libxcb-shape0", "libxcb", "libxcb", "libxcb-shape0"),
    "libxcb-randr.so.0": ("libxcb-randr0", "libxcb", "libxcb", "libxcb-randr0"),
    "libxcb-render.so.0": ("libxcb-render0", "libxcb", "libxcb", "libxcb-render0"),
    "libxcb-shm.so.0": ("libxcb-shm0", "libxcb", "libxcb", "libxcb-shm0"),
    "libxcb-sync.so.1": ("libxcb-sync1", "libxcb", "libxcb", "libxcb-sync1"),
    "libxcb-xfixes.so.0": ("libxcb-xfixes0", "libxcb", "libxcb", "libxcb-xfixes0"),
    "libxcb-xkb.so.1": ("libxcb-xkb1", "libxcb", "libxcb", "libxcb-xkb1"),
    "libxkbcommon-x11.so.0": ("libxkbcommon-x11-0", "libxkbcommon-x11", "libxkbcommon-x11", "libxkbcommon-x11-0"),
    "libxkbcommon.so.0": ("libxkbcommon0", "libxkbcommon", "libxkbcommon", "libxkbcommon0"),
    "libX11-xcb.so.1": ("libx11-xcb1", "libX11-xcb", "libx11", "libX11-xcb1"),
    "libxcb.so.1": ("libxcb1", "libxcb", "libxcb", "libxcb1"),
    "libEGL.so.1": ("libegl1", "libglvnd-egl", "libglvnd", "Mesa-libEGL1"),
    "libGL.so.1": ("libgl1", "libglvnd-glx", "libglvnd", "Mesa-libGL1"),
    "libfontconfig.so.1": ("libfontconfig1", "fontconfig", "fontconfig", "libfontconfig1"),
    "libdbus-1.so.3": ("libdbus-1-3", "dbus-libs", "dbus", "libdbus-1-3"),
}  # fmt: skip
MANAGERS = {
    "apt-get": ("apt-get", "install", "-y", "--no-install-recommends"),
    "dnf": ("dnf", "install", "-y"),
    "pacman": ("pacman", "-S", "--noconfirm"),
    "zypper": ("zypper", "install", "-y"),
}


def has_display(environment: Mapping[str, str], platform: str = sys.platform) -> bool:
    """The rule of runtime/cli/start.py."""
    if platform in ("darwin", "win32"):
        return "SSH_CONNECTION" not in environment
    return bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def missing_libraries(ldd: str) -> list[str]:
    """Names `ldd` could not find, each once."""
    return sorted({match.group(1) for match in re.finditer(r"^\s*(\S+) => not found", ldd, re.MULTILINE)})


def packages_for(libraries: list[str], manager: str) -> list[str]:
    column = list(MANAGERS).index(manager)
    return sorted({PACKAGES[library][column] for library in libraries if library in PACKAGES})


def make_ready(tools: Tools) -> bool:
    """True when a window can be opened. Says what it installs, or names the one command that is missing."""
    if not (tools.places.root / "app" / "main.py").is_file():
        return False
    if sys.platform.startswith("linux"):
        missing = _missing(tools)
        if missing and not _install(tools, missing):
            return False
    code, _ = quick([tools.places.python, "-P", "-m", "app.main", "--check"], timeout_s=30)
    if code != 0:
        tools.voice.line("  window         Qt cannot open a window on this display: going on in the terminal")
    return code == 0


def _missing(tools: Tools) -> list[str]:
    # Qt takes Wayland where it can and X11 where that is the only display.
    platform = "libqxcb.so" if tools.environment.get("DISPLAY") else "libqwayland*.so"
    qt = "lib/python3*/site-packages/PySide6/Qt"
    files = [file for name in (f"plugins/platforms/{platform}", "lib/libQt6Widgets.so.6")
             for file in tools.places.venv.glob(f"{qt}/{name}")]  # fmt: skip
    return sorted({name for file in files for name in missing_libraries(quick(["ldd", file])[1])})


def _install(tools: Tools, missing: list[str]) -> bool:
    manager = next((name for name in MANAGERS if shutil.which(name)), None)
    packages = packages_for(missing, manager) if manager else []
    if not packages or manager is None:
        tools.voice.line(f"  window         Qt needs {', '.join(missing)}: going on in the terminal")
        return False
    command = [*MANAGERS[manager], *packages]
    prefix = _root_prefix()
    if prefix is None:
        tools.voice.line(
            f"  window         for the window run once: sudo {' '.join(command)} (going on in the terminal)"
        )
        return False
    tools.voice.step("window", f"installing what Qt needs: {' '.join(packages)}")
    environment = {**tools.environment, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        if manager == "apt-get":
            run("Reading package lists", [*prefix, "apt-get", "update"], log=tools.log, environment=environment)
        run("Installing what Qt needs", [*prefix, *command], log=tools.log, environment=environment)
    except CommandFailed:
        tools.voice.line(f"  window         could not run {' '.join(command)} (see {tools.log.path}): going on without")
        return False
    still = _missing(tools)
    if still:
        tools.voice.line(f"  window         Qt still needs {', '.join(still)}: going on in the terminal")
        return False
    tools.voice.done("system libraries installed")
    return True


def _root_prefix() -> list[str] | None:
    """How to become root without a question; None when that is not possible."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return []
    if shutil.which("sudo") and quick(["sudo", "-n", "true"])[0] == 0:
        return ["sudo", "-n"]
    return None


def window_command(python: Path) -> list[str]:
    return [str(python), "-P", "-m", "app.main"]
