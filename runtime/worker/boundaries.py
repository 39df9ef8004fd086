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
    wanted = _byte_offsets(text, raw, ends)
    if b"".join(pieces) == raw:
        ended = begun = list(accumulate(map(len, pieces), initial=0))
    else:
        ended, begun = _walk(raw, pieces)
    counts = _counts(wanted, ended, begun)
    return tuple(sorted({n + n_head for n in counts if 0 < n + n_head < len(tokens)}))


def _byte_offsets(text: str, raw: bytes, ends: Sequence[int]) -> list[int]:
    return list(ends) if len(raw) == len(text) else [len(text[:end].encode()) for end in ends]


def _counts(wanted: Sequence[int], ended: Sequence[int], begun: Sequence[int]) -> list[int]:
    """For each offset that lies between two tokens, how many stand before it.

    After n tokens the text has been covered up to `ended[n]`, and the next one begins at `begun[n]`.
    """
    found = [(end, bisect_left(begun, end)) for end in wanted]
    return [n for end, n in found if n < len(begun) and ended[n] <= end]


def _walk(raw: bytes, pieces: Sequence[bytes]) -> tuple[list[int], list[int]]:
    """`ended` and `begun` for vocabularies that put in a space or leave out white space beside special tokens.

    Stops at the first token that cannot be matched.
    """
    ended: list[int] = [0]
    begun: list[int] = []
    for piece in pieces:
        start = _start(raw, ended[-1], piece)
        if start is None:
            break
        begun.append(start)
        # A space that is not in the text takes no room there.
        ended.append(start + len(piece if raw.startswith(piece, start) else piece[1:]))
    begun.append(len(raw) if len(begun) == len(pieces) else ended[-1])
    return ended, begun


def _start(raw: bytes, at: int, piece: bytes) -> int | None:
    """Where `piece` begins in the text: at `at`, or after white space that no token stands for."""
    after = at
    while after < len(raw) and raw[after : after + 1].isspace():
        after += 1
    for start in (at, after):
        if raw.startswith(piece, start) or (piece.startswith(b" ") and raw.startswith(piece[1:], start)):
            return start
    return None
