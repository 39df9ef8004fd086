"""A .venv that is whole is used, any other is made anew; the pins agree with each other."""

from __future__ import annotations

import io
import os
import re
import sys
import tomllib
from pathlib import Path

import pytest
import start_venv
from start_places import Places
from start_run import CommandFailed, Log
from start_say import SetupFailed, Voice
from start_tools import Tools
from start_venv import Stamps

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    tools = Tools(Places(tmp_path, tmp_path / ".venv" / "headrace"), Voice(io.StringIO()), Log(tmp_path / "log"), {})
    tools.places.data.mkdir(parents=True)
    return tools


class FakeVenv:
    """Stands for `python -m venv`: links this Python, or fails half-way as Debian's without ensurepip does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = 0
        self.fails = False
        monkeypatch.setattr(start_venv, "run_logged", self._run)

    def _run(self, what: str, command: list[object], *, log: Log, environment: object) -> None:
        self.made += 1
        python = Path(str(command[-1])) / "bin" / "python"
        python.parent.mkdir(parents=True, exist_ok=True)
        python.symlink_to(sys.executable)
        if self.fails:
            raise CommandFailed(what, 1, ["ensurepip is not available"], log.path)


posix = pytest.mark.skipif(os.name == "nt", reason="the fake links Python as POSIX does")


@posix
def test_a_whole_one_is_used_again(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeVenv(monkeypatch)
    for _ in range(3):
        start_venv.make(tools, Stamps(tools.places.stamps))
    assert fake.made == 1


def lose_python(tools: Tools) -> None:
    tools.places.python.unlink()
    tools.places.python.symlink_to("/nowhere/python3.11")


def move(tools: Tools) -> None:
    Stamps(tools.places.stamps).put("venv", f"{sys.implementation.cache_tag} /elsewhere/.venv")


def upgrade_python(tools: Tools) -> None:
    Stamps(tools.places.stamps).put("venv", f"cpython-310 {tools.places.venv}")


@posix
@pytest.mark.parametrize("fault", [lose_python, move, upgrade_python])
def test_one_that_no_longer_fits_is_made_anew(tools: Tools, monkeypatch: pytest.MonkeyPatch, fault: object) -> None:
    fake = FakeVenv(monkeypatch)
    stamps = Stamps(tools.places.stamps)
    start_venv.make(tools, stamps)
    stamps.put("project", "installed")
    (tools.places.data / "model").write_bytes(b"kept")
    assert callable(fault)
    fault(tools)
    stamps = Stamps(tools.places.stamps)
    start_venv.make(tools, stamps)
    assert fake.made == 2
    assert stamps.get("project") is None, "its packages went with it"
    assert (tools.places.data / "model").read_bytes() == b"kept", "the user's folder stays where it had to be in .venv"


@posix
def test_half_a_venv_is_not_left_behind(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeVenv(monkeypatch)
    fake.fails = True
    with pytest.raises(SetupFailed, match="ensurepip"):
        start_venv.make(tools, Stamps(tools.places.stamps))
    assert not tools.places.python.exists()
    fake.fails = False
    start_venv.make(tools, Stamps(tools.places.stamps))
    assert fake.made == 2


def test_stamps_survive_and_damage_counts_as_not_done(tmp_path: Path) -> None:
    path = tmp_path / "setup.json"
    Stamps(path).put("llama", "abc")
    assert Stamps(path).get("llama") == "abc"
    for damage in (b"\0\0{", b"[]"):
        path.write_bytes(damage)
        assert Stamps(path).get("llama") is None


def pins(lines: list[str]) -> dict[str, str]:
    found = (re.match(r"([\w.-]+)==([\w.]+)", line) for line in lines)
    return {match[1].lower().replace("_", "-"): match[2] for match in found if match}


def conflicts(project: dict[str, str], constraints: dict[str, str]) -> set[str]:
    return {name for name, version in constraints.items() if project.get(name, version) != version}


def project_pins() -> dict[str, str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return pins([*project["dependencies"], *(pin for row in project["optional-dependencies"].values() for pin in row)])


def test_the_constraints_do_not_contradict_the_project() -> None:
    constraints = pins((ROOT / "packaging" / "constraints.txt").read_text("utf-8").splitlines())
    assert len(constraints) > 30
    assert not conflicts(project_pins(), constraints)
    assert conflicts(project_pins(), {**constraints, "numpy": "1.0"}) == {"numpy"}, "planted: another numpy"


def test_shiboken_goes_with_pyside() -> None:
    constraints = pins((ROOT / "packaging" / "constraints.txt").read_text("utf-8").splitlines())
    assert constraints["shiboken6"] == project_pins()["pyside6-essentials"]
