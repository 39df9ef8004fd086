"""Vocabularies that llama.cpp's tokenizers survive. Streams over the tokens; keeps a hash of each, not the token.

A token is compared in the form llama.cpp gives it: cut at a NUL, and named after its number when it is empty.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections import Counter
from collections.abc import Iterator

from models.errors import InvalidModel
from models.header.facts import Facts
from models.header.info import Tokenizer
from models.header.metadata import TOKENS_KEY as TOKENS
from models.header.tokenizer import SCORES, TYPES
from models.header.types import FLOAT32, INT32, STRING

MODEL_KEY = "tokenizer.ggml.model"
MODELS = frozenset({"llama", "bert", "gpt2", "t5", "rwkv", "plamo2", "gemma4", "hybriddna", "whitespace"})
# llama.cpp enters tokens into a tree by recursion, one call for each byte.
TOKEN_BYTES = 4096
TYPE_BYTE = 6
BYTE_TOKEN = re.compile(rb"<0x[0-9A-Fa-f]{2}>")
MALFORMED = re.compile(rb"<0x(?![0-9A-Fa-f]{2}>)..>", re.DOTALL)
BYTE_SPELLINGS = frozenset({b"<0x%02X>" % byte for byte in range(256)} | {bytes((byte,)) for byte in range(256)})
# Spellings with upper and lower case digits of 256 bytes.
BYTE_TOKENS_MAX = 1024
# Every byte that can occur in UTF-8 text.
TEXT_BYTES = frozenset({*range(0xC0), *range(0xC2, 0xF5)})
# More hashes than this are sorted instead of put into a set, which would take 60 bytes for each.
HASHES_IN_A_SET = 300_000

# (bos, eos, separator) that llama.cpp assumes, and whether it adds bos and eos, where the file says nothing.
DEFAULTS: dict[str, tuple[int, int, int, bool, bool]] = {
    "llama": (1, 2, -1, True, False),
    "bert": (101, -1, 102, True, False),
    "gpt2": (11, 11, -1, False, False),
    "t5": (-1, 1, -1, False, True),
}


def check_vocabulary(tokenizer: Tokenizer, facts: Facts) -> None:
    """Refuse what would end the process at load or at some later text. Raises InvalidModel."""
    model = tokenizer.model
    if model is None:
        raise InvalidModel(MODEL_KEY, "is missing: without a tokenizer the model cannot be given text")
    if model not in MODELS:
        raise InvalidModel(MODEL_KEY, f"is {model!r}, which takes no text; known are {', '.join(sorted(MODELS))}")
    if not facts.has(TOKENS) or not tokenizer.n_tokens:
        raise InvalidModel(TOKENS, "holds no tokens")
    _check_lengths(facts, tokenizer.n_tokens)
    _check_special(tokenizer, model)
    _check_tokens(facts, tokenizer.n_tokens, model)


def _check_lengths(facts: Facts, n_tokens: int) -> None:
    for name, elements in ((SCORES, (FLOAT32, INT32)), (TYPES, (INT32,))):
        value = facts.array(name, elements)
        if value is not None and value.count < n_tokens:
            raise InvalidModel(name, f"has {value.count:,} elements for {n_tokens:,} tokens")


def _check_special(tokenizer: Tokenizer, model: str) -> None:
    """A token that is added to every text must exist."""
    if model not in DEFAULTS:
        return
    bos, eos, separator, adds_bos, adds_eos = DEFAULTS[model]
    adds_bos = adds_bos if tokenizer.add_bos is None else tokenizer.add_bos
    adds_eos = adds_eos if tokenizer.add_eos is None else tokenizer.add_eos
    always = model == "bert"
    for name, stated, default, needed in (
        ("bos", tokenizer.bos, bos, adds_bos or always),
        ("eos", tokenizer.eos, eos, adds_eos and not always),
        ("seperator", tokenizer.separator, separator, always),
    ):
        if needed and stated is None and not 0 <= default < tokenizer.n_tokens:
            raise InvalidModel(
                f"tokenizer.ggml.{name}_token_id",
                f"names no token of the {tokenizer.n_tokens:,}, but is added to every text",
            )


def _check_tokens(facts: Facts, n_tokens: int, model: str) -> None:
    byte_typed = _byte_typed(facts, n_tokens, model)
    falls_back_to_bytes = model in ("llama", "plamo2")
    hashes = array("q")
    found: set[bytes] = set()
    for first, batch in _tokens(facts):
        longest = max(map(len, batch))
        if longest > TOKEN_BYTES:
            raise InvalidModel(TOKENS, f"has a token of {longest:,} bytes; the limit is {TOKEN_BYTES:,}")
        for number in [n for n in byte_typed if first <= n < first + len(batch)]:
            if not BYTE_TOKEN.fullmatch(batch[number - first]):
                raise _malformed(number, batch[number - first])
        if falls_back_to_bytes:
            _check_spelling(first, batch)
        hashes.extend(map(hash, batch))
        found |= BYTE_SPELLINGS.intersection(batch)
    if model == "llama":
        _check_bytes(found)
    _check_unique(facts, hashes)


def _check_spelling(first: int, batch: list[bytes]) -> None:
    """No token looks almost like a byte token, whatever its type."""
    if MALFORMED.search(b"".join(batch)):
        for number, token in enumerate(batch, start=first):
            if MALFORMED.fullmatch(token):
                raise _malformed(number, token)


def _malformed(number: int, token: bytes) -> InvalidModel:
    return InvalidModel(TOKENS, f"token {number:,} is {token[:40]!r}, but byte tokens look like <0x0A>")


def _byte_typed(facts: Facts, n_tokens: int, model: str) -> list[int]:
    """Numbers of the tokens whose type says they stand for one byte."""
    types = facts.array(TYPES, (INT32,))
    found: list[int] = []
    if types is None or model == "rwkv":
        return found
    first = 0
    for chunk in facts.chunks(TYPES, types):
        kinds = array("i")
        kinds.frombytes(chunk)
        if sys.byteorder == "big":
            kinds.byteswap()
        if TYPE_BYTE in kinds:
            found += [first + i for i, kind in enumerate(kinds) if kind == TYPE_BYTE and first + i < n_tokens]
        if len(found) > BYTE_TOKENS_MAX:
            raise InvalidModel(TYPES, f"marks more than {BYTE_TOKENS_MAX:,} tokens as bytes; there are 256 bytes")
        first += len(kinds)
    if found and model == "bert":
        raise InvalidModel(TYPES, f"marks token {found[0]:,} as a byte, which a bert tokenizer cannot have")
    return found


def _tokens(facts: Facts) -> Iterator[tuple[int, list[bytes]]]:
    """Batches of tokens as llama.cpp sees them, each with the number of its first token."""
    tokens = facts.array(TOKENS, (STRING,))
    assert tokens is not None
    first = 0
    for batch in facts.strings(TOKENS, tokens):
        seen = batch
        if b"\0" in b"".join(batch):
            seen = [token.split(b"\0", 1)[0] for token in batch]
        if b"" in seen:
            seen = [token or b"[EMPTY_%d]" % (first + i) for i, token in enumerate(seen)]
        yield first, seen
        first += len(batch)


def _check_bytes(found: set[bytes]) -> None:
    """Text outside the vocabulary is spelled in byte tokens; one that is missing ends the process."""
    missing = [b for b in sorted(TEXT_BYTES) if b"<0x%02X>" % b not in found and bytes((b,)) not in found]
    if missing:
        raise InvalidModel(
            TOKENS,
            f"has no token for {len(missing)} of the {len(TEXT_BYTES)} bytes of UTF-8 text (<0x{missing[0]:02X}>, …): "
            f"text outside the vocabulary would end the program",
        )


def _check_unique(facts: Facts, hashes: array[int]) -> None:
    repeated = _repeated(hashes)
    if not repeated:
        return
    seen: dict[bytes, int] = {}
    for first, batch in _tokens(facts):
        for number, token in enumerate(batch, start=first):
            if hash(token) in repeated and seen.setdefault(token, number) != number:
                raise InvalidModel(TOKENS, f"tokens {seen[token]:,} and {number:,} are both {token[:40]!r}")


def _repeated(hashes: array[int]) -> set[int]:
    """Some hashes that occur twice, if any do. May leave `hashes` sorted."""
    if len(hashes) <= HASHES_IN_A_SET:
        if len(set(hashes)) == len(hashes):
            return set()
        return {h for h, n in Counter(hashes).most_common(16) if n > 1}
    # Imported here because it takes longer than reading most files, and few vocabularies are so large.
    import numpy as np

    ordered = np.frombuffer(hashes, dtype=np.int64)
    ordered.sort()
    return set(ordered[1:][ordered[1:] == ordered[:-1]][:16].tolist())
