"""What the build is told, how far it says it is, and what stands in the way of a wrong source."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import start_build
import start_recipe as recipes
from start_build import Progress
from start_machine import NO_AMX, Machine
from start_places import Places
from start_run import Log
from start_say import Voice
from start_tools import Causes, Tools
from start_wheels import SetupFailed, check_sha256

PC = Machine("linux", "x86_64", ("avx", "avx2"), "g++ 12.2.0", knows_amx=True)


def test_progress_names_the_part_and_the_rest() -> None:
    now = [0.0]
    progress = Progress(Voice(io.StringIO()), recipes.choose(PC), clock=lambda: now[0])
    for part in range(1, 21):
        now[0] += 2
        progress.hear(f"  [{part}/100] /usr/bin/g++ -DA=[9/9] x.cpp")
    assert progress._text.endswith("part 20 of 100, about 2 min 40 s left")


def test_only_the_binding_is_built_from_source() -> None:
    """`:all:` would build CMake itself from source where the system has none."""
    words = start_build.FROM_SOURCE
    assert words[words.index("--no-binary") + 1] == "llama-cpp-python"


def test_the_flags_of_the_recipe_come_before_the_users(tmp_path: Path) -> None:
    environment = {"CFLAGS": "-g", "CMAKE_ARGS": "-DGGML_NATIVE=OFF"}
    tools = Tools(Places(tmp_path, tmp_path), Voice(io.StringIO()), Log(tmp_path / "log"), environment)
    made = start_build._environment(tools, recipes.choose(PC))
    assert made["CFLAGS"] == " ".join([*NO_AMX, "-g"])
    assert made["CXXFLAGS"] == " ".join(NO_AMX)
    assert "CMAKE_ARGS" not in made
    assert " " not in made["PIP_CONSTRAINT"]


def test_a_file_with_another_sum_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.tar.gz"
    file.write_bytes(b"abc")
    check_sha256(file, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    file.write_bytes(b"abd")
    with pytest.raises(SetupFailed, match="sha256"):
        check_sha256(file, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("ld: final link failed: No space left on device", "disk"),
        ("g++: fatal error: Killed signal terminated program cc1plus", "Memory"),
        ("WARNING: Retrying after connection broken by 'NewConnectionError(", "online"),
        ("error: expected ';' before '}' token", ""),
    ],
)
def test_a_known_cause_is_named(line: str, word: str) -> None:
    causes = Causes()
    for heard in ("Collecting x", line, "ERROR: Failed to build"):
        causes.hear(heard)
    assert (word in causes.cause) if word else not causes.cause
