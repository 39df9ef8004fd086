"""Reading an untrusted file forwards. Owns the file handle and one window of at most 1 MiB.

Every read is compared with the real size of the file before anything is allocated. The file is read, not mapped: a
mapped file that another program shortens kills the process that touches it.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from itertools import repeat
from operator import length_hint
from pathlib import Path
from types import TracebackType

from models import limits
from models.errors import InvalidModel
from models.header.types import SCALARS, UINT32

WINDOW_BYTES = 1 * limits.MIB
LENGTH = struct.Struct("<Q")


def shown(text: str, limit: int = 80) -> str:
    """`text` from a file as it may be printed: no control characters, not longer than `limit`."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in cut)


class Cursor:
    """A position in one open file. `position` may be set to go elsewhere. Not shared between threads."""

    __slots__ = ("_base", "_file", "_window", "position", "size")

    def __init__(self, path: Path) -> None:
        try:
            # Looked at before it is opened: opening a pipe waits for somebody to write.
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise InvalidModel("file", "is not a regular file")
            self._file = open(path, "rb", buffering=0)  # noqa: SIM115 (closed by __exit__)
            self.size = os.fstat(self._file.fileno()).st_size
        except (OSError, ValueError) as error:
            raise InvalidModel("file", f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
        self.position = 0
        self._base = 0
        self._window = b""

    def __enter__(self) -> Cursor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def need(self, field: str, n_bytes: int) -> None:
        """Refuse `field` unless the file has `n_bytes` more bytes, and a header may be that long."""
        end = self.position + n_bytes
        left = self.size - self.position
        if n_bytes > left:
            raise InvalidModel(
                field,
                f"needs {n_bytes:,} bytes at byte {self.position:,}, the file has {max(left, 0):,} left; the header is "
                f"wrong or the file is cut short: download it again",
            )
        if end > limits.GGUF_HEADER_BYTES:
            raise InvalidModel(field, f"ends at byte {end:,}; the limit for a header is {limits.GGUF_HEADER_BYTES:,}")

    def take(self, field: str, n_bytes: int) -> bytes:
        """The next `n_bytes` bytes. The caller has bounded `n_bytes`."""
        if n_bytes > WINDOW_BYTES:
            self.need(field, n_bytes)
            data = self._read(field, n_bytes)
        else:
            index = self._index(field, n_bytes)
            data = self._window[index : index + n_bytes]
        self.position += n_bytes
        return data

    def skip(self, field: str, n_bytes: int) -> None:
        self.need(field, n_bytes)
        self.position += n_bytes

    def number(self, field: str, code: int) -> int | float:
        """A scalar of value type `code`, as a Python number."""
        layout = SCALARS[code].layout
        index = self._index(field, layout.size)
        self.position += layout.size
        value: int | float = layout.unpack_from(self._window, index)[0]
        return value

    def u32(self, field: str) -> int:
        return int(self.number(field, UINT32))

    def u64(self, field: str) -> int:
        index = self._index(field, LENGTH.size)
        self.position += LENGTH.size
        return int(LENGTH.unpack_from(self._window, index)[0])

    def string(self, field: str, limit: int) -> bytes:
        """A length and that many bytes, at most `limit`."""
        length = self.u64(field)
        check_length(field, length, limit)
        return self.take(field, length)

    def skip_strings(self, field: str, count: int) -> None:
        """Pass over `count` strings without making any of them."""
        self.need(field, count * LENGTH.size)
        unpack, left, length = LENGTH.unpack_from, count, 0
        while left:
            index = self._index(field, LENGTH.size)
            window, last = self._window, len(self._window) - LENGTH.size
            turns = repeat(None, left)
            for _ in turns:
                (length,) = unpack(window, index)
                index += length + 8
                if index > last:
                    break
            left = length_hint(turns)
            # Only the last length can exceed the limit: any other one stayed inside the window.
            check_length(field, length, limits.GGUF_STRING_BYTES)
            self.position = self._base + index - length
            self.skip(field, length)

    def strings(self, field: str, count: int) -> Iterator[list[bytes]]:
        """The next `count` strings in lists that each cover one window. The position is right after each list."""
        self.need(field, count * LENGTH.size)
        while count:
            self._index(field, LENGTH.size)
            batch = self._batch(count)
            if not batch:  # longer than what is left of the window
                batch = [self.string(field, limits.GGUF_STRING_BYTES)]
            count -= len(batch)
            yield batch

    def _batch(self, count: int) -> list[bytes]:
        """Whole strings from the window, at most `count`."""
        window, index = self._window, self.position - self._base
        unpack, end = LENGTH.unpack_from, len(self._window)
        batch: list[bytes] = []
        last = end - LENGTH.size
        for _ in repeat(None, count):
            if index > last:
                break
            start = index + 8
            stop = start + unpack(window, index)[0]
            if stop > end:
                break
            batch.append(window[start:stop])
            index = stop
        self.position = self._base + index
        return batch

    def _index(self, field: str, n_bytes: int) -> int:
        """Where in the window the next `n_bytes` bytes are; loads them first where needed."""
        self.need(field, n_bytes)
        index = self.position - self._base
        if index < 0 or index + n_bytes > len(self._window):
            self._window = self._read(field, min(WINDOW_BYTES, self.size - self.position))
            self._base, index = self.position, 0
        return index

    def _read(self, field: str, n_bytes: int) -> bytes:
        try:
            self._file.seek(self.position)
            parts, left = [], n_bytes
            while left:
                part = self._file.read(left)
                if not part:
                    raise InvalidModel(field, "the file became shorter while it was read")
                parts.append(part)
                left -= len(part)
        except OSError as error:
            raise InvalidModel(field, f"cannot be read: {error.strerror}") from error
        return parts[0] if len(parts) == 1 else b"".join(parts)


def check_length(field: str, length: int, limit: int) -> None:
    if length > limit:
        raise InvalidModel(field, f"is a string of {length:,} bytes; the limit is {limit:,}")
