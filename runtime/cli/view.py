"""How a reply that is still being written looks in a terminal.

Finished blocks are printed once and scroll away like any other output; below them a few lines are drawn anew as text
arrives. Nothing that has scrolled is ever touched, so the scrollback holds each word once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Self

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment
from rich.text import Text

from runtime.cli.blocks import BlockSplitter, harmless

REFRESH_S = 1 / 12
# Drawing takes cores that the model needs: after a drawing that took t, wait at least this many t.
REST = 20
THOUGHT = "dim italic"


class Rows:
    """Something drawn without the blank rows around it, under `above` blank ones; only the last `most` rows of it.

    Rows end where their text ends: a row filled to the edge would wrap when the terminal echoes a key behind it.
    """

    def __init__(self, inner: RenderableType, *, above: int = 0, most: int | None = None) -> None:
        self._inner = inner
        self._above = above
        self._most = most

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = [_stripped(line) for line in console.render_lines(self._inner, options.update(height=None), pad=False)]
        while lines and not lines[0]:
            lines.pop(0)
        while lines and not lines[-1]:
            lines.pop()
        rows: list[list[Segment]] = [[] for _ in range(self._above if lines else 0)]
        rows += lines
        for line in rows if self._most is None else rows[-self._most :]:
            yield from line
            yield Segment.line()


def _stripped(line: list[Segment]) -> list[Segment]:
    """The row without blanks at its end, except coloured ones: they are the background of code."""
    kept = list(line)
    while kept and not kept[-1].text.strip() and not (kept[-1].style and kept[-1].style.bgcolor):
        kept.pop()
    if kept and not (kept[-1].style and kept[-1].style.bgcolor):
        kept[-1] = Segment(kept[-1].text.rstrip(), kept[-1].style)
    return kept


class ReplyView:
    """Draws one reply. Used as a context manager by the thread that owns the terminal."""

    def __init__(self, console: Console, waiting: str = "reading") -> None:
        self._console = console
        self._blocks = BlockSplitter()
        self._thoughts = ""
        self._waiting = waiting
        self._began = time.monotonic()
        self._drawn = 0.0
        self._rest_s = REFRESH_S
        self._printed = False
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Whatever is not finished is finished now."""
        self._end_thoughts()
        last = self._blocks.flush()
        with self._console:
            self._live.update(Text(""), refresh=True)
            self._live.stop()
            self._print(last)

    def think(self, text: str) -> None:
        """Reasoning, shown dim and apart from the answer."""
        self._thoughts += harmless(text)

    def write(self, text: str) -> None:
        self._end_thoughts()
        self._print(self._blocks.feed(harmless(text)))

    def draw(self) -> None:
        """Bring the screen up to date, unless that was done a moment ago."""
        start = time.monotonic()
        if start - self._drawn < self._rest_s:
            return
        self._live.update(self._unfinished(), refresh=True)
        self._drawn = time.monotonic()
        self._rest_s = max(REFRESH_S, REST * (self._drawn - start))

    def _unfinished(self) -> RenderableType:
        most = max(1, self._console.height - 2)
        if tail := self._blocks.tail:
            return Rows(Markdown(tail, hyperlinks=False), above=self._printed, most=most)
        if self._thoughts:
            return Rows(Text(self._thoughts, style=THOUGHT), most=most)
        if self._printed:
            return Text("")
        return Text(f"{self._waiting} … {time.monotonic() - self._began:.0f} s", style="dim")

    def _end_thoughts(self) -> None:
        thoughts, self._thoughts = self._thoughts.strip(), ""
        if thoughts:
            self._show([Text(thoughts, style=THOUGHT)])

    def _print(self, blocks: Sequence[str]) -> None:
        if blocks:
            self._show([Markdown(block, hyperlinks=False) for block in blocks])

    def _show(self, finished: Sequence[RenderableType]) -> None:
        """Take the old tail away, print, and draw what is left, in one write: nothing is seen twice or gone."""
        with self._console:
            if self._live.is_started:
                self._live.update(Text(""), refresh=True)
            for block in finished:
                self._console.print(Rows(block, above=self._printed), end="")
                self._printed = True
            if self._live.is_started:
                self._live.update(self._unfinished(), refresh=True)


class PlainView:
    """The same for a terminal that cannot move its cursor: words as they come."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._any = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._any:
            self._console.file.write("\n")

    def think(self, text: str) -> None:
        self.write(text)

    def write(self, text: str) -> None:
        self._any = True
        self._console.file.write(harmless(text))
        self._console.file.flush()

    def draw(self) -> None:
        pass
