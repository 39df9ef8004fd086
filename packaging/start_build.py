"""Builds the llama-cpp-python wheel of a recipe from the pinned source, and shows how far it is."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import start_machine
import start_recipe as recipes
import start_wheels as wheels
from start_places import temporary_folder
from start_run import CommandFailed
from start_say import SetupFailed, Voice, duration
from start_tools import AGAIN, Tools

PACKAGE = f"llama-cpp-python=={recipes.VERSION}"
# Only this one from source: CMake and ninja, where the system has none, must come as wheels.
FROM_SOURCE = ("--no-deps", "--no-cache-dir", "--no-binary", "llama-cpp-python")


class BuildFailed(SetupFailed):
    """The source is right and did not compile here."""


def build(tools: Tools, recipe: recipes.Recipe, folder: Path) -> Path:
    """Build and keep the wheel in `folder`. Raises BuildFailed, or SetupFailed for what a build cannot help."""
    tools.voice.step("llama.cpp", "fetching the source (77 MB)")
    with temporary_folder(tools.places, "build") as name:
        work = Path(name)
        source = _source(tools, work)
        progress = Progress(tools.voice, recipe)
        try:
            tools.with_environment(_environment(tools, recipe)).pip(
                "Building llama.cpp", "wheel", "-v", *FROM_SOURCE, "-w", work / "out", *_settings(recipe), source,
                on_line=progress.hear,
            )  # fmt: skip
        except CommandFailed as error:
            raise BuildFailed(
                f"{error}\nIf a compiler or a library is missing: {start_machine.compiler_advice()}. {AGAIN}"
            ) from error
        built = sorted((work / "out").glob(wheels.PATTERN))
        if not built:
            raise SetupFailed(f"The build ended without a wheel. The whole log: {tools.log.path}")
        return wheels.keep(built[0], folder, {"recipe": asdict(recipe)})


def _source(tools: Tools, work: Path) -> Path:
    folder = work / "source"
    tools.pip("Fetching the source of llama.cpp", "download", *FROM_SOURCE, "-d", folder, PACKAGE)
    found = sorted(folder.glob("llama_cpp_python-*.tar.gz"))
    if not found:
        raise SetupFailed(f"pip brought no source of {PACKAGE}. The whole log: {tools.log.path}")
    wheels.check_sha256(found[0], recipes.SDIST_SHA256)
    return found[0]


def _settings(recipe: recipes.Recipe) -> list[str]:
    """What the binding's build system is told. Without ninja (from PyPI if need be) there is no count of parts."""
    injected = ("CMAKE_PROJECT_llama_cpp_INCLUDE", recipes.LIBRARY_ONLY_FILE.as_posix())
    defines = [f"cmake.define.{option}={value}" for option, value in (*recipe.defines, injected)]
    return [f"--config-settings={setting}" for setting in [*defines, "ninja.make-fallback=false"]]


def _environment(tools: Tools, recipe: recipes.Recipe) -> dict[str, str]:
    environment = {k: v for k, v in tools.environment.items() if k not in ("CMAKE_ARGS", "FORCE_CMAKE")}
    for name in ("CFLAGS", "CXXFLAGS"):
        environment[name] = " ".join([*recipe.flags, environment.get(name, "")]).strip()
    # By address, because pip splits these at spaces; the second name is for pip 25.3 and newer.
    pins = (tools.places.root / "packaging" / "constraints.txt").as_uri()
    environment |= {"PIP_CONSTRAINT": pins, "PIP_BUILD_CONSTRAINT": pins}
    environment.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(start_machine.jobs()))
    nvcc = start_machine.nvcc_path()
    if recipe.backend == "cuda" and nvcc:
        environment.setdefault("CUDACXX", nvcc)
    return environment


class Progress:
    """Reads ninja's [n/m] from the build's output and says how long the rest may take."""

    def __init__(self, voice: Voice, recipe: recipes.Recipe, clock: Callable[[], float] = time.monotonic) -> None:
        self._voice = voice
        self._recipe = recipe
        self._clock = clock
        self._began = clock()
        self._first: tuple[int, float] | None = None
        self._text = f"building ({recipe.for_people}; some minutes, once)"

    def hear(self, line: str | None) -> None:
        found = re.match(r"\s*\[(\d+)/(\d+)\]", line or "")
        if found:
            self._text = self._say(int(found.group(1)), int(found.group(2)))
        self._voice.count(f"{self._text}, {duration(self._clock() - self._began)} so far")

    def _say(self, done: int, total: int) -> str:
        now = self._clock()
        if self._first is None or done <= self._first[0]:
            self._first = done, now
        rest = ""
        if done > self._first[0] + 5:
            left = (now - self._first[1]) / (done - self._first[0]) * (total - done)
            rest = f", about {duration(left)} left"
        return f"building ({self._recipe.for_people}), part {done} of {total}{rest}"
