"""What ggml can compute on, and how much memory each device has. Reads only."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import Any

from runtime.llama.errors import LlamaError
from runtime.llama.library import lib, shared

KINDS = ("cpu", "gpu", "igpu", "accel", "meta")


@dataclass(frozen=True, slots=True)
class Device:
    """`kind` is "cpu", "gpu", "igpu" (shares the computer's memory), "accel" or "meta". Bytes as ggml reports them."""

    name: str
    description: str
    kind: str
    free_bytes: int
    total_bytes: int
    backend: str = ""


def devices() -> tuple[Device, ...]:
    """Every device of every backend in this build, in ggml's order. Asks each for its memory now."""
    return tuple(_describe(handle) for handle in _handles())


def backends() -> tuple[str, ...]:
    """Names of the backends in this build: "CPU", "CUDA", "Metal", …"""
    ggml = _functions()
    return tuple(_text(ggml.reg_name(ggml.reg_get(index))) for index in range(ggml.reg_count()))


def system_info() -> str:
    """llama.cpp's line about instruction sets and build switches."""
    text: bytes = lib().llama_print_system_info()
    return text.decode("utf-8", "replace").strip()


def supports_gpu_offload() -> bool:
    answer: bool = lib().llama_supports_gpu_offload()
    return answer


def buffer_type(device: str) -> int:
    """Address of a device's own buffer type. Raises LlamaError for a name no device has."""
    ggml = _functions()
    for handle in _handles():
        if _text(ggml.dev_name(handle)) == device:
            pointer: int = ggml.dev_buffer_type(handle)
            return pointer
    names = ", ".join(_text(ggml.dev_name(handle)) for handle in _handles())
    raise LlamaError(f"no device is called {device!r}; there are {names}")


@dataclass(frozen=True, slots=True)
class _Functions:
    dev_count: Any
    dev_get: Any
    dev_name: Any
    dev_description: Any
    dev_memory: Any
    dev_type: Any
    dev_buffer_type: Any
    dev_backend_reg: Any
    reg_count: Any
    reg_get: Any
    reg_name: Any


@functools.cache
def _functions() -> _Functions:
    """ggml's registry lives in libggml, the devices' own functions in libggml-base."""
    registry, base = shared("ggml"), shared("ggml-base")
    pointer, size, text = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
    sizes = ctypes.POINTER(ctypes.c_size_t)
    return _Functions(
        dev_count=_bind(registry, "ggml_backend_dev_count", size),
        dev_get=_bind(registry, "ggml_backend_dev_get", pointer, size),
        dev_name=_bind(base, "ggml_backend_dev_name", text, pointer),
        dev_description=_bind(base, "ggml_backend_dev_description", text, pointer),
        dev_memory=_bind(base, "ggml_backend_dev_memory", None, pointer, sizes, sizes),
        dev_type=_bind(base, "ggml_backend_dev_type", ctypes.c_int, pointer),
        dev_buffer_type=_bind(base, "ggml_backend_dev_buffer_type", pointer, pointer),
        dev_backend_reg=_bind(base, "ggml_backend_dev_backend_reg", pointer, pointer),
        reg_count=_bind(registry, "ggml_backend_reg_count", size),
        reg_get=_bind(registry, "ggml_backend_reg_get", pointer, size),
        reg_name=_bind(base, "ggml_backend_reg_name", text, pointer),
    )


def _bind(library: Any, name: str, restype: Any, *argtypes: Any) -> Any:
    function = library[name]
    function.restype = restype
    function.argtypes = list(argtypes)
    return function


def _handles() -> tuple[int, ...]:
    ggml = _functions()
    return tuple(ggml.dev_get(index) for index in range(ggml.dev_count()))


def _describe(handle: int) -> Device:
    ggml = _functions()
    free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
    ggml.dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
    kind = ggml.dev_type(handle)
    return Device(
        name=_text(ggml.dev_name(handle)),
        description=_text(ggml.dev_description(handle)),
        kind=KINDS[kind] if kind < len(KINDS) else "accel",
        free_bytes=free.value,
        total_bytes=total.value,
        backend=_text(ggml.reg_name(ggml.dev_backend_reg(handle))),
    )


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace").strip()
