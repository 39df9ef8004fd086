"""From a path to the open header of a model: one file, or the parts of a split one.

Parts are named `<name>-00001-of-00003.gguf`; the first one holds the facts, every one holds tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from models import limits
from models.errors import InvalidModel
from models.header.cursor import Cursor, shown
from models.header.facts import Facts
from models.header.metadata import alignment, read_index
from models.header.tensors import TensorInfo, read_tensors

PART_NAME = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf", re.DOTALL)
HEADER_BYTES = 24
VERSIONS = (2, 3)
OTHER_FILES = {
    b"<!DO": "a web page: the download needs another address",
    b"<htm": "a web page: the download needs another address",
    b"vers": "a Git LFS pointer: fetch the real file with git lfs pull",
    b"PK\x03\x04": "a zip or PyTorch file: convert it to GGUF first",
    b"ggml": "an old GGML file: convert it to GGUF first",
    b"lmgg": "an old GGML file: convert it to GGUF first",
    b"tjgg": "an old GGML file: convert it to GGUF first",
}


@dataclass(frozen=True, slots=True)
class OpenModel:
    """The facts of a model, whose first file is still open, and what was read of all its parts."""

    facts: Facts
    paths: tuple[Path, ...]
    tensors: tuple[TensorInfo, ...]
    version: int
    alignment: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class _Part:
    facts: Facts
    tensors: tuple[TensorInfo, ...]
    version: int
    alignment: int
    n_bytes: int


@contextmanager
def open_model(path: Path) -> Iterator[OpenModel]:
    """Open the model that `path` belongs to; any of its parts will do."""
    first = first_part(path)
    if first != path and path.exists() and not first.exists():
        raise InvalidModel("split.count", f"the first file is missing next to this one: {shown(first.name, 120)}")
    with Cursor(first) as cursor:
        part = _read_part(cursor, 0)
        paths = (first, *_further_parts(first, part.facts))
        tensors, n_bytes = list(part.tensors), part.n_bytes
        for number, further in enumerate(paths[1:], start=1):
            with Cursor(further) as other:
                more = _read_part(other, number)
            _check_number(more.facts, number, len(paths))
            tensors += more.tensors
            n_bytes += more.n_bytes
        if len(paths) > 1:
            _check_tensors(part.facts, tensors)
        yield OpenModel(part.facts, paths, tuple(tensors), part.version, part.alignment, n_bytes)


def first_part(path: Path) -> Path:
    """The file to load for `path`: itself, or the first part when its name says it is a later one."""
    match = PART_NAME.fullmatch(path.name)
    if match is None or int(match["number"]) <= 1:
        return path
    return path.with_name(part_name(match["stem"], 1, int(match["count"])))


def part_name(stem: str, number: int, count: int) -> str:
    return f"{stem}-{number:05d}-of-{count:05d}.gguf"


def _read_part(cursor: Cursor, shard: int) -> _Part:
    version = _version(cursor)
    n_tensors = cursor.u64("tensor_count")
    n_keys = cursor.u64("key_count")
    index = read_index(cursor, n_keys)
    step = alignment(index)
    tensors = read_tensors(cursor, n_tensors, step, shard)
    return _Part(Facts(cursor, index), tensors, version, step, cursor.size)


def _version(cursor: Cursor) -> int:
    if cursor.size < HEADER_BYTES:
        raise InvalidModel("magic", f"the file has {cursor.size} bytes; a GGUF header has at least {HEADER_BYTES}")
    magic = cursor.take("magic", 4)
    if magic != b"GGUF":
        what = OTHER_FILES.get(magic, f"not a GGUF file: it begins with {magic!r}")
        raise InvalidModel("magic", f"this is {what}")
    version = cursor.u32("version")
    if version and not version & 0xFFFF:
        raise InvalidModel("version", "the file is big-endian, which is not read here: get a little-endian one")
    if version not in VERSIONS:
        raise InvalidModel("version", f"is {version:,}; versions 2 and 3 are read: convert the model again")
    return version


def _further_parts(first: Path, facts: Facts) -> list[Path]:
    count = facts.find_u16("split.count") or 0
    if count <= 1:
        return []
    match = PART_NAME.fullmatch(first.name)
    if match is None or int(match["count"]) != count:
        raise InvalidModel(
            "split.count",
            f"the model is split into {count} files, but this one is not named like {part_name('name', 1, count)}: "
            f"give the files their names back",
        )
    _check_number(facts, 0, count)
    paths = [first.with_name(part_name(match["stem"], number, count)) for number in range(2, count + 1)]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        named = ", ".join(shown(name, 120) for name in missing[:3]) + (", …" if len(missing) > 3 else "")
        raise InvalidModel("split.count", f"{len(missing)} of {count} files are missing next to this one: {named}")
    return paths


def _check_number(facts: Facts, number: int, count: int) -> None:
    stated, of = facts.find_u16("split.no"), facts.find_u16("split.count")
    if stated != number:
        raise InvalidModel("split.no", f"file {number + 1} of {count} says its number is {stated}; it must be {number}")
    if of != count:
        raise InvalidModel("split.count", f"file {number + 1} of {count} says there are {of}")


def _check_tensors(facts: Facts, tensors: list[TensorInfo]) -> None:
    stated = facts.find_i32("split.tensors.count")
    if stated != len(tensors):
        raise InvalidModel("split.tensors.count", f"is {stated}; the files hold {len(tensors):,} tensors")
    if len(tensors) > limits.GGUF_TENSORS:
        raise InvalidModel("split.tensors.count", f"{len(tensors):,} tensors; the limit is {limits.GGUF_TENSORS:,}")
    names: set[str] = set()
    for tensor in tensors:
        if tensor.name in names:
            raise InvalidModel(f"{shown(tensor.name)}.name", "two tensors in different files have this name")
        names.add(tensor.name)
