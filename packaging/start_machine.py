"""What this computer is: processor features, compilers, NVIDIA GPU, memory. Only asks, changes nothing."""

from __future__ import annotations

import functools
import os
import platform
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from start_run import quick
from start_say import SetupFailed

# Those a compiler uses by itself under -march=native. The other words of /proc/cpuinfo come and go with kernels.
X86_FEATURES = ("pni", "sse", "ssse3", "avx", "amx", "fma", "f16c", "bmi", "abm", "popcnt", "aes", "vaes", "gfni")
# Numbers of Windows' IsProcessorFeaturePresent. It has none for FMA, F16C and BMI2, which every AVX2 processor has.
WINDOWS_FEATURES = {38: ("sse4_2",), 39: ("avx",), 40: ("avx2", "fma", "f16c", "bmi2"), 41: ("avx512f",)}
# What a person may set to steer a build.
STEERING = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "CUDAFLAGS", "LDFLAGS", "SKBUILD_CMAKE_ARGS", "SKBUILD_CMAKE_DEFINE")
BYTES_A_JOB = 1 << 30  # a C++ compiler on the largest of llama.cpp's files stays below

# gcc drops the tile configuration of AMX code under -march=native, and the first long prompt crashes:
# https://github.com/ggml-org/llama.cpp/issues/20824
NO_AMX = ("-mno-amx-tile", "-mno-amx-int8", "-mno-amx-bf16")


@dataclass(frozen=True, slots=True)
class Machine:
    """What a recipe depends on. `features` are the processor's, sorted; the rest are version lines, "" when absent.

    `nvcc` and `gpu` are both there or both "". `steering` are the variables of the user that change a build.
    """

    system: str
    arch: str
    features: tuple[str, ...]
    compiler: str
    knows_amx: bool
    nvcc: str = ""
    gpu: str = ""
    libc: str = ""
    python: str = ""
    steering: tuple[tuple[str, str], ...] = ()

    @property
    def is_x86(self) -> bool:
        return self.arch.lower() in ("x86_64", "amd64")


def inspect(environment: Mapping[str, str] = os.environ) -> Machine:
    """This machine. Raises SetupFailed with the command to run when there is no C++ compiler."""
    compiler, knows_amx = _compilers(environment)
    nvcc, gpu = _cuda()
    return Machine(
        system=sys.platform,
        arch=platform.machine(),
        features=features(),
        compiler=compiler,
        knows_amx=knows_amx,
        nvcc=nvcc,
        gpu=gpu,
        libc=" ".join(platform.libc_ver()) if sys.platform.startswith("linux") else "",
        python=sys.implementation.cache_tag or "",
        steering=tuple((name, environment[name]) for name in STEERING if environment.get(name)),
    )


def features() -> tuple[str, ...]:
    """The processor's features in the spelling of /proc/cpuinfo where we can; cheap enough for every start."""
    if sys.platform == "win32":
        return _windows_features()
    if sys.platform == "darwin":
        said = quick(["sysctl", "-n", "machdep.cpu.brand_string", "machdep.cpu.features", "machdep.cpu.leaf7_features"])
        words = said[1].lower().replace("avx1.0", "avx").replace("sse4.", "sse4_").split()
        # Apple's names, and for the portable build those of Linux: every Mac with AVX2 has these too.
        return tuple(sorted({*words, *(("fma", "f16c") if "avx2" in words else ())}))
    try:
        return cpuinfo_features(Path("/proc/cpuinfo").read_text("utf-8", "replace"))
    except OSError:
        return ()


def cpuinfo_features(text: str) -> tuple[str, ...]:
    """What all processors have: big and little cores may differ, and a program runs on any of them."""
    rows = re.findall(r"^(flags|Features)[ \t]*:[ \t]*(.+)$", text, re.MULTILINE)
    if not rows:
        return ()
    common = set.intersection(*(set(words.split()) for _, words in rows))
    if rows[0][0] == "flags":
        common = {word for word in common if word.startswith(X86_FEATURES)}
    return tuple(sorted(common))


def _windows_features() -> tuple[str, ...]:
    import ctypes

    present = ctypes.windll.kernel32.IsProcessorFeaturePresent  # type: ignore[attr-defined]
    names = [name for number, row in WINDOWS_FEATURES.items() if present(number) for name in row]
    return tuple(sorted([*names, *platform.processor().lower().split()]))


def _compilers(environment: Mapping[str, str]) -> tuple[str, bool]:
    """Version lines of the C and the C++ compiler CMake will take, and whether both know the AMX switches."""
    if sys.platform == "win32":
        return "msvc", False  # CMake finds Visual Studio by itself and says so when it is missing
    c = _first(environment.get("CC"), "cc", "gcc", "clang")
    cxx = _first(environment.get("CXX"), "c++", "g++", "clang++")
    if c is None or cxx is None:
        raise SetupFailed(f"There is no C++ compiler, and llama.cpp has to be built. Run: {compiler_advice()}")
    knows = all(
        quick([path, *NO_AMX, "-fsyntax-only", "-x", language, "-"], text="int main(void) { return 0; }\n")[0] == 0
        for (path, _), language in ((c, "c"), (cxx, "c++"))
    )
    return f"{c[1]}; {cxx[1]}", knows


def _first(*names: str | None) -> tuple[str, str] | None:
    """Path and version line of the first of these compilers that answers."""
    for name in names:
        path = shutil.which(name) if name else None
        if path is not None:
            # A Mac has a /usr/bin/cc that only offers to install the real one, and fails.
            code, said = quick([path, "--version"])
            if code == 0 and said.strip():
                return path, said.strip().splitlines()[0]
    return None


def nvcc_path() -> str | None:
    """The CUDA compiler; its installer does not put it on PATH."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    found = (shutil.which("nvcc", path=str(Path(home) / "bin")) for home in homes if home)
    return shutil.which("nvcc") or next((path for path in found if path), None)


@functools.cache
def _cuda() -> tuple[str, str]:
    """Version of the toolkit and all GPUs with their capability; ("", "") unless both are there."""
    nvcc = nvcc_path()
    if nvcc is None:
        return "", ""
    code, said = quick(["nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader"])
    gpus = "; ".join(sorted({line.strip() for line in said.splitlines() if line.strip()})) if code == 0 else ""
    version = quick([nvcc, "--version"])[1].strip().splitlines()
    return (version[-1], gpus) if gpus and version else ("", "")


def jobs() -> int:
    """How many compilers run at once: one a core this process may use, and memory for each."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return cores
    return max(1, min(cores, memory // BYTES_A_JOB))


def compiler_advice(system: str = sys.platform, which: Sequence[str] | None = None) -> str:
    """The one command that brings a compiler."""
    if system == "darwin":
        return "xcode-select --install"
    if system == "win32":
        return "winget install Microsoft.VisualStudio.2022.BuildTools (with the C++ workload)"
    table = {
        "apt-get": "apt-get install g++",
        "dnf": "dnf install gcc-c++",
        "pacman": "pacman -S gcc",
        "zypper": "zypper install gcc-c++",
        "apk": "apk add g++",
    }
    found = which if which is not None else [tool for tool in table if shutil.which(tool)]
    return as_root(table[found[0]]) if found else "install g++ or clang with your system's package manager"


def as_root(command: str) -> str:
    """As this user types it; a container's root often has no sudo."""
    return command if hasattr(os, "geteuid") and os.geteuid() == 0 else f"sudo {command}"
