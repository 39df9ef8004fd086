"""Where things are: the checkout, its .venv, and the folder kept for this user.

The rule for the user's folder is that of runtime/paths.py, in words that need nothing installed. Where that folder
cannot be written, one inside .venv takes its place and HEADRACE_HOME tells the programs we start.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

STARTER_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


@dataclass(frozen=True, slots=True)
class Places:
    """`note` is one sentence for the user when the folder is not where the rule puts it."""

    root: Path
    data: Path
    note: str = ""
    platform: str = sys.platform

    @property
    def venv(self) -> Path:
        return self.root / ".venv"

    @property
    def python(self) -> Path:
        return self.venv / "Scripts" / "python.exe" if self.platform == "win32" else self.venv / "bin" / "python"

    @property
    def log(self) -> Path:
        return self.venv / "setup.log"

    @property
    def stamps(self) -> Path:
        return self.venv / "setup.json"

    @property
    def lock(self) -> Path:
        return self.data / "setup.lock"

    @property
    def wheels(self) -> Path:
        """llama.cpp builds that passed their self-test, shared by all checkouts of this user."""
        return self.data / "wheels"

    @property
    def starter_model(self) -> Path:
        return self.data / "models" / STARTER_FILE

    @property
    def starter_stamp(self) -> Path:
        return self.data / "starter-model.seen"


def find(root: Path, environment: Mapping[str, str], platform: str = sys.platform) -> Places:
    """Makes the user's folder, or the one that replaces it. Raises OSError when neither can be written."""
    wanted = ""
    try:
        data = data_home(environment, platform)
        wanted = str(data)
        make_private(data)
        return Places(root, data, platform=platform)
    except (OSError, RuntimeError) as error:
        data = root / ".venv" / "headrace"
        make_private(data)
        reason = f"{wanted} cannot be written ({error})" if wanted else f"there is no home folder ({error})"
        note = f"{reason}: models and builds go to {data}; set HEADRACE_HOME to choose another folder."
        return Places(root, data, note, platform)


def data_home(environment: Mapping[str, str], platform: str = sys.platform) -> Path:
    """Raises RuntimeError where this user has no home folder."""
    named = environment.get("HEADRACE_HOME")
    if named:
        return Path(named).absolute()
    if platform == "win32":
        return Path(environment.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "headrace"
    if platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "headrace"
    return Path(environment.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "headrace"


def make_private(folder: Path) -> None:
    """Create `folder` for this user only and prove that it can be written. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryFile(dir=folder):
        pass


def child_environment(places: Places, environment: Mapping[str, str]) -> dict[str, str]:
    """What programs we start see: they must find the same user folder, and no other Python's packages."""
    child = {name: value for name, value in environment.items() if name not in ("PYTHONHOME", "__PYVENV_LAUNCHER__")}
    if places.note or environment.get("HEADRACE_HOME"):
        child["HEADRACE_HOME"] = str(places.data)
    return child


def temporary_folder(places: Places, purpose: str) -> tempfile.TemporaryDirectory[str]:
    """On the same disk as the user's folder, so that what is made there can be renamed into place."""
    return tempfile.TemporaryDirectory(prefix=f".{purpose}-", dir=places.data)


def absolute_root() -> Path:
    return Path(os.path.abspath(__file__)).parent.parent
