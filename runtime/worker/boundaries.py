"""Character offsets where messages end, as token offsets."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate


class Pieces(dict[int, bytes]):
    """Bytes of tokens, read once each: long prompts look up a hundred thousand."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, token: int) -> bytes:
        piece = self[token] = self._read(token)
        return piece


def token_offsets(
    text: str, ends: Sequence[int], tokens: Sequence[int], piece_of: Mapping[int, bytes], *, n_head: int
) -> tuple[int, ...]:
    """How many tokens stand before each of `ends`, for those where a token ends exactly there.

    The first `n_head` tokens are not in the text. Offsets are sorted and strictly inside the prompt.
    """
    if not ends:
        return ()
    raw = text.encode()
    pieces = [piece_of[token] for token in tokens[n_head:]]
    reached = list(accumulate(map(len, pieces), initial=0))
    if reached[-1] != len(raw):
        reached = _walk(raw, pieces)
    found = set()
    for end in _byte_offsets(text, raw, ends):
        at = bisect_left(reached, end)
        if at < len(reached) and reached[at] == end and _agrees(raw, end, pieces, at):
            found.add(at + n_head)
    return tuple(sorted(offset for offset in found if 0 < offset < len(tokens)))


def _byte_offsets(text: str, raw: bytes, ends: Sequence[int]) -> list[int]:
    return list(ends) if len(raw) == len(text) else [len(text[:end].encode()) for end in ends]


def _agrees(raw: bytes, end: int, pieces: Sequence[bytes], at: int) -> bool:
    """Whether the last tokens before `end` are the text there: sums alone could agree by chance."""
    last = b"".join(pieces[max(0, at - 3) : at])
    return raw[:end].endswith(last.lstrip(b" "))


def _walk(raw: bytes, pieces: Sequence[bytes]) -> list[int]:
    """Where each token ends, for vocabularies that put in a space or leave out white space beside special tokens.

    Stops at the first token that cannot be matched.
    """
    reached = [0]
    at = 0
    for piece in pieces:
        if not raw.startswith(piece, at):
            if raw.startswith(piece[1:], at) and piece.startswith(b" "):
                piece = piece[1:]
            else:
                while at < len(raw) and raw[at : at + 1].isspace():
                    at += 1
                if not raw.startswith(piece, at):
                    break
        at += len(piece)
        reached.append(at)
    return reached
