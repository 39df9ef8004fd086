"""Tokens and their text. Reads the model's vocabulary; changes only its own cache of pieces.

Every method may be called from any thread while the model is open.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from runtime.llama.errors import LlamaError
from runtime.llama.library import lib, raw

KINDS = ("none", "spm", "bpe", "wpm", "ugm", "rwkv", "plamo2", "test")
UNKNOWN, CONTROL = 1 << 0, 1 << 3
TEXT_BYTES_BOUND = 2**31 - 1
OVERFLOW = -(2**31)
FIM_NAMES = ("pre", "suf", "mid", "pad", "rep", "sep")


class Vocab:
    """The vocabulary of one open model. Token ids are 0 to n_tokens - 1; a special token the model lacks is -1."""

    def __init__(self, pointer: int) -> None:
        L = lib()
        self._pointer_or_none: int | None = pointer
        self.n_tokens: int = L.llama_vocab_n_tokens(pointer)
        self.kind: str = KINDS[L.llama_vocab_type(pointer)]
        self.bos: int = L.llama_vocab_bos(pointer)
        self.eos: int = L.llama_vocab_eos(pointer)
        self.eot: int = L.llama_vocab_eot(pointer)
        self.nl: int = L.llama_vocab_nl(pointer)
        self.pad: int = L.llama_vocab_pad(pointer)
        self.add_bos: bool = L.llama_vocab_get_add_bos(pointer)
        self.add_eos: bool = L.llama_vocab_get_add_eos(pointer)
        self.fim: dict[str, int] = {
            name: token for name in FIM_NAMES if (token := getattr(L, f"llama_vocab_fim_{name}")(pointer)) >= 0
        }
        self._attrs: list[int] = [L.llama_vocab_get_attr(pointer, i) for i in range(self.n_tokens)]
        self.eog_ids: frozenset[int] = frozenset(i for i in range(self.n_tokens) if L.llama_vocab_is_eog(pointer, i))
        self.suppressed: tuple[int, ...] = _suppressed(pointer)
        self._pieces: list[bytes | None] = [None] * self.n_tokens
        self._buffer_size = 64
        self._piece = raw(
            "llama_token_to_piece", ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p,
            ctypes.c_int32, ctypes.c_int32, ctypes.c_bool,
        )  # fmt: skip
        self._tokenize = raw(
            "llama_tokenize", ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_void_p,
            ctypes.c_int32, ctypes.c_bool, ctypes.c_bool,
        )  # fmt: skip
        self._detokenize = raw(
            "llama_detokenize", ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p,
            ctypes.c_int32, ctypes.c_bool, ctypes.c_bool,
        )  # fmt: skip

    @property
    def pointer(self) -> int:
        """Address of the native vocabulary. Raises LlamaError once the model is closed."""
        if self._pointer_or_none is None:
            raise LlamaError("the vocabulary is gone: its model was closed")
        return self._pointer_or_none

    def close(self) -> None:
        """Called by the model. Cached pieces stay readable, everything native is refused from now on."""
        self._pointer_or_none = None

    # one token

    def is_eog(self, token: int) -> bool:
        """Does this token end a reply?"""
        return token in self.eog_ids

    def is_control(self, token: int) -> bool:
        return bool(self.attr(token) & CONTROL)

    def attr(self, token: int) -> int:
        """llama.cpp's attribute bits: 1 unknown, 2 unused, 4 normal, 8 control, 16 user defined, 32 byte, …"""
        self._check(token)
        return self._attrs[token]

    def piece(self, token: int, special: bool = True) -> bytes:
        """The bytes a token stands for, perhaps part of a character. Control tokens have none unless `special`."""
        try:
            cached = self._pieces[token]
        except IndexError:
            cached = None
        if cached is None or token < 0:
            cached = self._read_piece(token)
        if not special and self._attrs[token] & (UNKNOWN | CONTROL):
            return b""
        return cached

    @property
    def pieces(self) -> list[bytes]:
        """All pieces, special ones with their text, in the order of ids."""
        return [self.piece(token) for token in range(self.n_tokens)]

    # texts

    def tokenize(self, text: str | bytes, *, add_special: bool, parse_special: bool) -> list[int]:
        """Ids of `text`. Nothing is lost: NUL bytes count, and a lone surrogate becomes "?".

        `add_special` adds what the model wants around a text (BOS, EOS); `parse_special` lets the text of control
        tokens become those tokens. Raises LlamaError for 2 GiB and more, or a model without vocabulary.
        """
        data = text.encode("utf-8", "replace") if isinstance(text, str) else text
        if self.kind == "none":
            raise LlamaError("this model has no vocabulary: send token ids instead of text")
        if len(data) > TEXT_BYTES_BOUND:
            raise LlamaError(f"the text has {len(data)} bytes, at most {TEXT_BYTES_BOUND} can be tokenized at once")
        size = len(data) + 16
        for _attempt in range(2):
            out = np.empty(size, np.int32)
            n: int = self._tokenize(self.pointer, data, len(data), out.ctypes.data, size, add_special, parse_special)
            if n >= 0:
                ids: list[int] = out[:n].tolist()
                return ids
            if n == OVERFLOW:
                break
            size = -n
        raise LlamaError(f"llama.cpp could not tokenize {len(data)} bytes (code {n})")

    def detokenize(self, ids: Sequence[int], *, special: bool = True) -> bytes:
        """Text of `ids`, as llama.cpp joins it: a space some models put before the first word is left out."""
        tokens = np.asarray(ids, np.int32)
        if not len(tokens):
            return b""
        for token in (int(tokens.min()), int(tokens.max())):
            self._check(token)
        if self.kind == "none":
            return b""
        size = 8 * len(tokens) + 64
        for _attempt in range(2):
            out = ctypes.create_string_buffer(size)
            n: int = self._detokenize(self.pointer, tokens.ctypes.data, len(tokens), out, size, False, special)
            if n >= 0:
                return out.raw[:n]
            size = -n
        raise LlamaError(f"llama.cpp could not write out {len(tokens)} tokens (code {n})")

    def control_literals(self) -> dict[bytes, int]:
        """Texts that become one token with `parse_special` and stay text without it, with that token.

        llama.cpp compares the raw text of control and unknown tokens; user-defined tokens match either way.
        """
        L = lib()
        found: dict[bytes, int] = {}
        for token, attr in enumerate(self._attrs):
            if attr & (CONTROL | UNKNOWN):
                text: bytes = L.llama_vocab_get_text(self.pointer, token)
                if text:
                    found.setdefault(text, token)
        return found

    def _read_piece(self, token: int) -> bytes:
        self._check(token)
        while True:
            size = self._buffer_size
            buffer = ctypes.create_string_buffer(size)
            n: int = self._piece(self.pointer, token, buffer, size, 0, True)
            if n >= 0:
                self._pieces[token] = piece = buffer.raw[:n]
                return piece
            self._buffer_size = -n

    def _check(self, token: int) -> None:
        if not 0 <= token < self.n_tokens:
            raise LlamaError(f"token {token} is outside the vocabulary of {self.n_tokens}")


def _suppressed(pointer: int) -> tuple[int, ...]:
    """Tokens the model's file says must never be chosen."""
    count = ctypes.c_int32(0)
    tokens: Any = lib().llama_vocab_get_suppress_tokens(pointer, ctypes.byref(count))
    return tuple(int(tokens[i]) for i in range(count.value)) if tokens else ()
