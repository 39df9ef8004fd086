"""Markdown that is still being written, split into blocks that are finished and a tail that may still change.

A finished block never changes again, so it can be printed once and left to the terminal's scrollback. Only the tail is
drawn anew as text arrives.
"""

from __future__ import annotations

import re

FENCE = re.compile(r"\s*(`{3,}|~{3,})")
LIST_ITEM = re.compile(r"([-*+]|\d{1,9}[.)])\s")
# C0 and C1 controls except newline and tab: a model's words must not move the cursor or rename the window. The
# bidirectional overrides make text read as something else than it is.
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """The text without characters that act on a terminal."""
    return CONTROLS.sub("", text)


class BlockSplitter:
    """Feed it text as it comes. `tail` is what is not finished."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._partial = ""
        self._fence = ""
        self._blank = False
        self._ready: list[str] = []

    @property
    def tail(self) -> str:
        return "\n".join([*self._lines, self._partial]).strip("\n")

    def feed(self, text: str) -> list[str]:
        """The blocks that this text finished."""
        *complete, self._partial = (self._partial + text).split("\n")
        for line in complete:
            self._line(line)
        return self._taken()

    def flush(self) -> list[str]:
        """Nothing more comes: the tail is finished too."""
        last, self._partial = self._partial, ""
        self._line(last)
        self._finish()
        self._fence = ""
        return self._taken()

    def _line(self, line: str) -> None:
        if self._fence:
            self._inside_fence(line)
        elif not line.strip():
            self._blank = True
            self._lines.append("")
        else:
            self._outside_fence(line)

    def _inside_fence(self, line: str) -> None:
        self._lines.append(line)
        bare = line.strip()
        if bare.startswith(self._fence) and not bare.strip(self._fence[0]):
            self._fence = ""
            if not self._in_list:
                self._finish()

    def _outside_fence(self, line: str) -> None:
        opens = FENCE.match(line)
        if self._starts_block(line, fence=opens is not None):
            self._finish()
        self._blank = False
        self._lines.append(line)
        if opens:
            self._fence = opens[1]

    def _starts_block(self, line: str, *, fence: bool) -> bool:
        if line[0].isspace():
            return False
        if self._in_list:
            # A list goes on over blank lines; numbering and tightness would be lost if it were cut.
            return self._blank and not LIST_ITEM.match(line)
        return self._blank or fence

    @property
    def _in_list(self) -> bool:
        return any(LIST_ITEM.match(line) for line in self._lines[:1])

    def _finish(self) -> None:
        block = "\n".join(self._lines).strip("\n")
        self._lines = []
        self._blank = False
        if block.strip():
            self._ready.append(block)

    def _taken(self) -> list[str]:
        ready, self._ready = self._ready, []
        return ready
