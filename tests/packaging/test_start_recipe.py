"""A wheel is only found again by a machine and flags it was made for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import start_recipe as recipes
from start_machine import NO_AMX, Machine
from start_say import SetupFailed

PC = Machine("linux", "x86_64", ("avx", "avx2", "fma", "amx_int8"), "g++ 12.2.0", knows_amx=True)
MAC = Machine("darwin", "arm64", ("neon",), "clang 17", knows_amx=False)
GPU = replace(PC, nvcc="cuda 13", gpu="H200, 9.0")


def test_the_plain_build_is_native_without_amx() -> None:
    recipe = recipes.choose(PC)
    assert recipe.backend == "cpu"
    assert recipe.flags == NO_AMX
    assert dict(recipe.defines)["GGML_NATIVE"] == "ON"


@pytest.mark.parametrize(
    "machine",
    [MAC, replace(PC, knows_amx=False), replace(PC, arch="aarch64")],
    ids=["mac", "old compiler", "arm"],
)
def test_switches_a_compiler_does_not_know_are_left_out(machine: Machine) -> None:
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
    "C library": replace(PC, libc="glibc 2.41"),
    "Python": replace(PC, python="cpython-312"),
    "the user's own flags": replace(PC, steering=(("CFLAGS", "-O0"),)),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
def test_the_name_changes_with_the_machine(other: Machine) -> None:
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


def test_the_name_changes_with_the_file_that_is_injected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = recipes.key(recipes.choose(PC), PC), recipes.edition()
    other = tmp_path / "library_only.cmake"
    other.write_text("set(LLAMA_BUILD_COMMON ON)")
    monkeypatch.setattr(recipes, "LIBRARY_ONLY_FILE", other)
    after = recipes.key(recipes.choose(PC), PC), recipes.edition()
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_a_mac_can_be_built_for_its_processor_alone() -> None:
    assert dict(recipes.choose(MAC).defines)["HEADRACE_METAL"] == "ON"
    assert dict(recipes.choose(MAC, "cpu").defines)["HEADRACE_METAL"] == "OFF"
    assert "HEADRACE_METAL" not in dict(recipes.choose(PC).defines)


def test_the_pin_is_that_of_the_binding() -> None:
    from runtime.llama import library

    assert library.VERSION == recipes.VERSION
