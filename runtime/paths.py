"""Where Headrace keeps its files for this user, and the one model every installation has.

`HEADRACE_HOME` moves everything; the default follows each platform's custom. Folders are made private to the user.
packaging/start.py states the same rule in its own words, because it runs before anything is installed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from models import limits

STARTER_NAME = "SmolLM2-135M-Instruct"
STARTER_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def data_home() -> Path:
    """The per-user folder, not created here."""
    named = os.environ.get("HEADRACE_HOME")
    if named:
        return Path(named)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "headrace"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "headrace"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "headrace"


def models_home() -> Path:
    return data_home() / "models"


def starter_model_path() -> Path:
    return models_home() / STARTER_FILE


def private_folder(path: Path) -> Path:
    """Create `path` readable by this user only, and return it."""
    path.mkdir(parents=True, exist_ok=True, mode=limits.FOLDER_MODE)
    return path
