"""The tensor part of a header: names, shapes, types and where the bytes are. Reads no weights.

`LAYOUT_CHECKS` is the list of what must hold for every tensor's place in the file.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from models import limits
from models.errors import InvalidModel
from models.header.cursor import Cursor, shown
from models.header.metadata import plain_text
from models.header.types import REMOVED_TENSOR_TYPES, TENSOR_TYPES, TensorType

# ggml keeps a name in 64 bytes with a NUL at the end.
NAME_BYTES = 63
# An entry is at least a name of one byte with its length, one dimension, a type and an offset.
ENTRY_BYTES_MIN = 8 + 1 + 4 + 8 + 4 + 8


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor. `offset` counts from the start of the file (of shard number `shard`)."""

    name: str
    dims: tuple[int, ...]
    type: str
    n_elements: int
    n_bytes: int
    offset: int
    shard: int = 0


@dataclass(frozen=True, slots=True)
class _Entry:
    """A tensor as its header entry states it: `offset` counts from the start of the tensor data."""

    name: str
    dims: tuple[int, ...]
    kind: TensorType
    n_elements: int
    n_bytes: int
    offset: int


@dataclass(frozen=True, slots=True)
class _Place:
    """What a tensor's offset is compared with. `expected` is where the tensor before it ends, aligned."""

    alignment: int
    previous: int
    expected: int
    data_bytes: int


def read_tensors(cursor: Cursor, n_tensors: int, alignment: int, shard: int) -> tuple[TensorInfo, ...]:
    """All tensors in file order, each one's place checked. The cursor stands at the first entry."""
    if n_tensors > limits.GGUF_TENSORS:
        raise InvalidModel("tensor_count", f"{n_tensors:,} tensors; the limit is {limits.GGUF_TENSORS:,}")
    cursor.need("tensor_count", n_tensors * ENTRY_BYTES_MIN)
    entries = _entries(cursor, n_tensors)
    data_start = align(cursor.position, alignment)
    _check_layout(entries, alignment, cursor.size - data_start)
    return tuple(
        TensorInfo(e.name, e.dims, e.kind.name, e.n_elements, e.n_bytes, data_start + e.offset, shard) for e in entries
    )


def align(position: int, alignment: int) -> int:
    return (position + alignment - 1) // alignment * alignment


def _entries(cursor: Cursor, n_tensors: int) -> list[_Entry]:
    entries: list[_Entry] = []
    names: set[str] = set()
    for number in range(n_tensors):
        name = plain_text(f"tensor[{number}]", cursor.string(f"tensor[{number}]", NAME_BYTES))
        if name in names:
            raise InvalidModel(f"{shown(name)}.name", "two tensors have this name")
        names.add(name)
        entries.append(_entry(cursor, name))
    return entries


def _entry(cursor: Cursor, name: str) -> _Entry:
    field = shown(name)
    dims = _dims(cursor, f"{field}.dims")
    kind = _kind(cursor, f"{field}.type")
    if dims[0] % kind.block:
        raise InvalidModel(f"{field}.dims", f"the first is {dims[0]:,}; {kind.name} needs a multiple of {kind.block}")
    offset = cursor.u64(f"{field}.offset")
    n_elements = math.prod(dims)
    return _Entry(name, dims, kind, n_elements, n_elements // kind.block * kind.block_bytes, offset)


def _dims(cursor: Cursor, field: str) -> tuple[int, ...]:
    count = cursor.u32(field)
    if not 1 <= count <= limits.GGUF_DIMS:
        raise InvalidModel(field, f"{count:,} dimensions; there must be 1 to {limits.GGUF_DIMS}")
    dims = tuple(cursor.u64(field) for _ in range(count))
    if 0 in dims:
        raise InvalidModel(field, f"{dims}: a dimension is zero")
    if math.prod(dims) >= limits.GGUF_ELEMENTS:
        raise InvalidModel(field, f"{dims}: {math.prod(dims):,} elements; the limit is {limits.GGUF_ELEMENTS:,}")
    return dims


def _kind(cursor: Cursor, field: str) -> TensorType:
    code = cursor.u32(field)
    if code in TENSOR_TYPES:
        return TENSOR_TYPES[code]
    if code in REMOVED_TENSOR_TYPES:
        raise InvalidModel(field, f"is {REMOVED_TENSOR_TYPES[code]} ({code}) that ggml reads no longer: get a new file")
    raise InvalidModel(field, f"is {code:,}, which is no tensor type: the file is damaged or newer than this program")


def _aligned(entry: _Entry, place: _Place) -> str | None:
    if entry.offset % place.alignment:
        return f"is {entry.offset:,}, not a multiple of the alignment {place.alignment}"
    return None


def _ascending(entry: _Entry, place: _Place) -> str | None:
    if entry.offset < place.previous:
        return f"is {entry.offset:,}, before the tensor in front of it at {place.previous:,}"
    return None


def _apart(entry: _Entry, place: _Place) -> str | None:
    if place.previous <= entry.offset < place.expected:
        return f"is {entry.offset:,}, inside the tensor in front of it, which ends at {place.expected:,}"
    return None


def _adjacent(entry: _Entry, place: _Place) -> str | None:
    if entry.offset > place.expected:
        return (
            f"is {entry.offset:,}, but type and shape of the tensors in front of it end at {place.expected:,}: "
            f"{entry.offset - place.expected:,} bytes belong to nothing"
        )
    return None


def _inside(entry: _Entry, place: _Place) -> str | None:
    end = entry.offset + entry.n_bytes
    if end > place.data_bytes:
        return (
            f"the tensor ends at byte {end:,} of the data, the file has {max(place.data_bytes, 0):,}: "
            f"it is cut short, download it again"
        )
    return None


LAYOUT_CHECKS: tuple[Callable[[_Entry, _Place], str | None], ...] = (_aligned, _ascending, _apart, _adjacent, _inside)


def _check_layout(entries: list[_Entry], alignment: int, data_bytes: int) -> None:
    previous = expected = 0
    for entry in entries:
        place = _Place(alignment, previous, expected, data_bytes)
        for check in LAYOUT_CHECKS:
            problem = check(entry, place)
            if problem:
                raise InvalidModel(f"{shown(entry.name)}.offset", problem)
        previous = entry.offset
        expected = align(entry.offset + entry.n_bytes, alignment)
