"""A build that does not run here is made once more, portable, and the user is told in one line."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import start_llama
import start_recipe as recipes
import start_wheels as wheels
from start_build import BuildFailed
from start_llama import SelfTestFailed, Wish, bring
from start_machine import Machine
from start_places import Places
from start_run import CommandFailed, Log
from start_say import SetupFailed, Voice
from start_tools import Tools

PC = Machine("linux", "x86_64", ("avx", "avx2"), "g++ 12.2.0", knows_amx=True)
GPU = replace(PC, nvcc="cuda 13", gpu="H200, 9.0")
PLAIN = Wish()
WHEEL = f"llama_cpp_python-{recipes.VERSION}-py3-none-any.whl"


class FakeBuilds:
    """Stands for pip and the compiler: a wheel's content is its recipe, and what was built is remembered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.built: list[recipes.Recipe] = []
        self.installed: list[Path] = []
        self.uncompilable: tuple[str, ...] = ()
        monkeypatch.setattr(start_llama, "build", self._build)
        monkeypatch.setattr(start_llama, "_install", lambda tools, wheel: self.installed.append(wheel))

    def _build(self, tools: Tools, recipe: recipes.Recipe, folder: Path) -> Path:
        self.built.append(recipe)
        if recipe.backend in self.uncompilable:
            raise BuildFailed("nvcc does not know this gcc")
        return put_wheel(tools, folder, recipe)


def put_wheel(tools: Tools, folder: Path, recipe: recipes.Recipe) -> Path:
    out = tools.places.data / "out"
    out.mkdir(parents=True)
    (out / WHEEL).write_text(repr(recipe), "utf-8")
    return wheels.keep(out / WHEEL, folder, {"recipe": asdict(recipe)})


class CrashOn:
    """A self-test that dies on the builds `bad` says, as told by the wheel installed last."""

    def __init__(self, builds: FakeBuilds, bad: Callable[[str], bool], how: str = "SIGSEGV") -> None:
        self._builds = builds
        self._bad = bad
        self._how = how
        self.runs = 0

    def __call__(self) -> None:
        self.runs += 1
        if self._bad(self._builds.installed[-1].read_text("utf-8")):
            raise SelfTestFailed(self._how, Path("log"))


def native(wheel: str) -> bool:
    return "is_portable=False" in wheel


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> FakeBuilds:
    return FakeBuilds(monkeypatch)


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[Tools]:
    log = Log(tmp_path / "log")
    yield Tools(Places(tmp_path, tmp_path / "data"), Voice(io.StringIO()), log, {})
    log.close()


def said(tools: Tools) -> str:
    return tools.voice._out.getvalue()  # type: ignore[attr-defined]


def go(tools: Tools, self_test: Callable[[], None] = lambda: None, wish: Wish = PLAIN, machine: Machine = PC) -> None:
    bring(tools, wish, lambda: machine, self_test)


def folder(tools: Tools, recipe: recipes.Recipe, machine: Machine = PC) -> Path:
    return tools.places.wheels / recipes.key(recipe, machine)


def test_a_good_build_is_kept_and_used_again(tools: Tools, builds: FakeBuilds) -> None:
    go(tools)
    go(tools)
    assert len(builds.built) == 1
    assert len(builds.installed) == 2


def test_a_crash_is_answered_by_one_portable_build(tools: Tools, builds: FakeBuilds) -> None:
    go(tools, CrashOn(builds, native))
    assert [recipe.is_portable for recipe in builds.built] == [False, True]
    lines = [line for line in said(tools).splitlines() if "SIGSEGV" in line]
    assert len(lines) == 1
    assert "portable" in lines[0]


def test_the_next_checkout_does_not_try_the_crashing_build_again(tools: Tools, builds: FakeBuilds) -> None:
    go(tools, CrashOn(builds, native))
    again = CrashOn(builds, native)
    go(tools, again)
    assert len(builds.built) == 2, "nothing was built a second time"
    assert again.runs == 1
    assert sum("crashed here before (SIGSEGV)" in line for line in said(tools).splitlines()) == 1


def test_the_memory_of_crashes_sees_a_planted_fault(
    tools: Tools, builds: FakeBuilds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheels, "refuse", lambda folder, reason: None)  # planted: nothing is remembered
    go(tools, CrashOn(builds, native))
    go(tools, CrashOn(builds, native))
    assert [recipe.is_portable for recipe in builds.built] == [False, True, False], "the fault did not act"


def test_two_crashes_are_an_error_and_blame_no_build(tools: Tools, builds: FakeBuilds) -> None:
    with pytest.raises(SetupFailed, match="SIGILL"):
        go(tools, CrashOn(builds, lambda wheel: True, "SIGILL"))
    assert len(builds.built) == 2
    assert not list(tools.places.wheels.glob("*/*.whl")), "a wheel that crashes must not be found again"
    assert wheels.refused(folder(tools, recipes.choose(PC))) is None, "a damaged model would fail every build"


def test_a_wheel_of_another_recipe_is_not_used(tools: Tools, builds: FakeBuilds) -> None:
    portable = recipes.choose(PC, portable=True)
    other = put_wheel(tools, folder(tools, portable), portable)
    go(tools)
    assert len(builds.built) == 1
    assert builds.installed[0] != other


def test_the_reuse_check_sees_a_planted_fault(
    tools: Tools, builds: FakeBuilds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipes, "key", lambda recipe, machine: "same")  # planted: one name for every recipe
    put_wheel(tools, tools.places.wheels / "same", recipes.choose(PC, portable=True))
    go(tools)
    assert not builds.built, "the fault did not act"


def test_a_damaged_wheel_is_built_again(tools: Tools, builds: FakeBuilds) -> None:
    go(tools)
    builds.installed[0].write_bytes(b"")
    go(tools)
    assert len(builds.built) == 2
    assert builds.installed[-1].stat().st_size > 0


def test_a_gpu_build_that_does_not_compile_is_replaced_by_one_for_the_processor(
    tools: Tools, builds: FakeBuilds
) -> None:
    builds.uncompilable = ("cuda",)
    go(tools, machine=GPU)
    assert [recipe.backend for recipe in builds.built] == ["cuda", "cpu"]
    assert "building for the processor" in said(tools)
    with pytest.raises(BuildFailed):
        go(tools, wish=Wish("cuda"), machine=GPU)


def no_look(_: object = None) -> Machine:
    raise SetupFailed("there is no compiler")


def test_a_ready_made_wheel_needs_no_compiler(tools: Tools, builds: FakeBuilds, tmp_path: Path) -> None:
    wish = Wish(wheels=tmp_path)
    with pytest.raises(SetupFailed, match="no llama_cpp_python"):
        bring(tools, wish, no_look, lambda: None)
    (tmp_path / WHEEL).write_bytes(b"")
    bring(tools, wish, no_look, lambda: None)
    assert builds.installed == [tmp_path / WHEEL]
    assert not builds.built


@pytest.mark.parametrize("fault", ["crash", "pip"])
def test_a_ready_made_wheel_that_does_not_work_is_replaced_by_a_build(
    tools: Tools, builds: FakeBuilds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    (tmp_path / WHEEL).write_text("ready-made", "utf-8")
    if fault == "pip":
        monkeypatch.setattr(start_llama, "_install", refusing(builds, tmp_path / WHEEL))
    go(tools, CrashOn(builds, lambda wheel: wheel == "ready-made"), Wish(wheels=tmp_path))
    assert [recipe.is_portable for recipe in builds.built] == [False]
    assert sum("building instead" in line for line in said(tools).splitlines()) == 1


def refusing(builds: FakeBuilds, bad: Path) -> Callable[[Tools, Path], None]:
    def install(tools: Tools, wheel: Path) -> None:
        if wheel == bad:
            raise CommandFailed("pip", 1, ["not a supported wheel on this platform"], tools.log.path)
        builds.installed.append(wheel)

    return install
