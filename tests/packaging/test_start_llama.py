"""A build that does not run here is made once more, portable, and the user is told in one line."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
import start_llama
import start_recipe as recipes
from start_llama import SelfTestFailed, Tools, bring, check_sha256
from start_places import Places
from start_run import Log
from start_say import SetupFailed, Voice

PC = recipes.Machine("linux", "x86_64", ("avx", "avx2"), "g++ 12.2.0", knows_amx=True)


class FakeBuilds:
    """Stands for pip and the compiler: every build is an empty wheel, and what was built is remembered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.built: list[recipes.Recipe] = []
        self.installed: list[Path] = []
        monkeypatch.setattr(start_llama, "_build", self._build)
        monkeypatch.setattr(start_llama, "_install", lambda tools, wheel: self.installed.append(wheel))

    def _build(self, tools: Tools, recipe: recipes.Recipe, target: Path) -> Path:
        self.built.append(recipe)
        target.mkdir(parents=True)
        wheel = target / f"llama_cpp_python-{recipes.VERSION}-py3-none-any.whl"
        wheel.write_bytes(b"")
        return wheel


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> FakeBuilds:
    return FakeBuilds(monkeypatch)


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    return Tools(Places(tmp_path, tmp_path / "data"), Voice(io.StringIO()), Log(tmp_path / "log"), {})


def said(tools: Tools) -> str:
    return tools.voice._out.getvalue()  # type: ignore[attr-defined]


def go(tools: Tools, self_test: Callable[[], None], wheels: Path | None = None) -> str:
    return bring(tools, PC, backend="auto", portable=False, wheels=wheels, self_test=self_test)


def test_a_good_build_is_kept_and_used_again(tools: Tools, builds: FakeBuilds) -> None:
    go(tools, lambda: None)
    go(tools, lambda: None)
    assert len(builds.built) == 1
    assert len(builds.installed) == 2


def test_a_crash_is_answered_by_one_portable_build(tools: Tools, builds: FakeBuilds) -> None:
    tests = iter([SelfTestFailed("the self-test ended with SIGSEGV"), None])

    def self_test() -> None:
        if (error := next(tests)) is not None:
            raise error

    go(tools, self_test)
    assert [recipe.is_portable for recipe in builds.built] == [False, True]
    lines = [line for line in said(tools).splitlines() if "SIGSEGV" in line]
    assert len(lines) == 1
    assert "portable" in lines[0]


def test_two_crashes_are_an_error(tools: Tools, builds: FakeBuilds) -> None:
    def crash() -> None:
        raise SelfTestFailed("the self-test ended with SIGILL")

    with pytest.raises(SetupFailed, match="SIGILL"):
        go(tools, crash)
    assert len(builds.built) == 2
    assert not list(tools.places.wheels.glob("*/*.whl")), "a wheel that crashes must not be found again"


def test_a_wheel_of_another_recipe_is_not_used(tools: Tools, builds: FakeBuilds) -> None:
    other = tools.places.wheels / recipes.key(recipes.choose(PC, portable=True), PC)
    other.mkdir(parents=True)
    (other / f"llama_cpp_python-{recipes.VERSION}-py3-none-any.whl").write_bytes(b"")
    go(tools, lambda: None)
    assert len(builds.built) == 1
    assert builds.installed[0].parent != other


def test_the_reuse_check_sees_a_planted_fault(
    tools: Tools, builds: FakeBuilds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipes, "key", lambda recipe, machine: "same")  # planted: one name for every recipe
    test_wheel = tools.places.wheels / "same"
    test_wheel.mkdir(parents=True)
    (test_wheel / f"llama_cpp_python-{recipes.VERSION}-py3-none-any.whl").write_bytes(b"")
    go(tools, lambda: None)
    assert not builds.built, "the fault did not act"


def test_a_ready_made_wheel_must_pass_too(tools: Tools, builds: FakeBuilds, tmp_path: Path) -> None:
    with pytest.raises(SetupFailed, match="no llama_cpp_python"):
        go(tools, lambda: None, wheels=tmp_path)
    (tmp_path / f"llama_cpp_python-{recipes.VERSION}-py3-none-any.whl").write_bytes(b"")
    go(tools, lambda: None, wheels=tmp_path)
    assert not builds.built

    def crash() -> None:
        raise SelfTestFailed("SIGSEGV")

    with pytest.raises(SetupFailed, match="SIGSEGV"):
        go(tools, crash, wheels=tmp_path)


def test_a_file_with_another_sum_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.tar.gz"
    file.write_bytes(b"abc")
    check_sha256(file, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    file.write_bytes(b"abd")
    with pytest.raises(SetupFailed, match="sha256"):
        check_sha256(file, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")


def test_progress_names_the_part_and_the_rest(tools: Tools) -> None:
    now = [0.0]
    progress = start_llama.Progress(tools.voice, recipes.choose(PC), clock=lambda: now[0])
    for part in range(1, 21):
        now[0] += 2
        progress.hear(f"  [{part}/100] Building CXX object x.o")
    assert progress._text.endswith("part 20 of 100, about 2 min 40 s left")
