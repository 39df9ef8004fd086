"""Which llama.cpp this machine gets: backend, flags, and the name under which the finished wheel is kept.

A recipe is a value; `choose` makes it from facts that are passed in. The name hashes everything the result depends on,
so a wheel made with other flags, by another compiler or for another processor is never taken for this one.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from start_run import quick
from start_say import SetupFailed

VERSION = "0.3.36"
SDIST_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
BACKENDS = ("auto", "cpu", "cuda", "metal")

# gcc drops the tile configuration of AMX code under -march=native, and the first long prompt crashes:
# https://github.com/ggml-org/llama.cpp/issues/20824
NO_AMX = ("-mno-amx-tile", "-mno-amx-int8", "-mno-amx-bf16")
# Only the libraries: no server, no tools, no image projector; half the build time.
LIBRARY_ONLY = {
    "LLAVA_BUILD": "OFF",
    "LLAMA_BUILD_TOOLS": "OFF",
    "LLAMA_BUILD_SERVER": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_OPENSSL": "OFF",
}
# CMake option of a build that does not ask the compiler what this machine is: the processor feature it needs.
PORTABLE = {"GGML_AVX": "avx", "GGML_AVX2": "avx2", "GGML_FMA": "fma", "GGML_F16C": "f16c", "GGML_BMI2": "bmi2"}


@dataclass(frozen=True, slots=True)
class Machine:
    """What a recipe depends on. `features` are the processor's, sorted; the rest are version lines, "" when absent."""

    system: str
    arch: str
    features: tuple[str, ...]
    compiler: str
    knows_amx: bool
    nvcc: str = ""
    gpu: str = ""

    @property
    def is_x86(self) -> bool:
        return self.arch.lower() in ("x86_64", "amd64")


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
    flags = NO_AMX if machine.is_x86 and machine.knows_amx else ()
    return Recipe(backend, flags, tuple(sorted(defines.items())), portable)


def key(recipe: Recipe, machine: Machine) -> str:
    """The name of this build: 16 hex digits over all it depends on."""
    facts = {
        "version": VERSION,
        "recipe": asdict(recipe),
        "machine": asdict(machine),
        "platform": sysconfig.get_platform(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def inspect() -> Machine:
    """This machine. Raises SetupFailed with the command to run when there is no C++ compiler."""
    compiler, knows_amx = _compiler()
    nvcc, gpu = "", ""
    if shutil.which("nvcc") and shutil.which("nvidia-smi"):
        code, said = quick(["nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader"])
        if code == 0 and said.strip():
            gpu = said.strip().splitlines()[0]
            nvcc = quick(["nvcc", "--version"])[1].strip().splitlines()[-1]
    return Machine(sys.platform, platform.machine(), features(), compiler, knows_amx, nvcc, gpu)


def features() -> tuple[str, ...]:
    """The processor's features as the system names them."""
    if sys.platform.startswith("linux"):
        try:
            text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
        except OSError:
            return ()
        found = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
        return tuple(sorted(found.group(1).split())) if found else ()
    if sys.platform == "darwin":
        said = quick(["sysctl", "-n", "machdep.cpu.brand_string", "machdep.cpu.features", "machdep.cpu.leaf7_features"])
        return tuple(sorted(said[1].lower().split()))
    return tuple(platform.processor().lower().split())


def compiler_advice(system: str = sys.platform, which: Sequence[str] | None = None) -> str:
    """The one command that brings a compiler."""
    if system == "darwin":
        return "xcode-select --install"
    if system == "win32":
        return "winget install Microsoft.VisualStudio.2022.BuildTools (with the C++ workload)"
    table = {
        "apt-get": "sudo apt-get install g++",
        "dnf": "sudo dnf install gcc-c++",
        "pacman": "sudo pacman -S gcc",
        "zypper": "sudo zypper install gcc-c++",
        "apk": "sudo apk add g++",
    }
    found = which if which is not None else [tool for tool in table if shutil.which(tool)]
    return table[found[0]] if found else "install g++ or clang with your system's package manager"


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


def _compiler() -> tuple[str, bool]:
    """Version line of the C++ compiler, and whether it knows the AMX switches."""
    if sys.platform == "win32":
        return "msvc", False  # CMake finds Visual Studio by itself and says so when it is missing
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            code, said = quick([name, "--version"])
            if code == 0:
                knows = quick([name, *NO_AMX, "-E", "-x", "c++", "-"])[0] == 0
                return said.strip().splitlines()[0], knows
    raise SetupFailed(f"There is no C++ compiler, and llama.cpp has to be built. Run: {compiler_advice()}")
