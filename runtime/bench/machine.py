"""Facts about this computer that change what a model does on it. Reads only; names no user and no folder."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# Instruction sets that llama.cpp's CPU code is built for, in the order a reader expects them.
USEFUL_FLAGS = (
    *("ssse3", "sse4_1", "sse4_2", "avx", "f16c", "fma", "avx2", "bmi2", "avx_vnni"),
    *("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512vbmi", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "amx_int8", "amx_bf16"),
    *("neon", "asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2", "sme"),
)


@dataclass(frozen=True, slots=True)
class Machine:
    """Memory in bytes. `cores` are physical and `usable` the logical ones this process may run on."""

    os: str
    python: str
    cpu: str
    flags: tuple[str, ...]
    cores: int
    usable: int
    memory_total: int
    memory_free: int


def describe() -> Machine:
    import psutil

    memory = psutil.virtual_memory()
    cpu, flags = _processor()
    return Machine(
        os=_os_name(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        cpu=cpu,
        flags=tuple(flag for flag in USEFUL_FLAGS if flag in flags),
        cores=psutil.cpu_count(logical=False) or os.cpu_count() or 1,
        usable=usable_cores(),
        memory_total=memory.total,
        memory_free=memory.available,
    )


def usable_cores() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _os_name() -> str:
    name = f"{platform.system()} {platform.release()} {platform.machine()}"
    with suppress(OSError):
        pretty = platform.freedesktop_os_release().get("PRETTY_NAME")
        return f"{pretty}, {name}"
    return name


def _processor() -> tuple[str, frozenset[str]]:
    if sys.platform == "linux":
        return parse_cpuinfo(_read(Path("/proc/cpuinfo")))
    if sys.platform == "darwin":
        brand = _sysctl("machdep.cpu.brand_string") or platform.processor()
        spoken = f"{_sysctl('machdep.cpu.features')} {_sysctl('machdep.cpu.leaf7_features')}".lower().replace(".", "_")
        return brand, frozenset(spoken.split()) | ({"neon"} if platform.machine() == "arm64" else frozenset())
    return platform.processor() or platform.machine(), frozenset()


def parse_cpuinfo(text: str) -> tuple[str, frozenset[str]]:
    """Model name and flags from /proc/cpuinfo, x86 or ARM."""
    entries: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            entries.setdefault(key.strip(), value.strip())
    flags = entries.get("flags") or entries.get("Features") or ""
    return entries.get("model name") or platform.machine(), frozenset(flags.split())


def _read(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""


def _sysctl(name: str) -> str:
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=False)
        return done.stdout.strip()
    return ""
