"""A small writer of GGUF bytes, for valid and for hostile files. It checks nothing: any number can be made a lie.

`tiny_llama()` is a complete model that llama.cpp loads; tests change one thing in it.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}
# type number -> (elements a block, bytes a block), of the types the tests use
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 8: (32, 34), 9: (32, 36), 12: (256, 144)}
BLOCKS |= {24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 30: (1, 2)}
# A tensor that claims more than this gets only so many zeros.
DATA_BYTES_MAX = 2**25


def string(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def scalar(code: int, value: float) -> bytes:
    return struct.pack("<" + FORMATS[code], value)


def array(code: int, values: Sequence[float] | Sequence[str] | Sequence[bytes], count: int | None = None) -> bytes:
    """Payload of an array value; `count` may claim another number of elements."""
    head = struct.pack("<IQ", code, len(values) if count is None else count)
    if code == STRING:
        return head + b"".join(string(value) for value in values)  # type: ignore[arg-type]
    return head + struct.pack(f"<{len(values)}{FORMATS[code]}", *values)


@dataclass
class Tensor:
    """`offset` and `stored` (bytes written) follow from shape and type unless they are set."""

    name: str | bytes
    dims: Sequence[int]
    type: int = 0
    offset: int | None = None
    n_dims: int | None = None
    data: bytes | None = None

    @property
    def n_bytes(self) -> int:
        block, block_bytes = BLOCKS.get(self.type, (1, 4))
        total = 1
        for dim in self.dims:
            total *= dim
        return total // block * block_bytes


@dataclass
class Gguf:
    """A file in the making: entries by key in order, then tensors. `extra_entries` come last and may repeat keys."""

    entries: dict[str | bytes, tuple[int, bytes]] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)
    extra_entries: list[bytes] = field(default_factory=list)
    magic: bytes = b"GGUF"
    version: int = 3
    alignment: int = 32
    n_keys: int | None = None
    n_tensors: int | None = None
    cut: int = 0  # bytes to leave off the end
    tail: bytes = b""

    def set(self, key: str | bytes, code: int, value: float) -> Gguf:
        self.entries[key] = (code, scalar(code, value))
        return self

    def text(self, key: str | bytes, value: str | bytes) -> Gguf:
        self.entries[key] = (STRING, string(value))
        return self

    def list(
        self,
        key: str | bytes,
        code: int,
        values: Sequence[float] | Sequence[str] | Sequence[bytes],
        count: int | None = None,
    ) -> Gguf:
        self.entries[key] = (ARRAY, array(code, values, count))
        return self

    def raw(self, key: str | bytes, code: int, payload: bytes) -> Gguf:
        self.entries[key] = (code, payload)
        return self

    def drop(self, key: str | bytes) -> Gguf:
        del self.entries[key]
        return self

    def entry(self, key: str | bytes, code: int, payload: bytes) -> bytes:
        return string(key) + struct.pack("<I", code) + payload

    def header(self) -> bytes:
        """Everything before the tensor data, without the padding."""
        n_keys = len(self.entries) + len(self.extra_entries) if self.n_keys is None else self.n_keys
        n_tensors = len(self.tensors) if self.n_tensors is None else self.n_tensors
        out = [self.magic, struct.pack("<IQQ", self.version, n_tensors, n_keys)]
        out += [self.entry(key, code, payload) for key, (code, payload) in self.entries.items()]
        out += self.extra_entries
        position = 0
        for tensor in self.tensors:
            offset = position if tensor.offset is None else tensor.offset
            n_dims = len(tensor.dims) if tensor.n_dims is None else tensor.n_dims
            out.append(
                string(tensor.name) + struct.pack("<I", n_dims) + struct.pack(f"<{len(tensor.dims)}Q", *tensor.dims)
            )
            out.append(struct.pack("<IQ", tensor.type, offset % 2**64))
            position = -(-(position + tensor.n_bytes) // self.alignment) * self.alignment
        return b"".join(out)

    def build(self) -> bytes:
        header = self.header()
        out = [header, bytes(-len(header) % self.alignment) if self.tensors else b""]
        for tensor in self.tensors:
            data = bytes(min(tensor.n_bytes, DATA_BYTES_MAX)) if tensor.data is None else tensor.data
            out += [data, bytes(-len(data) % self.alignment)]
        whole = b"".join([*out, self.tail])
        return whole[: len(whole) - self.cut]

    def write(self, path: Path) -> Path:
        path.write_bytes(self.build())
        return path

    def write_sparse(self, path: Path, n_bytes: int) -> Path:
        """The header alone, in a file of `n_bytes` that takes no room on the disk."""
        with path.open("wb") as out:
            out.write(self.header())
            out.truncate(n_bytes)
        return path


def byte_tokens() -> list[bytes]:
    return [b"<0x%02X>" % byte for byte in range(256)]


def spm_tokens(n_words: int = 40) -> list[bytes]:
    """Special tokens, all bytes, and words: a vocabulary that any text can be put into."""
    return [b"<unk>", b"<s>", b"</s>", *byte_tokens(), *(b"\xe2\x96\x81w%d" % i for i in range(n_words))]


def spm_types(tokens: Sequence[bytes]) -> list[int]:
    special = {b"<unk>": 2, b"<s>": 3, b"</s>": 3}
    return [special.get(token, 6 if token.startswith(b"<0x") else 1) for token in tokens]


def spm(file: Gguf, tokens: Sequence[bytes], types: Sequence[int] | None = None) -> Gguf:
    """Give `file` a sentencepiece vocabulary."""
    file.text("tokenizer.ggml.model", "llama")
    file.list("tokenizer.ggml.tokens", STRING, tokens)
    file.list("tokenizer.ggml.scores", F32, [0.0] * len(tokens))
    file.list("tokenizer.ggml.token_type", I32, spm_types(tokens) if types is None else types)
    return file


def tiny_llama(
    *,
    n_layers: int = 1,
    n_embd: int = 32,
    n_heads: int = 4,
    n_heads_kv: int = 2,
    n_ff: int = 64,
    alignment: int | None = None,
    seed: int | None = None,
) -> Gguf:
    """A llama model of a few kilobytes. Its weights are zero, or random with a `seed`."""
    file = Gguf(alignment=alignment or 32)
    file.text("general.architecture", "llama").text("general.name", "Tiny").set("general.file_type", U32, 0)
    if alignment:
        file.set("general.alignment", U32, alignment)
    file.set("llama.block_count", U32, n_layers).set("llama.context_length", U32, 512)
    file.set("llama.embedding_length", U32, n_embd).set("llama.feed_forward_length", U32, n_ff)
    file.set("llama.attention.head_count", U32, n_heads).set("llama.attention.head_count_kv", U32, n_heads_kv)
    file.set("llama.attention.layer_norm_rms_epsilon", F32, 1e-5).set("llama.rope.freq_base", F32, 10000.0)
    tokens = spm_tokens()
    spm(file, tokens).set("tokenizer.ggml.bos_token_id", U32, 1).set("tokenizer.ggml.eos_token_id", U32, 2)
    n_kv = n_embd // n_heads * n_heads_kv
    shapes: dict[str, Sequence[int]] = {"token_embd.weight": (n_embd, len(tokens)), "output_norm.weight": (n_embd,)}
    for layer in range(n_layers):
        rows = {"attn_norm": (n_embd,), "attn_q": (n_embd, n_embd), "attn_k": (n_embd, n_kv), "attn_v": (n_embd, n_kv)}
        rows |= {"attn_output": (n_embd, n_embd), "ffn_norm": (n_embd,), "ffn_gate": (n_embd, n_ff)}
        rows |= {"ffn_up": (n_embd, n_ff), "ffn_down": (n_ff, n_embd)}
        shapes |= {f"blk.{layer}.{name}.weight": dims for name, dims in rows.items()}
    file.tensors = [Tensor(name, dims) for name, dims in shapes.items()]
    if seed is not None:
        _fill(file.tensors, random.Random(seed))
    return file


def _fill(tensors: list[Tensor], chance: random.Random) -> None:
    for tensor in tensors:
        count = tensor.n_bytes // 4
        is_norm = "norm" in str(tensor.name)
        values = [1.0 if is_norm else chance.gauss(0, 0.2) for _ in range(count)]
        tensor.data = struct.pack(f"<{count}f", *values)
