"""Hostile headers, as a table: what is changed in an honest model, and the field whose name the refusal must carry.

Each case changes one thing in a model that reads without complaint, so the change is what is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gguf_files import (
    ARRAY,
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    STRING,
    U8,
    U16,
    U32,
    U64,
    Gguf,
    Tensor,
    array,
    scalar,
    string,
    tiny_llama,
)

from models import limits

Change = Callable[[Gguf], object]


@dataclass(frozen=True)
class Case:
    kind: str
    name: str
    field: str
    change: Change


def kind(name: str, *cases: tuple[str, str, Change]) -> list[Case]:
    return [Case(name, label, field, change) for label, field, change in cases]


def change_tensor(number: int = 1, **changes: object) -> Change:
    """Change attributes of one tensor; number 1 is output_norm.weight, a vector of 32."""

    def apply(file: Gguf) -> None:
        for name, value in changes.items():
            setattr(file.tensors[number], name, value)

    return apply


def add_entry(entry: bytes) -> Change:
    return lambda file: file.extra_entries.append(entry)


def with_key(key: str | bytes) -> Change:
    return add_entry(string(key) + struct.pack("<I", U8) + b"\1")


def add_key(code: int, payload: bytes, key: str = "x.y") -> Change:
    return add_entry(string(key) + struct.pack("<I", code) + payload)


def many_keys(count: int) -> Change:
    return lambda file: file.extra_entries.extend(
        string(f"extra.{i}") + struct.pack("<IB", U8, 1) for i in range(count - len(file.entries))
    )


def claim_string(length: int, actual: bytes = b"abc") -> bytes:
    return struct.pack("<Q", length) + actual


def claim_array(code: int, count: int, actual: bytes = b"") -> bytes:
    return struct.pack("<IQ", code, count) + actual


def heads(value: int) -> Change:
    return lambda file: file.set("llama.attention.head_count", U32, value)


def add_tensor(name: str | bytes, **changes: object) -> Change:
    return lambda file: file.tensors.append(Tensor(name, (32,), **changes))  # type: ignore[arg-type]


def wrong_type(key: str, code: int = STRING, payload: bytes | None = None) -> tuple[str, str, Change]:
    data = string("7") if payload is None else payload
    return f"{key} as type {code}", key, lambda file: file.raw(key, code, data)


CONTAINER = [
    *kind(
        "magic",
        ("empty name", "magic", lambda f: setattr(f, "magic", b"\0\0\0\0")),
        ("lower case", "magic", lambda f: setattr(f, "magic", b"gguf")),
        ("reversed", "magic", lambda f: setattr(f, "magic", b"FUGG")),
        ("old format", "magic", lambda f: setattr(f, "magic", b"ggml")),
        ("zip", "magic", lambda f: setattr(f, "magic", b"PK\3\4")),
        ("web page", "magic", lambda f: setattr(f, "magic", b"<!DO")),
        ("lfs pointer", "magic", lambda f: setattr(f, "magic", b"vers")),
    ),
    *kind(
        "version",
        ("0", "version", lambda f: setattr(f, "version", 0)),
        ("1", "version", lambda f: setattr(f, "version", 1)),
        ("4", "version", lambda f: setattr(f, "version", 4)),
        ("big-endian 3", "version", lambda f: setattr(f, "version", 3 << 24)),
        ("big-endian 2", "version", lambda f: setattr(f, "version", 2 << 24)),
        ("all ones", "version", lambda f: setattr(f, "version", 2**32 - 1)),
    ),
    *kind(
        "key count",
        ("one over the limit", "key_count", many_keys(limits.GGUF_KEYS + 1)),
        ("a claim of limit + 1", "key_count", lambda f: setattr(f, "n_keys", limits.GGUF_KEYS + 1)),
        ("a claim of 2^31", "key_count", lambda f: setattr(f, "n_keys", 2**31)),
        ("a claim of 2^63", "key_count", lambda f: setattr(f, "n_keys", 2**63)),
        ("a claim of 2^64 - 1", "key_count", lambda f: setattr(f, "n_keys", 2**64 - 1)),
    ),
    *kind(
        "tensor count",
        ("limit + 1", "tensor_count", lambda f: setattr(f, "n_tensors", limits.GGUF_TENSORS + 1)),
        ("10^9", "tensor_count", lambda f: setattr(f, "n_tensors", 10**9)),
        ("2^63", "tensor_count", lambda f: setattr(f, "n_tensors", 2**63)),
        ("2^64 - 1", "tensor_count", lambda f: setattr(f, "n_tensors", 2**64 - 1)),
        ("the limit, in a small file", "tensor_count", lambda f: setattr(f, "n_tensors", limits.GGUF_TENSORS)),
    ),
    *kind(
        "key name",
        ("empty", "key[17]", with_key("")),
        ("257 bytes", "key[17]", with_key("k" * (limits.GGUF_KEY_BYTES + 1))),
        ("claims 2^63 bytes", "key[17]", add_entry(claim_string(2**63))),
        ("NUL inside", "key[17]", with_key("general.architecture\0")),
        ("not UTF-8", "key[17]", with_key(b"general.\xff\xfe")),
        ("half a character", "key[17]", with_key("é".encode()[:1])),
    ),
    *kind(
        "duplicate key",
        ("architecture", "general.architecture", add_key(STRING, string("llama"), "general.architecture")),
        ("block count", "llama.block_count", add_key(U32, scalar(U32, 9), "llama.block_count")),
        ("tokens", "tokenizer.ggml.tokens", add_key(ARRAY, array(STRING, ["a"]), "tokenizer.ggml.tokens")),
        ("another type", "llama.context_length", add_key(U64, scalar(U64, 9), "llama.context_length")),
        ("unknown key", "x.y", lambda f: [with_key("x.y")(f), with_key("x.y")(f)]),
    ),
    *kind(
        "value type",
        ("13", "x.y", add_key(13, b"\0" * 8)),
        ("255", "x.y", add_key(255, b"\0" * 8)),
        ("2^32 - 1", "x.y", add_key(2**32 - 1, b"\0" * 8)),
        ("array of 13", "x.y", add_key(ARRAY, claim_array(13, 1, b"\0" * 8))),
        ("array of 2^31", "x.y", add_key(ARRAY, claim_array(2**31, 1, b"\0" * 8))),
        ("bool of 2", "x.y", add_key(BOOL, b"\2")),
    ),
    *kind(
        "string length",
        ("one over the limit", "x.y", add_key(STRING, string(b"a" * (limits.GGUF_STRING_BYTES + 1)))),
        ("900 MB", "x.y", add_key(STRING, claim_string(900 * limits.MIB))),
        ("2^32", "x.y", add_key(STRING, claim_string(2**32))),
        ("2^63", "x.y", add_key(STRING, claim_string(2**63))),
        ("2^64 - 1", "x.y", add_key(STRING, claim_string(2**64 - 1))),
        ("inside an array", "x.y", add_key(ARRAY, claim_array(STRING, 2, string("a") + claim_string(2**40)))),
    ),
    *kind(
        "string beyond the file",
        ("9 MB", "x.y", add_key(STRING, claim_string(9 * limits.MIB))),
        ("in an array, last", "x.y", add_key(ARRAY, claim_array(STRING, 2, string("a") + claim_string(2**20 * 9)))),
        ("in an array, first", "x.y", add_key(ARRAY, claim_array(STRING, 1, claim_string(2**20 * 9)))),
        ("one byte", "general.name", lambda f: setattr(f, "tensors", []) or _last_string_too_long(f, 1)),
        ("a thousand bytes", "general.name", lambda f: setattr(f, "tensors", []) or _last_string_too_long(f, 1000)),
    ),
    *kind(
        "array count",
        ("limit + 1 of u8", "x.y", add_key(ARRAY, array(U8, bytes(limits.GGUF_ARRAY_ELEMENTS + 1)))),
        ("2^29 of u8", "x.y", add_key(ARRAY, claim_array(U8, 2**29))),
        ("2^30 - 1 of u8", "x.y", add_key(ARRAY, claim_array(U8, 2**30 - 1))),
        ("2^63 of strings", "x.y", add_key(ARRAY, claim_array(STRING, 2**63))),
        ("2^61 of u64", "x.y", add_key(ARRAY, claim_array(U64, 2**61))),
        ("2^64 - 1 of f32", "x.y", add_key(ARRAY, claim_array(F32, 2**64 - 1))),
    ),
    *kind(
        "array beyond the file",
        ("4 M of u8", "x.y", add_key(ARRAY, claim_array(U8, limits.GGUF_ARRAY_ELEMENTS))),
        ("4 M of u64", "x.y", add_key(ARRAY, claim_array(U64, limits.GGUF_ARRAY_ELEMENTS))),
        ("4 M of strings", "x.y", add_key(ARRAY, claim_array(STRING, limits.GGUF_ARRAY_ELEMENTS))),
        ("a million floats", "x.y", add_key(ARRAY, claim_array(F32, 10**6))),
        ("a million bools", "x.y", add_key(ARRAY, claim_array(BOOL, 10**6))),
    ),
    *kind(
        "array depth",
        ("array of arrays", "x.y", add_key(ARRAY, claim_array(ARRAY, 1, array(U8, [1])))),
        ("none of them", "x.y", add_key(ARRAY, claim_array(ARRAY, 0))),
        ("claims 2^63", "x.y", add_key(ARRAY, claim_array(ARRAY, 2**63))),
        ("three deep", "x.y", add_key(ARRAY, claim_array(ARRAY, 1, claim_array(ARRAY, 1, array(U8, [1]))))),
        ("as tokens", "tokenizer.ggml.tokens", lambda f: f.raw("tokenizer.ggml.tokens", ARRAY, claim_array(ARRAY, 1))),
    ),
]


def _last_string_too_long(file: Gguf, extra: int) -> None:
    """general.name comes last and reaches `extra` bytes past the end of the file."""
    del file.entries["general.name"]
    file.entries["general.name"] = (STRING, claim_string(3 + extra))


TENSORS = [
    *kind(
        "tensor name",
        ("empty", "tensor[1]", change_tensor(name="")),
        ("64 bytes", "tensor[1]", change_tensor(name="n" * 64)),
        ("NUL inside", "tensor[1]", change_tensor(name="a\0b")),
        ("not UTF-8", "tensor[1]", change_tensor(name=b"\xc3")),
        ("a megabyte", "tensor[1]", change_tensor(name="n" * limits.MIB)),
    ),
    *kind(
        "duplicate tensor",
        ("first and second", "token_embd.weight.name", change_tensor(name="token_embd.weight")),
        ("last", "output_norm.weight.name", change_tensor(10, name="output_norm.weight")),
        ("in a block", "blk.0.attn_q.weight.name", change_tensor(4, name="blk.0.attn_q.weight")),
        ("added", "token_embd.weight.name", add_tensor("token_embd.weight")),
        ("non-ASCII", "µ.name", lambda f: [add_tensor("µ")(f), add_tensor("µ")(f)]),
    ),
    *kind(
        "number of dimensions",
        ("0", "output_norm.weight.dims", change_tensor(n_dims=0, dims=())),
        ("5", "output_norm.weight.dims", change_tensor(n_dims=5, dims=(32, 1, 1, 1, 1))),
        ("2^31", "output_norm.weight.dims", change_tensor(n_dims=2**31)),
        ("2^32 - 1", "output_norm.weight.dims", change_tensor(n_dims=2**32 - 1)),
        ("255", "output_norm.weight.dims", change_tensor(n_dims=255)),
    ),
    *kind(
        "zero dimension",
        ("only", "output_norm.weight.dims", change_tensor(dims=(0,))),
        ("first", "output_norm.weight.dims", change_tensor(dims=(0, 32))),
        ("second", "output_norm.weight.dims", change_tensor(dims=(32, 0))),
        ("last of four", "output_norm.weight.dims", change_tensor(dims=(32, 1, 1, 0))),
        ("beside a huge one", "output_norm.weight.dims", change_tensor(dims=(2**63, 0))),
    ),
    *kind(
        "number of elements",
        ("2^48", "output_norm.weight.dims", change_tensor(dims=(2**48,))),
        ("2^42 + 1 and 2^22", "output_norm.weight.dims", change_tensor(dims=(2**42 + 1, 2**22))),
        ("2^63", "output_norm.weight.dims", change_tensor(dims=(2**63,))),
        ("2^64 - 1", "output_norm.weight.dims", change_tensor(dims=(2**64 - 1,))),
        ("a product that wraps to 32", "output_norm.weight.dims", change_tensor(dims=(2**32, 2**31, 2, 32))),
        ("a product that wraps to 0", "output_norm.weight.dims", change_tensor(dims=(2**16,) * 4)),
    ),
    *kind(
        "tensor type",
        ("4, removed", "output_norm.weight.type", change_tensor(type=4)),
        ("31, removed", "output_norm.weight.type", change_tensor(type=31)),
        ("43", "output_norm.weight.type", change_tensor(type=43)),
        ("255", "output_norm.weight.type", change_tensor(type=255)),
        ("2^32 - 1", "output_norm.weight.type", change_tensor(type=2**32 - 1)),
    ),
    *kind(
        "row and block",
        ("33 of q8_0", "output_norm.weight.dims", change_tensor(dims=(33,), type=8)),
        ("31 of q4_0", "output_norm.weight.dims", change_tensor(dims=(31,), type=2)),
        ("128 of q4_K", "output_norm.weight.dims", change_tensor(dims=(128,), type=12)),
        ("16 x 16 of q4_K", "output_norm.weight.dims", change_tensor(dims=(16, 16), type=12)),
        ("1 of q4_1", "output_norm.weight.dims", change_tensor(dims=(1,), type=3)),
    ),
    *kind(
        "offset alignment",
        ("1", "output_norm.weight.offset", change_tensor(offset=1)),
        ("16 beyond", "output_norm.weight.offset", change_tensor(offset=299 * 128 + 16)),
        ("first at 8", "token_embd.weight.offset", change_tensor(0, offset=8)),
        ("2^64 - 1", "output_norm.weight.offset", change_tensor(offset=2**64 - 1)),
        ("32 under 64", "token_embd.weight.offset", lambda f: _aligned_to_64(f)),
    ),
    *kind(
        "offset order",
        ("third before second", "blk.0.attn_norm.weight.offset", change_tensor(2, offset=0)),
        ("last at 0", "blk.0.ffn_down.weight.offset", change_tensor(10, offset=0)),
        ("last at 32", "blk.0.ffn_down.weight.offset", change_tensor(10, offset=32)),
        ("two swapped", "blk.0.attn_norm.weight.offset", lambda f: _swapped(f, 1, 2)),
        ("two larger swapped", "blk.0.attn_k.weight.offset", lambda f: _swapped(f, 3, 4)),
    ),
    *kind(
        "overlap",
        ("second in first", "output_norm.weight.offset", change_tensor(offset=32)),
        ("at the same place", "output_norm.weight.offset", change_tensor(offset=0)),
        ("by its last block", "output_norm.weight.offset", change_tensor(offset=299 * 128 - 32)),
        ("first claims more than it has", "output_norm.weight.offset", lambda f: _claims_more(f, 0, (32, 300))),
        ("a vector claims more", "blk.0.attn_norm.weight.offset", lambda f: _claims_more(f, 1, (64,))),
    ),
    *kind(
        "size that is not type x shape",
        ("a gap of one block", "output_norm.weight.offset", change_tensor(offset=299 * 128 + 32)),
        ("a gap of a megabyte", "output_norm.weight.offset", change_tensor(offset=299 * 128 + limits.MIB)),
        ("a gap at the start", "token_embd.weight.offset", change_tensor(0, offset=32)),
        ("first claims less than it has", "output_norm.weight.offset", lambda f: _claims_less(f, 0, (32, 298))),
        ("a type that is smaller", "output_norm.weight.offset", lambda f: _claims_less(f, 0, (32, 299), 8)),
    ),
    *kind(
        "tensor beyond the file",
        ("one byte short", "blk.0.ffn_down.weight.offset", lambda f: setattr(f, "cut", 1)),
        ("half of it", "blk.0.ffn_up.weight.offset", lambda f: setattr(f, "cut", 12_000)),
        ("no data at all", "token_embd.weight.offset", lambda f: setattr(f, "cut", 75_520)),
        ("a last one of 2^47", "big.offset", lambda f: f.tensors.append(Tensor("big", (2**47,), data=b""))),
        ("a last one of a gigabyte", "big.offset", lambda f: f.tensors.append(Tensor("big", (2**28,), data=b""))),
    ),
]


def _aligned_to_64(file: Gguf) -> None:
    file.set("general.alignment", U32, 64)
    file.tensors[0].offset = 32


def _swapped(file: Gguf, first: int, second: int) -> None:
    """Two tensors keep their data in place, but the header lists them the other way round."""
    starts, position = [], 0
    for tensor in file.tensors:
        starts.append(position)
        position += -(-tensor.n_bytes // 32) * 32
    for number, tensor in enumerate(file.tensors):
        tensor.offset = starts[number]
    file.tensors[first], file.tensors[second] = file.tensors[second], file.tensors[first]


def _claims_more(file: Gguf, number: int, dims: tuple[int, ...], code: int = 0) -> None:
    """The tensors behind `number` stay where they were, while its shape or type states another size."""
    starts, position = [], 0
    for tensor in file.tensors:
        starts.append(position)
        position += -(-tensor.n_bytes // 32) * 32
    for tensor, start in zip(file.tensors, starts, strict=True):
        tensor.offset = start
        tensor.data = bytes(tensor.n_bytes)
    file.tensors[number].dims = dims
    file.tensors[number].type = code


_claims_less = _claims_more


def alignment(value: int) -> Change:
    return lambda file: file.set("general.alignment", U32, value)


MEANING = [
    *kind(
        "alignment",
        ("0", "general.alignment", alignment(0)),
        ("3", "general.alignment", alignment(3)),
        ("4", "general.alignment", alignment(4)),
        ("48", "general.alignment", alignment(48)),
        ("8192", "general.alignment", alignment(8192)),
        ("2^31", "general.alignment", alignment(2**31)),
        ("a u64", "general.alignment", lambda f: f.set("general.alignment", U64, 32)),
        ("a string", "general.alignment", lambda f: f.text("general.alignment", "32")),
    ),
    *kind(
        "architecture",
        ("missing", "general.architecture", lambda f: f.drop("general.architecture")),
        ("empty", "general.architecture", lambda f: f.text("general.architecture", "")),
        ("not UTF-8", "general.architecture", lambda f: f.text("general.architecture", b"\xff")),
        ("65 bytes", "general.architecture", lambda f: f.text("general.architecture", "a" * 65)),
        ("an escape sequence", "general.architecture", lambda f: f.text("general.architecture", "\x1b[2J")),
        ("a number", "general.architecture", lambda f: f.set("general.architecture", U32, 1)),
    ),
    *kind(
        "not a model",
        ("adapter", "general.type", lambda f: f.text("general.type", "adapter")),
        ("projector", "general.type", lambda f: f.text("general.type", "mmproj")),
        ("imatrix", "general.type", lambda f: f.text("general.type", "imatrix")),
        ("clip", "general.type", lambda f: f.text("general.architecture", "clip")),
        ("type as a number", "general.type", lambda f: f.set("general.type", U32, 1)),
    ),
    *kind(
        "blocks",
        ("0", "llama.block_count", lambda f: f.set("llama.block_count", U32, 0)),
        ("513", "llama.block_count", lambda f: f.set("llama.block_count", U32, 513)),
        ("2^32 - 1", "llama.block_count", lambda f: f.set("llama.block_count", U32, 2**32 - 1)),
        ("missing", "llama.block_count", lambda f: f.drop("llama.block_count")),
        ("negative", "llama.block_count", lambda f: f.set("llama.block_count", I32, -1)),
        (
            "more drafts than blocks",
            "llama.nextn_predict_layers",
            lambda f: f.set("llama.nextn_predict_layers", U32, 2),
        ),
    ),
    *kind(
        "sizes",
        ("no context", "llama.context_length", lambda f: f.set("llama.context_length", U32, 0)),
        ("context missing", "llama.context_length", lambda f: f.drop("llama.context_length")),
        ("no embedding", "llama.embedding_length", lambda f: f.set("llama.embedding_length", U32, 0)),
        ("embedding missing", "llama.embedding_length", lambda f: f.drop("llama.embedding_length")),
        ("key length 0", "llama.attention.key_length", lambda f: f.set("llama.attention.key_length", U32, 0)),
        ("value length 0", "llama.attention.value_length", lambda f: f.set("llama.attention.value_length", U32, 0)),
    ),
    *kind(
        "heads",
        ("0", "llama.attention.head_count", heads(0)),
        ("missing", "llama.attention.head_count", lambda f: f.drop("llama.attention.head_count")),
        ("more than elements", "llama.attention.head_count", heads(33)),
        ("no KV heads", "llama.attention.head_count_kv", lambda f: f.set("llama.attention.head_count_kv", U32, 0)),
        ("zeros", "llama.attention.head_count", lambda f: f.list("llama.attention.head_count", U32, [0])),
        ("for two blocks", "llama.attention.head_count", lambda f: f.list("llama.attention.head_count", U32, [4, 4])),
        ("negative", "llama.attention.head_count", lambda f: f.list("llama.attention.head_count", I32, [-4])),
        ("as floats", "llama.attention.head_count", lambda f: f.list("llama.attention.head_count", F32, [4.0])),
    ),
    *kind(
        "vocabulary",
        ("2 M + 1 tokens", "tokenizer.ggml.tokens", lambda f: _tokens(f, limits.GGUF_VOCAB_MAX + 1)),
        ("4 M tokens", "tokenizer.ggml.tokens", lambda f: _tokens(f, limits.GGUF_ARRAY_ELEMENTS)),
        ("stated 2 M + 1", "llama.vocab_size", lambda f: f.set("llama.vocab_size", U32, limits.GGUF_VOCAB_MAX + 1)),
        ("stated 2^32 - 1", "llama.vocab_size", lambda f: f.set("llama.vocab_size", U32, 2**32 - 1)),
        ("tokens as numbers", "tokenizer.ggml.tokens", lambda f: f.list("tokenizer.ggml.tokens", U32, [1, 2])),
        ("one token", "tokenizer.ggml.tokens", lambda f: f.text("tokenizer.ggml.tokens", "a")),
        ("types as u8", "tokenizer.ggml.token_type", lambda f: f.list("tokenizer.ggml.token_type", U8, [1] * 299)),
        ("scores as f64", "tokenizer.ggml.scores", lambda f: f.list("tokenizer.ggml.scores", F64, [0.0] * 299)),
        ("merges as numbers", "tokenizer.ggml.merges", lambda f: f.list("tokenizer.ggml.merges", U32, [1])),
    ),
    *kind(
        "strings in all arrays",
        ("2 large arrays", "x.2", lambda f: _string_arrays(f, 2, 2**22)),
        ("3 arrays", "x.3", lambda f: _string_arrays(f, 3, 2**21)),
        ("6 arrays", "x.6", lambda f: _string_arrays(f, 6, 2**20)),
        ("12 arrays", "x.12", lambda f: _string_arrays(f, 12, 2**19)),
        ("24 arrays", "x.24", lambda f: _string_arrays(f, 24, 2**18)),
    ),
    *kind(
        "wrong type of a key we use",
        wrong_type("llama.block_count"),
        wrong_type("llama.context_length", U64, scalar(U64, 512)),
        wrong_type("llama.embedding_length", I32, scalar(I32, 32)),
        wrong_type("llama.embedding_length", F32, scalar(F32, 32.0)),
        wrong_type("llama.feed_forward_length", I64, scalar(I64, 64)),
        wrong_type("llama.attention.head_count", U16, scalar(U16, 4)),
        wrong_type("llama.attention.head_count_kv", U8, b"\2"),
        wrong_type("llama.attention.sliding_window", I16, scalar(I16, 4)),
        wrong_type("llama.attention.causal", U32, scalar(U32, 1)),
        wrong_type("llama.rope.freq_base", F64, scalar(F64, 1e4)),
        wrong_type("llama.rope.scaling.type", U32, scalar(U32, 1)),
        wrong_type("llama.expert_count", I8, b"\1"),
        wrong_type("general.name", U32, scalar(U32, 1)),
        wrong_type("general.license", BOOL, b"\1"),
        wrong_type("general.file_type"),
        wrong_type("tokenizer.ggml.model", U32, scalar(U32, 1)),
        wrong_type("tokenizer.ggml.pre", ARRAY, array(STRING, ["a"])),
        wrong_type("tokenizer.ggml.bos_token_id", I32, scalar(I32, -1)),
        wrong_type("tokenizer.ggml.add_bos_token", U8, b"\1"),
        wrong_type("tokenizer.chat_template", ARRAY, array(STRING, ["a"])),
        wrong_type("tokenizer.chat_template.tools", U32, scalar(U32, 1)),
        wrong_type("split.count", U32, scalar(U32, 2)),
    ),
    *kind(
        "numbers that are none",
        ("nan", "llama.rope.freq_base", lambda f: f.set("llama.rope.freq_base", F32, float("nan"))),
        ("inf", "llama.rope.freq_base", lambda f: f.set("llama.rope.freq_base", F32, float("inf"))),
        ("negative", "llama.rope.freq_base", lambda f: f.set("llama.rope.freq_base", F32, -1.0)),
        ("factor nan", "llama.rope.scaling.factor", lambda f: f.set("llama.rope.scaling.factor", F32, float("nan"))),
        ("factor -inf", "llama.rope.scale_linear", lambda f: f.set("llama.rope.scale_linear", F32, float("-inf"))),
    ),
    *kind(
        "text that is not UTF-8",
        ("tokenizer", "tokenizer.ggml.model", lambda f: f.text("tokenizer.ggml.model", b"\xff")),
        ("pre-tokenizer", "tokenizer.ggml.pre", lambda f: f.text("tokenizer.ggml.pre", b"\xc3\x28")),
        ("template", "tokenizer.chat_template", lambda f: f.text("tokenizer.chat_template", b"\xf5")),
        ("named template", "tokenizer.chat_template.a", lambda f: f.text("tokenizer.chat_template.a", b"\x80")),
        ("scaling", "llama.rope.scaling.type", lambda f: f.text("llama.rope.scaling.type", b"\xed\xa0\x80")),
    ),
    *kind(
        "a list with one number for each block",
        ("too few", "llama.feed_forward_length", lambda f: f.list("llama.feed_forward_length", U32, [])),
        ("too many", "llama.feed_forward_length", lambda f: f.list("llama.feed_forward_length", U32, [1] * 513)),
        ("a million", "llama.expert_used_count", lambda f: f.list("llama.expert_used_count", I32, [1] * 10**6)),
        ("window of strings", "llama.attention.sliding_window_pattern", lambda f: _window(f, STRING, ["yes"])),
        ("window of two", "llama.attention.sliding_window_pattern", lambda f: _window(f, BOOL, [1, 0])),
    ),
]


def _tokens(file: Gguf, count: int) -> None:
    file.raw("tokenizer.ggml.tokens", ARRAY, struct.pack("<IQ", STRING, count) + bytes(8 * count))


def _string_arrays(file: Gguf, count: int, size: int) -> None:
    """`count` arrays of `size` empty strings each. The last one, with the tokens, is over the limit."""
    for number in range(count):
        file.raw(f"x.{number + 1}", ARRAY, struct.pack("<IQ", STRING, size) + bytes(8 * size))


def _window(file: Gguf, code: int, values: list[float] | list[str]) -> None:
    file.set("llama.attention.sliding_window", U32, 16)
    file.list("llama.attention.sliding_window_pattern", code, values)


CASES = CONTAINER + TENSORS + MEANING


def write_hostile(case: Case, path: Path) -> Path:
    """The file of one case at `path`."""
    file = tiny_llama()
    case.change(file)
    return file.write(path)
