"""Bytes of tokens to text a person may see: half characters and possible stop strings are held back.

One per choice, used by the text thread only. `push` and `finish` change it.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that became certain. `stop` is the stop string that ended the reply, when one did."""

    text: str
    stop: str | None = None


class Detokenizer:
    """Decodes UTF-8 across tokens and watches for `stops`, which are cut from the text."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = tuple(stops)
        self._longest = max((len(stop) for stop in self._stops), default=0)
        self._held = ""

    @property
    def is_holding(self) -> bool:
        return bool(self._held)

    def push(self, data: bytes) -> Piece:
        """Text now certain after these bytes."""
        text = self._decoder.decode(data)
        if not self._stops:
            return Piece(text)
        return self._watch(text)

    def finish(self) -> Piece:
        """What was held back: the reply ended without meeting a stop string. A cut-off character is dropped."""
        # A reply cut inside a character ends before it: a replacement mark would be text the model never wrote.
        text, self._held = self._held, ""
        return Piece(text)

    def _watch(self, new: str) -> Piece:
        text = self._held + new
        at, stop = _first_stop(text, self._stops)
        if stop is not None:
            self._held = ""
            return Piece(text[:at], stop)
        keep = _possible_stop(text, self._stops, self._longest)
        self._held = text[len(text) - keep :] if keep else ""
        return Piece(text[: len(text) - keep])


def _first_stop(text: str, stops: tuple[str, ...]) -> tuple[int, str | None]:
    best, found = len(text), None
    for stop in stops:
        at = text.find(stop)
        if 0 <= at < best:
            best, found = at, stop
    return best, found


def _possible_stop(text: str, stops: tuple[str, ...], longest: int) -> int:
    """Length of the longest end of `text` that may turn into a stop string."""
    for n in range(min(longest - 1, len(text)), 0, -1):
        tail = text[len(text) - n :]
        if any(stop.startswith(tail) for stop in stops):
            return n
    return 0
