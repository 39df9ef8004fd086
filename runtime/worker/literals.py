"""Texts that a tokenizer turns into one special token, and where they stand in a text.

`find` gives the matches llama.cpp would make, in its order: longer texts first, equally long ones by id, each from the
left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Hit:
    """`text[start:end]` is the text of token `id`."""

    start: int
    end: int
    id: int


class Literals:
    """A fixed set of literals with the indexes that make searching linear in the text, whatever their number."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        self.ids = {text: id for text, id in ids.items() if text}
        self.firsts = "".join(sorted({text[0] for text in self.ids}))
        self._lengths = _lengths_by_opening(self.ids)
        self._candidates = _candidate_pattern(self.ids)
        self._longest = max(map(len, self.ids), default=0)
        self._beginnings = {text[:n] for text in self.ids for n in range(1, len(text))}
        self._ends = {text[n:] for text in self.ids for n in range(1, len(text))}
        self._all = "\n".join(self.ids)

    def find(self, text: str) -> list[Hit]:
        """Matches without overlaps, from left to right."""
        hits = list(self._occurrences(text))
        if all(left.end <= right.start for left, right in pairwise(hits)):
            return hits
        kept: list[Hit] = []
        taken = bytearray(len(text))
        for hit in sorted(hits, key=lambda hit: (hit.start - hit.end, hit.id, hit.start)):
            if not any(taken[hit.start : hit.end]):
                taken[hit.start : hit.end] = b"\1" * (hit.end - hit.start)
                kept.append(hit)
        return sorted(kept, key=lambda hit: hit.start)

    def risky(self, text: str) -> list[int]:
        """Offsets of the characters to swap so that `text` can neither hold a literal nor be a part of one.

        A literal forms across a join only if what stands before the join is its beginning, what follows its end, or
        the whole of `text` its middle. White space at the edges does not count: templates strip it.
        """
        at = {hit.start for hit in self._occurrences(text)}
        body = text.strip()
        if body:
            start = text.index(body)
            at.update(start + offset for offset in self._edges(body))
        at.update(self._edges(text))
        return sorted(at)

    def _edges(self, text: str) -> Iterator[int]:
        for n in range(1, min(len(text), self._longest - 1) + 1):
            if text[-n:] in self._beginnings:
                yield len(text) - n
            if text[:n] in self._ends:
                yield 0
        if text and len(text) <= self._longest and text in self._all:
            yield 0

    def _occurrences(self, text: str) -> Iterator[Hit]:
        if self._candidates is None:
            return
        for match in self._candidates.finditer(text):
            at = match.start()
            opening = text[at : at + 2]
            lengths = self._lengths.get(opening, ())
            if len(opening) == 2:
                lengths += self._lengths.get(opening[0], ())
            for length in lengths:
                # Near the end of the text a slice comes out shorter, and may be another literal.
                end = at + length
                if end <= len(text) and (id := self.ids.get(text[at:end])) is not None:
                    yield Hit(at, end, id)


def _lengths_by_opening(ids: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    found: dict[str, set[int]] = {}
    for text in ids:
        found.setdefault(text[:2], set()).add(len(text))
    return {opening: tuple(sorted(lengths, reverse=True)) for opening, lengths in found.items()}


def _candidate_pattern(ids: Mapping[str, int]) -> re.Pattern[str] | None:
    """Matches the first character of whatever begins like a literal; one character, so that overlaps are seen."""
    seconds: dict[str, str] = {}
    for text in ids:
        seconds[text[0]] = seconds.get(text[0], "") + text[1:2]
    alone = {text for text in ids if len(text) == 1}
    parts = [
        re.escape(first) + ("" if first in alone else f"(?=[{re.escape(''.join(sorted(set(others))))}])")
        for first, others in seconds.items()
    ]
    return re.compile("|".join(parts)) if parts else None
