"""What the names of builds are made of is read right, and does not change with what does not matter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import start_machine
from start_machine import compiler_advice, cpuinfo_features
from start_say import SetupFailed

X86 = """processor\t: 0
model name\t: A
flags\t\t: fpu pni avx avx2 fma f16c bmi2 amx_int8 hypervisor arch_capabilities

processor\t: 1
flags\t\t: fpu pni avx avx2 fma f16c bmi2 hypervisor
"""
ARM = "processor\t: 0\nFeatures\t: fp asimd sve i8mm\n\nprocessor\t: 1\nFeatures\t: fp asimd i8mm\n"


def test_only_what_all_processors_have_counts() -> None:
    assert cpuinfo_features(X86) == ("avx", "avx2", "bmi2", "f16c", "fma", "pni")
    assert cpuinfo_features(ARM) == ("asimd", "fp", "i8mm")
    assert cpuinfo_features("nothing here") == ()


def test_words_of_the_kernel_do_not_change_the_answer_and_features_do() -> None:
    assert cpuinfo_features(X86.replace("hypervisor", "flush_l1d")) == cpuinfo_features(X86)
    assert cpuinfo_features(X86.replace("avx2", "avx2 avx512f")) != cpuinfo_features(X86)


class FakeCompilers:
    """Stands for PATH and for the programs on it; `knows` are those that take the AMX switches."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, found: Sequence[str], knows: Sequence[str] = ()) -> None:
        self._found, self._knows = found, knows
        monkeypatch.setattr(start_machine.shutil, "which", self._which)
        monkeypatch.setattr(start_machine, "quick", self._quick)
        monkeypatch.setattr(start_machine.sys, "platform", "linux")

    def _which(self, name: str, path: str | None = None) -> str | None:
        return name if name in self._found and path is None else None

    def _quick(self, command: Sequence[str], text: str = "") -> tuple[int, str]:
        if "--version" in command:
            return 0, f"{command[0]} 12.2.0\nCopyright"
        return (0 if command[0] in self._knows else 1), ""


def test_both_compilers_are_named_and_both_must_know_the_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCompilers(monkeypatch, ["cc", "c++"], knows=["cc", "c++"])
    assert start_machine._compilers({}) == ("cc 12.2.0; c++ 12.2.0", True)
    FakeCompilers(monkeypatch, ["cc", "c++"], knows=["c++"])
    assert not start_machine._compilers({})[1]


def test_the_users_compiler_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCompilers(monkeypatch, ["cc", "c++", "clang-19"])
    assert start_machine._compilers({"CXX": "clang-19"})[0] == "cc 12.2.0; clang-19 12.2.0"


def test_without_a_compiler_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCompilers(monkeypatch, ["cc", "apt-get"])
    with pytest.raises(SetupFailed, match=r"no C\+\+ compiler.*apt-get install g\+\+"):
        start_machine._compilers({})


@pytest.mark.parametrize(
    ("system", "tools", "words"),
    [
        ("linux", ["apt-get"], "apt-get install g++"),
        ("linux", ["pacman"], "pacman -S gcc"),
        ("linux", [], "package manager"),
        ("darwin", [], "xcode-select"),
    ],
)
def test_a_missing_compiler_names_the_command(system: str, tools: list[str], words: str) -> None:
    assert words in compiler_advice(system, tools)


def test_this_machine_answers() -> None:
    assert start_machine.jobs() >= 1
    if Path("/proc/cpuinfo").exists():
        assert start_machine.features()
