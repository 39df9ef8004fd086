"""The key-value part of a header, read into an index.

Numbers are read; strings and arrays are left in the file and remembered by where they are, so that the index of any
header stays small.
"""

from __future__ import annotations

from dataclasses import dataclass

from models import limits
from models.errors import InvalidModel
from models.header.cursor import Cursor, check_length, shown
from models.header.types import ARRAY, BOOL, SCALARS, STRING, UINT32, value_type_name

ALIGNMENT_KEY = "general.alignment"
ALIGNMENT_DEFAULT = 32
TOKENS_KEY = "tokenizer.ggml.tokens"
# An entry is at least a length, one byte of key, a type and a value of one byte.
ENTRY_BYTES_MIN = 8 + 1 + 4 + 1


@dataclass(frozen=True, slots=True)
class Scalar:
    type: int
    value: int | float


@dataclass(frozen=True, slots=True)
class Text:
    """A string of `n_bytes` bytes that start at `offset`."""

    offset: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Array:
    """`count` elements of value type `type`; the first one starts at `offset`."""

    type: int
    count: int
    offset: int


Value = Scalar | Text | Array
Index = dict[str, Value]


def describe(value: Value) -> str:
    """The type of a value, for messages."""
    if isinstance(value, Scalar):
        return value_type_name(value.type)
    if isinstance(value, Text):
        return "string"
    return f"array of {value.count:,} {value_type_name(value.type)}"


def read_index(cursor: Cursor, n_keys: int) -> Index:
    """All entries by key, in file order."""
    if n_keys > limits.GGUF_KEYS:
        raise InvalidModel("key_count", f"{n_keys:,} keys; the limit is {limits.GGUF_KEYS:,}")
    cursor.need("key_count", n_keys * ENTRY_BYTES_MIN)
    index: Index = {}
    n_strings = 0
    for number in range(n_keys):
        key = _key(cursor, f"key[{number}]")
        if key in index:
            raise InvalidModel(shown(key), "the key appears twice")
        value = _value(cursor, shown(key), n_strings)
        if isinstance(value, Array) and value.type == STRING:
            n_strings += value.count
        index[key] = value
    return index


def alignment(index: Index) -> int:
    """How tensor data is aligned: a power of two within the limits."""
    value = index.get(ALIGNMENT_KEY)
    if value is None:
        return ALIGNMENT_DEFAULT
    if not isinstance(value, Scalar) or value.type != UINT32:
        raise InvalidModel(ALIGNMENT_KEY, f"is {describe(value)}; it must be u32")
    n_bytes = int(value.value)
    low, high = limits.GGUF_ALIGNMENT_MIN, limits.GGUF_ALIGNMENT_MAX
    if not low <= n_bytes <= high or n_bytes & (n_bytes - 1):
        raise InvalidModel(ALIGNMENT_KEY, f"is {n_bytes:,}; it must be a power of two from {low} to {high:,}")
    return n_bytes


def _key(cursor: Cursor, field: str) -> str:
    raw = cursor.string(field, limits.GGUF_KEY_BYTES)
    return plain_text(field, raw)


def plain_text(field: str, raw: bytes) -> str:
    """A name: not empty, UTF-8, and without the NUL at which C code would stop reading."""
    if not raw:
        raise InvalidModel(field, "has an empty name")
    if b"\0" in raw:
        raise InvalidModel(field, f"has a NUL byte in its name {shown(raw.decode('utf-8', 'replace'))!r}")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidModel(field, f"has a name that is not UTF-8 at byte {error.start}") from None


def _value(cursor: Cursor, field: str, n_strings: int) -> Value:
    code = cursor.u32(field)
    if code in SCALARS:
        value = cursor.number(field, code)
        if code == BOOL and value > 1:
            raise InvalidModel(field, f"is a bool of value {value}; it must be 0 or 1")
        return Scalar(code, value)
    if code == STRING:
        length = cursor.u64(field)
        check_length(field, length, limits.GGUF_STRING_BYTES)
        text = Text(cursor.position, length)
        cursor.skip(field, length)
        return text
    if code == ARRAY:
        return _array(cursor, field, n_strings)
    raise InvalidModel(field, f"has value type {code}; the format knows 0 to 12")


def _array(cursor: Cursor, field: str, n_strings: int) -> Array:
    """`n_strings` were in the arrays before this one."""
    code = cursor.u32(field)
    count = cursor.u64(field)
    if code == ARRAY:
        raise InvalidModel(field, "is an array of arrays; the limit is a depth of 1")
    if code != STRING and code not in SCALARS:
        raise InvalidModel(field, f"is an array of value type {code}; the format knows 0 to 12")
    # The vocabulary's own limit is applied here: before, not after, its tokens have been passed over.
    limit = limits.GGUF_VOCAB_MAX if field == TOKENS_KEY else limits.GGUF_ARRAY_ELEMENTS
    if count > limit:
        raise InvalidModel(field, f"has {count:,} elements; the limit is {limit:,}")
    array = Array(code, count, cursor.position)
    if code == STRING:
        if n_strings + count > limits.GGUF_STRINGS:
            raise InvalidModel(
                field,
                f"brings the strings of all arrays to {n_strings + count:,}; the limit is {limits.GGUF_STRINGS:,}",
            )
        cursor.skip_strings(field, count)
    else:
        cursor.skip(field, count * SCALARS[code].layout.size)
    return array
