"""The one door to llama-cpp-python's ctypes layer: `lib()`. Loading it is the only thing this module changes.

`import llama_cpp` would run its high-level package, and with it diskcache and jinja2 (half a second). A bare package
module takes its place in sys.modules, so that only the ctypes file is executed. It stays loaded until the process ends.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.metadata
import importlib.util
import re
import sys
import types
from pathlib import Path
from typing import Any

from runtime.llama import log
from runtime.llama.errors import BindingMissing

VERSION = "0.3.36"
PACKAGE = "llama_cpp"
DISTRIBUTION = "llama_cpp_python"
WAY_OUT = "run python3 packaging/start.py --setup-only"


@functools.cache
def lib() -> Any:
    """The module llama_cpp.llama_cpp, backend started, log captured. Raises BindingMissing with the way out.

    Typed Any: the binding has no usable annotations. What we rely on is checked by `selftest.check_binding`.
    """
    folder = _package_folder()
    found = _installed_version(folder)
    if found != VERSION:
        raise BindingMissing(f"llama-cpp-python {found} is installed, {VERSION} is needed: {WAY_OUT}")
    _register_bare_package(folder)
    try:
        module = importlib.import_module(f"{PACKAGE}.llama_cpp")
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise BindingMissing(f"llama-cpp-python {VERSION} cannot be loaded ({error}): {WAY_OUT}") from error
    log.install(module)
    module.llama_backend_init()
    return module


@functools.cache
def shared(name: str) -> Any:
    """The ctypes handle of a library beside libllama, "ggml" or "ggml-base". Raises BindingMissing."""
    module = lib()
    try:
        return module.load_shared_library(name, module._base_path)
    except (OSError, RuntimeError) as error:
        raise BindingMissing(f"lib{name} is missing beside libllama ({error}): {WAY_OUT}") from error


def raw(name: str, restype: Any, *argtypes: Any) -> Any:
    """A second, private view of a libllama function, for pointers as plain addresses. Raises AttributeError."""
    function = lib()._lib[name]
    function.restype = restype
    function.argtypes = list(argtypes)
    return function


def build_info() -> str:
    """One line for people: versions, commit and what the CPU code was compiled for."""
    module = lib()
    system = module.llama_print_system_info().decode("utf-8", "replace").strip().rstrip("|").strip()
    return f"llama-cpp-python {VERSION}, llama.cpp {version()} ({commit()}), {system}"


def version() -> str:
    """llama.cpp's own version number, such as "0.5.0"."""
    text: bytes = lib().llama_version()
    return text.decode("utf-8", "replace")


def commit() -> str:
    """The commit ggml was built from, "unknown" where the build did not know it."""
    return _ggml_text("ggml_commit")


def ggml_version() -> str:
    return _ggml_text("ggml_version")


def _ggml_text(name: str) -> str:
    function = shared("ggml-base")[name]
    function.restype = ctypes.c_char_p
    return (function() or b"unknown").decode("utf-8", "replace")


def _package_folder() -> Path:
    loaded = sys.modules.get(PACKAGE)
    if loaded is not None and getattr(loaded, "__path__", None):
        return Path(next(iter(loaded.__path__)))
    try:
        spec = importlib.util.find_spec(PACKAGE)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise BindingMissing(f"llama-cpp-python {VERSION} is not installed: {WAY_OUT}")
    return Path(next(iter(spec.submodule_search_locations)))


def _installed_version(folder: Path) -> str:
    """From the distribution; a source tree on sys.path has none and states its version in __init__.py."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        pass
    try:
        stated = re.search(r'__version__\s*=\s*"([^"]+)"', (folder / "__init__.py").read_text("utf-8"))
    except OSError:
        stated = None
    return stated.group(1) if stated else "of an unknown version"


def _register_bare_package(folder: Path) -> None:
    if PACKAGE not in sys.modules:
        package = types.ModuleType(PACKAGE, "Only the ctypes layer of llama-cpp-python.")
        package.__path__ = [str(folder)]
        sys.modules[PACKAGE] = package
