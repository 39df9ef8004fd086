"""Ending a step that is being computed, without Python in the way.

llama.cpp asks an abort callback before every graph node. A Python callback would take the GIL each time (up to 5 ms
when it is contended). The C function strlen has the callback's shape and answers 0 or not by what a two-byte flag
holds, so setting a byte from any thread is all it takes. It is asked on the CPU only.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from runtime.llama.library import lib

# Where the C runtime's strlen is: None is the process itself. A platform not named here has no abort.
STRLEN_IN: dict[str, tuple[str | None, ...]] = {
    "linux": (None,),
    "darwin": (None,),
    "win32": ("ucrtbase", "msvcrt"),
}


class AbortFlag:
    """Owned by one context and kept as long as it: llama.cpp holds the flag's address."""

    def __init__(self) -> None:
        self._flag = ctypes.create_string_buffer(b"\0\0", 2)
        self.available = (address := strlen_address()) is not None
        kind = lib().ggml_abort_callback
        self.callback: Any = kind(address) if address is not None else kind()
        self.data = ctypes.c_void_p(ctypes.addressof(self._flag))

    def set(self) -> None:
        """From any thread. Does nothing where abort is absent: the step then runs to its end."""
        self._flag[0] = b"\1"

    def clear(self) -> None:
        self._flag[0] = b"\0"

    @property
    def is_set(self) -> bool:
        return self._flag[0] != b"\0"


def strlen_address(platform: str = sys.platform) -> int | None:
    """Address of the C runtime's strlen, None where this platform has no row or no such function."""
    for name in STRLEN_IN.get(platform, ()):
        try:
            return ctypes.cast(ctypes.CDLL(name).strlen, ctypes.c_void_p).value
        except (OSError, AttributeError):
            continue
    return None
