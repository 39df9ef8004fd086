"""Typed access to the entries of a header. A key of the wrong type, or out of its range, is refused by name.

llama.cpp takes a key only in the type it expects, so what it would refuse is refused here, with a better message.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import cast

from models import limits
from models.errors import InvalidModel
from models.header.cursor import WINDOW_BYTES, Cursor, shown
from models.header.info import PerLayer
from models.header.metadata import Array, Index, Scalar, Text, Value, describe
from models.header.types import BOOL, FLOAT32, INT32, SCALARS, STRING, UINT16, UINT32

U32_MAX = 2**32 - 1
WHOLE_ARRAYS = (UINT32, INT32)


class Facts:
    """Entries of one file, read on demand through its cursor. Keys that begin with a dot belong to the architecture."""

    def __init__(self, cursor: Cursor, index: Index) -> None:
        self._cursor = cursor
        self._index = index
        self.architecture = ""

    def key(self, name: str) -> str:
        return self.architecture + name if name.startswith(".") else name

    def has(self, name: str) -> bool:
        return self.key(name) in self._index

    def missing(self, name: str) -> InvalidModel:
        return InvalidModel(shown(self.key(name)), "is missing; a model file must have it")

    def find_u32(self, name: str, *, low: int = 0, high: int = U32_MAX) -> int | None:
        value = self._scalar(name, UINT32)
        return None if value is None else self._in_range(name, int(value), low, high)

    def u32(self, name: str, *, low: int = 0, high: int = U32_MAX) -> int:
        value = self.find_u32(name, low=low, high=high)
        if value is None:
            raise self.missing(name)
        return value

    def find_u16(self, name: str) -> int | None:
        value = self._scalar(name, UINT16)
        return None if value is None else int(value)

    def find_i32(self, name: str) -> int | None:
        value = self._scalar(name, INT32)
        return None if value is None else int(value)

    def flag(self, name: str) -> bool | None:
        value = self._scalar(name, BOOL)
        return None if value is None else bool(value)

    def find_float(self, name: str) -> float | None:
        """A finite number that is not negative."""
        value = self._scalar(name, FLOAT32)
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise InvalidModel(shown(self.key(name)), f"is {value}; it must be finite and not negative")
        return value

    def find_text(self, name: str, limit: int) -> str | None:
        """Text that means something to us: UTF-8, at most `limit` bytes."""
        raw = self._raw_text(name, limit)
        if raw is None:
            return None
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise InvalidModel(shown(self.key(name)), f"is not UTF-8 at byte {error.start:,}") from None

    def label(self, name: str) -> str | None:
        """Text that is only shown: made printable and cut to 200 characters."""
        raw = self._raw_text(name, limits.GGUF_STRING_BYTES)
        return None if raw is None else shown(raw.decode("utf-8", "replace"), 200)

    def text_bytes(self, name: str) -> int:
        """The size of a text, without reading it."""
        value = self._index[self.key(name)]
        if not isinstance(value, Text):
            raise self._wrong(name, value, "string")
        return value.n_bytes

    def per_layer(self, name: str, n_layers: int) -> PerLayer | None:
        """A whole number for all layers, or an array with one for each."""
        value = self._index.get(self.key(name))
        if isinstance(value, Array):
            return tuple(self._layers(name, value, n_layers, WHOLE_ARRAYS))
        return self.find_u32(name)

    def layer_flags(self, name: str, n_layers: int) -> tuple[bool, ...] | None:
        """One yes or no for each layer; None when the key is absent or not an array."""
        value = self._index.get(self.key(name))
        if not isinstance(value, Array):
            return None
        return tuple(bool(flag) for flag in self._layers(name, value, n_layers, (BOOL, *WHOLE_ARRAYS)))

    def array(self, name: str, elements: tuple[int, ...]) -> Array | None:
        value = self._index.get(self.key(name))
        if value is None:
            return None
        if not isinstance(value, Array) or value.type not in elements:
            raise self._wrong(name, value, "array of " + " or ".join(_element_name(code) for code in elements))
        return value

    def numbers(self, name: str, value: Array) -> tuple[int | float, ...]:
        """The elements of a numeric array, as Python numbers."""
        layout = SCALARS[value.type].layout
        self._cursor.position = value.offset
        data = self._cursor.take(shown(self.key(name)), value.count * layout.size)
        return tuple(row[0] for row in layout.iter_unpack(data))

    def chunks(self, name: str, value: Array) -> Iterator[bytes]:
        """The bytes of a numeric array, at most one window at a time and whole elements in each."""
        self._cursor.position = value.offset
        left = value.count * SCALARS[value.type].layout.size
        while left:
            chunk = self._cursor.take(shown(self.key(name)), min(left, WINDOW_BYTES))
            left -= len(chunk)
            yield chunk

    def strings(self, name: str, value: Array) -> Iterator[list[bytes]]:
        """The elements of a string array in batches. Nothing else may be read before the last one is taken."""
        self._cursor.position = value.offset
        return self._cursor.strings(shown(self.key(name)), value.count)

    def names(self, prefix: str) -> list[str]:
        """All keys that begin with `prefix`, in file order."""
        return [key for key in self._index if key.startswith(prefix)]

    def _scalar(self, name: str, code: int) -> int | float | None:
        value = self._index.get(self.key(name))
        if value is None:
            return None
        if not isinstance(value, Scalar) or value.type != code:
            raise self._wrong(name, value, SCALARS[code].name)
        return value.value

    def _raw_text(self, name: str, limit: int) -> bytes | None:
        value = self._index.get(self.key(name))
        if value is None:
            return None
        if not isinstance(value, Text):
            raise self._wrong(name, value, "string")
        if value.n_bytes > limit:
            raise InvalidModel(shown(self.key(name)), f"is {value.n_bytes:,} bytes long; the limit is {limit:,}")
        self._cursor.position = value.offset
        return self._cursor.take(shown(self.key(name)), value.n_bytes)

    def _layers(self, name: str, value: Array, n_layers: int, elements: tuple[int, ...]) -> tuple[int, ...]:
        self.array(name, elements)
        if value.count != n_layers:
            raise InvalidModel(shown(self.key(name)), f"has {value.count:,} elements for {n_layers} blocks")
        numbers = cast("tuple[int, ...]", self.numbers(name, value))
        for number in numbers:
            self._in_range(name, number, 0, U32_MAX)
        return numbers

    def _in_range(self, name: str, value: int, low: int, high: int) -> int:
        if not low <= value <= high:
            raise InvalidModel(shown(self.key(name)), f"is {value:,}; it must be from {low:,} to {high:,}")
        return value

    def _wrong(self, name: str, value: Value, wanted: str) -> InvalidModel:
        return InvalidModel(shown(self.key(name)), f"is {describe(value)}; it must be {wanted}")


def _element_name(code: int) -> str:
    return "string" if code == STRING else SCALARS[code].name
