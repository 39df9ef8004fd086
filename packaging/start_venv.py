""".venv and what is installed in it: making it, the project's packages, and whether a build is still the one we put in.

A virtual environment that was moved, half made, or whose Python is gone is made anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from start_machine import as_root
from start_places import Places
from start_run import CommandFailed, quick
from start_run import run as run_logged
from start_say import SetupFailed
from start_tools import AGAIN, Tools

PROBE = "import sys; print(sys.implementation.cache_tag, sys.version_info >= (3, 11))"
INPUTS = ("pyproject.toml", "packaging/constraints.txt")


class Stamps:
    """What was done, in one small JSON file; anything unreadable counts as not done."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            values = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            values = {}
        self._values: dict[str, Any] = values if isinstance(values, dict) else {}

    def get(self, name: str) -> Any:
        return self._values.get(name)

    def put(self, name: str, value: str) -> None:
        self._values[name] = value
        aside = self._path.with_suffix(".tmp")
        aside.write_text(json.dumps(self._values, indent=1), "utf-8")
        os.replace(aside, self._path)

    def forget(self) -> None:
        self._values = {}


def make(tools: Tools, stamps: Stamps) -> None:
    """Raises SetupFailed."""
    places = tools.places
    tag = _python_tag(places.python)
    here = f"{tag} {places.venv}"
    if tag and stamps.get("venv") == here:
        return
    if tag and stamps.get("venv") is None and quick([places.python, "-m", "pip", "--version"])[0] == 0:
        stamps.put("venv", here)
        return
    if places.python.is_symlink() or places.python.exists():
        tools.voice.line("  .venv          was moved or is not whole: making it anew")
    tools.voice.step(".venv", "making the virtual environment")
    _empty(places)
    stamps.forget()
    try:
        run_logged(
            "Making .venv", [sys.executable, "-I", "-m", "venv", places.venv],
            log=tools.log, environment=tools.environment,
        )  # fmt: skip
    except CommandFailed as error:
        _empty(places)
        raise SetupFailed(f"{error}\n{_venv_advice()} {AGAIN}") from error
    stamps.put("venv", f"{_python_tag(places.python)} {places.venv}")
    tools.voice.done(f"Python {sys.version.split()[0]} in {places.venv}")


def _python_tag(python: Path) -> str:
    """Of a Python that runs and is new enough, such as "cpython-311"; "" of any other."""
    code, said = quick([python, "-I", "-c", PROBE]) if python.exists() else (1, "")
    words = said.split()
    return words[0] if code == 0 and words[1:] == ["True"] else ""


def _empty(places: Places) -> None:
    """All but the log, which is open, and the user's folder where it had to be put in .venv."""
    for entry in places.venv.iterdir():
        if entry == places.log or entry == places.data:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _venv_advice(debian: Path = Path("/etc/debian_version")) -> str:
    if debian.exists():
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
        return f"Debian keeps the venv module apart: {as_root('apt-get install ' + package)}."
    return "This Python cannot make virtual environments; take one from python.org or your system's packages."


def install_project(tools: Tools, extras: str) -> None:
    tools.voice.step("packages", "installing what Headrace needs")
    constraints = tools.places.root / "packaging" / "constraints.txt"
    try:
        tools.pip(
            "Installing the packages", "install", "-c", constraints, "-e", f"{tools.places.root}[{extras}]",
            on_line=lambda line: tools.voice.count((line or "installing what Headrace needs").strip()[:80]),
        )  # fmt: skip
    except CommandFailed as error:
        raise SetupFailed(f"{error}\nIs this computer online? {AGAIN}") from error
    tools.voice.done("installed")


def project_stamp(root: Path, extras: str, python: Path) -> str:
    """Changes with the dependencies and with the folder the editable install points to."""
    digest = hashlib.sha256(f"{extras} {root} {python}".encode())
    for name in INPUTS:
        digest.update((root / name).read_bytes())
    return digest.hexdigest()[:16]


def installed_llama(places: Places) -> str:
    """Names the llama-cpp-python that is installed, file by file; "" when there is none."""
    folders = ("Lib/site-packages",) if places.platform == "win32" else ("lib/python3*/site-packages",)
    records = [
        record for folder in folders for record in places.venv.glob(f"{folder}/llama_cpp_python-*.dist-info/RECORD")
    ]
    return hashlib.sha256(records[0].read_bytes()).hexdigest()[:16] if len(records) == 1 else ""
