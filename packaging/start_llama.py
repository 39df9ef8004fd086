"""Brings a llama-cpp-python that works on this machine: found, or built, and proved by a child that uses it.

A build that crashes in the self-test is repeated once with portable flags. Finished wheels are kept for all checkouts
of this user under the name of their recipe; of one that crashed its name is kept, so that it is not tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import start_recipe as recipes
import start_wheels as wheels
from start_build import BuildFailed, build
from start_machine import Machine
from start_run import CommandFailed, ending, run
from start_say import SetupFailed
from start_tools import Tools

SELF_TEST_S = 300.0


class SelfTestFailed(SetupFailed):
    """The build does not work here. `how` is a word or two, such as "SIGSEGV"."""

    def __init__(self, how: str, log: Path) -> None:
        super().__init__(f"the self-test ended with {how}; see {log}")
        self.how = how


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for on the command line. `wheels` is a folder with ready-made wheels."""

    backend: str = "auto"
    portable: bool = False
    wheels: Path | None = None


def bring(tools: Tools, wish: Wish, inspect: Callable[[], Machine], self_test: Callable[[], None]) -> None:
    """Install a build that passes `self_test`. Raises SetupFailed. A ready-made wheel needs no look at the machine."""
    if wish.wheels is not None and _ready_made(tools, wish.wheels, self_test):
        return
    machine = inspect()
    recipe = recipes.choose(machine, wish.backend, portable=wish.portable)
    try:
        _working(tools, machine, recipe, self_test)
    except BuildFailed as error:
        if wish.backend != "auto" or recipe.backend == "cpu":
            raise
        tools.log.write(str(error))
        _say(tools, f"could not be built for {recipe.for_people} (see {tools.log.path}): building for the processor")
        _working(tools, machine, recipes.choose(machine, "cpu", portable=wish.portable), self_test)


def self_test(tools: Tools) -> None:
    """A child decodes a prompt of 100 tokens: a build that crashes does it there, not in the user's chat."""
    tools.voice.count("self-test")
    command: list[str | Path] = [tools.places.python, "-P", "-m", "runtime.llama.selftest", "--model"]
    command.append(tools.places.starter_model)
    try:
        run("The self-test", command, log=tools.log, environment=tools.environment, timeout_s=SELF_TEST_S)
    except CommandFailed as error:
        raise SelfTestFailed(ending(error.code), tools.log.path) from error


def _working(tools: Tools, machine: Machine, recipe: recipes.Recipe, self_test: Callable[[], None]) -> None:
    """This recipe, or the same backend with portable flags when its build crashes."""
    folder = _folder(tools, recipe, machine)
    portable = recipes.choose(machine, recipe.backend, portable=True)
    known = wheels.refused(folder)
    if known is not None and not recipe.is_portable:
        _say(tools, f"the build for this machine crashed here before ({known}): using portable flags")
        _one(tools, portable, _folder(tools, portable, machine), self_test)
        return
    try:
        _one(tools, recipe, folder, self_test)
    except SelfTestFailed as error:
        if recipe.is_portable:
            raise
        _say(tools, f"this build does not run here ({error}): building again with portable flags")
        _one(tools, portable, _folder(tools, portable, machine), self_test)
        # Only now is it certain that the build was to blame and not, say, a damaged model.
        wheels.refuse(folder, error.how)


def _one(tools: Tools, recipe: recipes.Recipe, folder: Path, self_test: Callable[[], None]) -> None:
    wheel = wheels.find(folder)
    if wheel is None:
        wheel = build(tools, recipe, folder)
    else:
        tools.voice.step("llama.cpp", f"using the build made earlier ({recipe.for_people})")
    _install(tools, wheel)
    try:
        self_test()
    except SelfTestFailed:
        # A wheel that fails must not be found again, here or in another checkout.
        wheels.forget(folder)
        raise
    tools.voice.done(f"{recipes.VERSION} ({recipe.for_people}), self-test passed")


def _ready_made(tools: Tools, folder: Path, self_test: Callable[[], None]) -> bool:
    """Whether a wheel in `folder` works here. Raises SetupFailed when there is none of our version."""
    found = sorted(folder.glob(f"llama_cpp_python-{recipes.VERSION}-*.whl"))
    if not found:
        raise SetupFailed(f"There is no llama_cpp_python-{recipes.VERSION} wheel in {folder}.")
    for wheel in found:
        tools.voice.step("llama.cpp", f"trying {wheel.name}")
        try:
            _install(tools, wheel)
            self_test()
        except (SelfTestFailed, CommandFailed) as error:
            reason = str(error) if isinstance(error, SelfTestFailed) else f"pip refused it, see {tools.log.path}"
            _say(tools, f"{wheel.name} does not run here ({reason}): building instead")
            continue
        tools.voice.done(f"{wheel.name}, self-test passed")
        return True
    return False


def _folder(tools: Tools, recipe: recipes.Recipe, machine: Machine) -> Path:
    return tools.places.wheels / recipes.key(recipe, machine)


def _say(tools: Tools, text: str) -> None:
    tools.voice.line(f"  llama.cpp      {text}")


def _install(tools: Tools, wheel: Path) -> None:
    # --no-deps: the parts we use need numpy only, and the package's disk cache keeps pickles.
    tools.pip("Installing llama.cpp", "install", "--no-deps", "--no-index", "--force-reinstall", wheel)
