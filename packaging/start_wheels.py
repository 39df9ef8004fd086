"""The llama.cpp builds kept for this user: one folder a recipe, shared by all checkouts.

`keep` and `refuse` change the shelf, each by renames within one disk, under the set-up's lock.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from start_say import SetupFailed

FACTS = "build.json"
REFUSED = "refused.txt"
PATTERN = "llama_cpp_python-*.whl"


def find(folder: Path) -> Path | None:
    """The wheel in this recipe's folder, whole; a damaged one is as good as none."""
    try:
        facts = json.loads((folder / FACTS).read_text("utf-8"))
        wheel = folder / str(facts["wheel"])
        return wheel if sha256(wheel) == facts["sha256"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(built: Path, folder: Path, about: dict[str, Any]) -> Path:
    """Move the wheel's folder, which must be on the same disk, to `folder`, and return the wheel there."""
    facts = {"wheel": built.name, "sha256": sha256(built), **about}
    (built.parent / FACTS).write_text(json.dumps(facts, indent=1), "utf-8")
    forget(folder)
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.replace(built.parent, folder)
    return folder / built.name


def forget(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def refuse(folder: Path, reason: str) -> None:
    """Remember that this recipe's build crashes on this machine, so that no checkout builds it again to find out."""
    forget(folder)
    folder.mkdir(parents=True, mode=0o700)
    (folder / REFUSED).write_text(reason, "utf-8")


def refused(folder: Path) -> str | None:
    """Why, when it was."""
    try:
        return (folder / REFUSED).read_text("utf-8")
    except OSError:
        return None


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_sha256(path: Path, wanted: str) -> None:
    """Raises SetupFailed with both sums."""
    found = sha256(path)
    if found != wanted:
        raise SetupFailed(
            f"{path.name} is not the file that was checked (sha256 {found}, expected {wanted}). "
            "Nothing was installed from it."
        )
