"""A wheel is only found again by a machine and flags it was made for."""

from __future__ import annotations

from dataclasses import replace

import pytest
import start_recipe as recipes
from start_say import SetupFailed

PC = recipes.Machine("linux", "x86_64", ("avx", "avx2", "fma", "amx_int8"), "g++ 12.2.0", knows_amx=True)
MAC = recipes.Machine("darwin", "arm64", ("neon",), "clang 17", knows_amx=False)
GPU = replace(PC, nvcc="cuda 13", gpu="H200, 9.0")


def test_the_plain_build_is_native_without_amx() -> None:
    recipe = recipes.choose(PC)
    assert recipe.backend == "cpu"
    assert recipe.flags == recipes.NO_AMX
    assert dict(recipe.defines)["GGML_NATIVE"] == "ON"


@pytest.mark.parametrize(
    "machine",
    [MAC, replace(PC, knows_amx=False), replace(PC, arch="aarch64")],
    ids=["mac", "old compiler", "arm"],
)
def test_switches_a_compiler_does_not_know_are_left_out(machine: recipes.Machine) -> None:
    assert recipes.choose(machine).flags == ()


def test_backends_follow_the_machine() -> None:
    assert recipes.choose(MAC).backend == "metal"
    assert recipes.choose(GPU).backend == "cuda"
    assert dict(recipes.choose(GPU).defines)["CMAKE_CUDA_ARCHITECTURES"] == "native"
    assert recipes.choose(GPU, "cpu").backend == "cpu"
    with pytest.raises(SetupFailed, match="nvcc"):
        recipes.choose(PC, "cuda")
    with pytest.raises(SetupFailed, match="Apple"):
        recipes.choose(PC, "metal")


def test_the_portable_build_uses_only_what_the_processor_has() -> None:
    defines = dict(recipes.choose(PC, portable=True).defines)
    assert defines["GGML_NATIVE"] == "OFF"
    assert (defines["GGML_AVX2"], defines["GGML_F16C"]) == ("ON", "OFF")


OTHERS = {
    "compiler": replace(PC, compiler="g++ 13"),
    "a feature more": replace(PC, features=(*PC.features, "avx512f")),
    "architecture": replace(PC, arch="aarch64"),
    "system": replace(PC, system="win32"),
    "gpu": replace(PC, gpu="other"),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
def test_the_name_changes_with_the_machine(other: recipes.Machine) -> None:
    recipe = recipes.choose(PC)
    assert recipes.key(recipe, other) != recipes.key(recipe, PC)


def test_the_name_changes_with_every_part_of_the_recipe() -> None:
    recipe = recipes.choose(PC)
    others = [
        replace(recipe, flags=()),
        replace(recipe, backend="cuda"),
        replace(recipe, defines=(*recipe.defines, ("GGML_LTO", "ON"))),
        recipes.choose(PC, portable=True),
    ]
    names = {recipes.key(other, PC) for other in [recipe, *others]}
    assert len(names) == 5
    assert recipes.key(recipe, PC) == recipes.key(recipes.choose(PC), PC)


def test_the_name_check_sees_a_planted_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "asdict", lambda value: value.backend if hasattr(value, "backend") else "")
    recipe = recipes.choose(PC)
    assert recipes.key(replace(recipe, flags=()), PC) == recipes.key(recipe, PC), "the fault did not act"


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
    assert words in recipes.compiler_advice(system, tools)
