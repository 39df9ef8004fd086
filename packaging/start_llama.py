"""Brings a llama-cpp-python that works on this machine: found, or built, and proved by a child that uses it.

A build that crashes in the self-test is repeated once with portable flags. Finished wheels are kept for all checkouts
of this user under the name of their recipe.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import start_recipe as recipes
from start_places import Places, temporary_folder
from start_run import CommandFailed, Log, run
from start_say import SetupFailed, Voice, duration

PACKAGE = f"llama-cpp-python=={recipes.VERSION}"


class SelfTestFailed(SetupFailed):
    """The build does not work here; the message says how it ended."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What a set-up works with."""

    places: Places
    voice: Voice
    log: Log
    environment: Mapping[str, str]

    def pip(self, what: str, *arguments: str | Path, on_line: Callable[[str | None], None] = lambda _: None) -> None:
        command = [self.places.python, "-m", "pip", "--disable-pip-version-check", *arguments]
        run(what, command, log=self.log, environment=self.environment, on_line=on_line)


def bring(
    tools: Tools,
    machine: recipes.Machine,
    *,
    backend: str,
    portable: bool,
    wheels: Path | None,
    self_test: Callable[[], None],
) -> str:
    """Install a build that passes `self_test` and return its key. Raises SetupFailed."""
    if wheels is not None:
        return _ready_made(tools, wheels, self_test)
    recipe = recipes.choose(machine, backend, portable=portable)
    try:
        return _one(tools, recipe, machine, self_test)
    except SelfTestFailed as error:
        if recipe.is_portable:
            raise
        tools.voice.line(f"  llama.cpp      this build does not run here ({error}): building again with portable flags")
        return _one(tools, recipes.choose(machine, backend, portable=True), machine, self_test)


def _one(tools: Tools, recipe: recipes.Recipe, machine: recipes.Machine, self_test: Callable[[], None]) -> str:
    name = recipes.key(recipe, machine)
    kept = kept_wheel(tools.places.wheels / name)
    if kept is None:
        kept = _build(tools, recipe, tools.places.wheels / name)
    else:
        tools.voice.step("llama.cpp", f"using the build made earlier ({recipe.for_people})")
    _install(tools, kept)
    try:
        self_test()
    except SelfTestFailed:
        # A wheel that fails must not be found again, here or in another checkout.
        shutil.rmtree(kept.parent, ignore_errors=True)
        raise
    tools.voice.done(f"{recipes.VERSION} ({recipe.for_people}), self-test passed")
    return name


def kept_wheel(folder: Path) -> Path | None:
    found = sorted(folder.glob("llama_cpp_python-*.whl"))
    return found[0] if found else None


def _ready_made(tools: Tools, folder: Path, self_test: Callable[[], None]) -> str:
    found = sorted(folder.glob(f"llama_cpp_python-{recipes.VERSION}-*.whl"))
    if not found:
        raise SetupFailed(f"There is no llama_cpp_python-{recipes.VERSION} wheel in {folder}.")
    tools.voice.step("llama.cpp", f"trying {found[0].name}")
    _install(tools, found[0])
    self_test()
    tools.voice.done(f"{found[0].name}, self-test passed")
    return "ready-made-" + hashlib.sha256(found[0].read_bytes()).hexdigest()[:16]


def _install(tools: Tools, wheel: Path) -> None:
    # --no-deps: the parts we use need numpy only, and the package's disk cache keeps pickles.
    tools.pip("Installing llama.cpp", "install", "--no-deps", "--force-reinstall", wheel)


def _build(tools: Tools, recipe: recipes.Recipe, target: Path) -> Path:
    tools.voice.step("llama.cpp", "fetching the source")
    with temporary_folder(tools.places, "build") as name:
        work = Path(name)
        source = _source(tools, work)
        progress = Progress(tools.voice, recipe)
        defines = [f"--config-settings=cmake.define.{option}={value}" for option, value in recipe.defines]
        try:
            Tools(tools.places, tools.voice, tools.log, _build_environment(tools, recipe)).pip(
                "Building llama.cpp", "wheel", "-v", "--no-deps", "--no-cache-dir",
                "--no-binary", "llama-cpp-python", "-w", work / "out", *defines, source,
                on_line=progress.hear,
            )  # fmt: skip
        except CommandFailed as error:
            raise SetupFailed(
                f"{error}\nIf a compiler or a library is missing: {recipes.compiler_advice()}. Then run the same "
                "command again, it goes on from here."
            ) from error
        built = kept_wheel(work / "out")
        if built is None:
            raise SetupFailed(f"The build ended without a wheel. The whole log: {tools.log.path}")
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        (work / "out" / "recipe.json").write_text(json.dumps(dict(recipe.defines) | {"flags": " ".join(recipe.flags)}))
        os.replace(work / "out", target)
    kept = kept_wheel(target)
    assert kept is not None
    return kept


def _source(tools: Tools, work: Path) -> Path:
    tools.pip(
        "Fetching the source of llama.cpp", "download", "--no-deps", "--no-cache-dir", "--no-binary", ":all:",
        "-d", work / "source", PACKAGE,
    )  # fmt: skip
    found = sorted((work / "source").glob("llama_cpp_python-*.tar.gz"))
    if not found:
        raise SetupFailed(f"pip brought no source of {PACKAGE}. The whole log: {tools.log.path}")
    check_sha256(found[0], recipes.SDIST_SHA256)
    return found[0]


def check_sha256(path: Path, wanted: str) -> None:
    """Raises SetupFailed with both sums."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != wanted:
        raise SetupFailed(
            f"{path.name} is not the file that was checked (sha256 {digest.hexdigest()}, expected {wanted}). "
            "Nothing was installed from it."
        )


def _build_environment(tools: Tools, recipe: recipes.Recipe) -> dict[str, str]:
    environment = {k: v for k, v in tools.environment.items() if k not in ("CMAKE_ARGS", "FORCE_CMAKE")}
    for name in ("CFLAGS", "CXXFLAGS"):
        environment[name] = " ".join([*recipe.flags, environment.get(name, "")]).strip()
    environment["CMAKE_BUILD_PARALLEL_LEVEL"] = str(os.cpu_count() or 1)
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
        found = re.search(r"\[(\d+)/(\d+)\]", line or "")
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
