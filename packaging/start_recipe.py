"""Which llama.cpp this machine gets: backend, flags, and the name under which the finished wheel is kept.

A recipe is a value; `choose` makes it from facts that are passed in. The name hashes everything the result depends on,
so a wheel made with other flags, by another compiler or for another processor is never taken for this one.
"""

from __future__ import annotations

import hashlib
import json
import sysconfig
from dataclasses import asdict, dataclass
from pathlib import Path

from start_machine import NO_AMX, Machine
from start_say import SetupFailed

VERSION = "0.3.36"
SDIST_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
BACKENDS = ("auto", "cpu", "cuda", "metal")

# Only the libraries: no server, no tools, no image projector. LIBRARY_ONLY_FILE turns off what the binding forces on.
LIBRARY_ONLY = {
    "CMAKE_BUILD_TYPE": "Release",
    "LLAVA_BUILD": "OFF",
    "LLAMA_BUILD_TOOLS": "OFF",
    "LLAMA_BUILD_SERVER": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_OPENSSL": "OFF",
}
LIBRARY_ONLY_FILE = Path(__file__).resolve().with_name("library_only.cmake")
# CMake option of a build that does not ask the compiler what this machine is: the processor feature it needs.
PORTABLE = {
    "GGML_SSE42": "sse4_2",
    "GGML_AVX": "avx",
    "GGML_AVX2": "avx2",
    "GGML_FMA": "fma",
    "GGML_F16C": "f16c",
    "GGML_BMI2": "bmi2",
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """`flags` go to the C and C++ compiler, `defines` to CMake."""

    backend: str
    flags: tuple[str, ...]
    defines: tuple[tuple[str, str], ...]
    is_portable: bool = False

    @property
    def for_people(self) -> str:
        name = {"cpu": "CPU", "cuda": "CUDA", "metal": "Metal"}[self.backend]
        return f"{name}, portable" if self.is_portable else f"{name}, for this machine"


def choose(machine: Machine, backend: str = "auto", *, portable: bool = False) -> Recipe:
    """The build for this machine. Raises SetupFailed for a backend it cannot have."""
    backend = _backend(machine, backend)
    defines = dict(LIBRARY_ONLY)
    defines["GGML_NATIVE"] = "OFF" if portable else "ON"
    if portable and machine.is_x86:
        defines |= {option: "ON" if feature in machine.features else "OFF" for option, feature in PORTABLE.items()}
    if backend == "cuda":
        defines |= {"GGML_CUDA": "ON", "CMAKE_CUDA_ARCHITECTURES": "native"}
    if machine.system == "darwin":
        defines["HEADRACE_METAL"] = "ON" if backend == "metal" else "OFF"
    flags = NO_AMX if machine.is_x86 and machine.knows_amx else ()
    return Recipe(backend, flags, tuple(sorted(defines.items())), portable)


def key(recipe: Recipe, machine: Machine) -> str:
    """The name of this build: 16 hex digits over all it depends on."""
    facts = {
        "version": VERSION,
        "recipe": asdict(recipe),
        "machine": asdict(machine),
        "platform": sysconfig.get_platform(),
        "library_only": LIBRARY_ONLY_FILE.read_text("utf-8"),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def edition() -> str:
    """Changes when this file builds another way than before: a build that is installed already is then stale."""
    rules = [VERSION, SDIST_SHA256, LIBRARY_ONLY, PORTABLE, NO_AMX, LIBRARY_ONLY_FILE.read_text("utf-8")]
    return hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()[:16]


def _backend(machine: Machine, asked: str) -> str:
    apple_silicon = machine.system == "darwin" and machine.arch == "arm64"
    if asked == "auto":
        return "cuda" if machine.nvcc and machine.gpu else "metal" if apple_silicon else "cpu"
    if asked == "cuda" and not (machine.nvcc and machine.gpu):
        raise SetupFailed(
            "--backend cuda needs an NVIDIA GPU (nvidia-smi) and the CUDA toolkit (nvcc): one is missing."
        )
    if asked == "metal" and not apple_silicon:
        raise SetupFailed("--backend metal is for Apple silicon; use --backend cpu here.")
    return asked
