"""What a context turned out to be, read from llama.cpp's log: there are no calls to ask.

The lines are those of the pinned version; what is not found there stays 0 or None.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from runtime.llama.log import Line

MIB = 1024 * 1024
BUFFER = re.compile(r":\s+(\S+)\s+(KV|RS|compute|output)\s+buffer size =\s+([\d.]+) MiB")
CACHE = re.compile(r":\s+size =\s+([\d.]+) MiB \(\s*(\d+) cells")
SWA_CELLS = re.compile(r"creating\s+SWA KV cache, size = (\d+) cells")
NO_FLASH = re.compile(r"Flash Attention not supported|flash_attn is not compatible")


@dataclass(frozen=True, slots=True)
class Resolved:
    """`flash_attn` is "on" or "off". Bytes are exact to 0.01 MiB. `buffers` are (device buffer, kind) to bytes, kind
    being "KV", "RS", "compute" or "output". `swa_cells` is the size of the sliding-window pool, None without one.
    """

    flash_attn: str
    kv_bytes: int = 0
    compute_bytes: int = 0
    swa_cells: int | None = None
    buffers: dict[tuple[str, str], int] = field(default_factory=dict)


def read(asked: str, lines: Iterable[Line]) -> Resolved:
    """`asked` is the flash attention option; `lines` were written while the context was made."""
    flash_attn = "on" if asked == "auto" else asked
    kv_bytes, swa_cells = 0, None
    buffers: dict[tuple[str, str], int] = {}
    for line in lines:
        if NO_FLASH.search(line.text):
            flash_attn = "off"
        if found := BUFFER.search(line.text):
            key = (found.group(1), found.group(2))
            buffers[key] = buffers.get(key, 0) + _bytes(found.group(3))
        if found := CACHE.search(line.text):
            kv_bytes += _bytes(found.group(1))
        if found := SWA_CELLS.search(line.text):
            swa_cells = int(found.group(1))
    compute_bytes = sum(size for (_, kind), size in buffers.items() if kind == "compute")
    return Resolved(flash_attn, kv_bytes, compute_bytes, swa_cells, buffers)


def _bytes(mebibytes: str) -> int:
    return round(float(mebibytes) * MIB)
