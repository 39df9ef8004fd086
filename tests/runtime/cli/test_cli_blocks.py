"""Streaming markdown: blocks are finished once, nothing is lost, and lists and fences stay whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.cli.blocks import BlockSplitter, harmless


def split(text: str, size: int = 1) -> list[str]:
    splitter = BlockSplitter()
    blocks = [block for i in range(0, len(text), size) for block in splitter.feed(text[i : i + size])]
    return [*blocks, *splitter.flush()]


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("one\ntwo\n\nthree", ["one\ntwo", "three"]),
        ("# Title\n\ntext\n", ["# Title", "text"]),
        ("say:\n```py\na = 1\n\nb = 2\n```\nafter", ["say:", "```py\na = 1\n\nb = 2\n```", "after"]),
        ("- a\n\n- b\n\n  more\n\nend", ["- a\n\n- b\n\n  more", "end"]),
        ("1. a\n   ```\n   x\n\n   y\n   ```\n2. b\n\nend", ["1. a\n   ```\n   x\n\n   y\n   ```\n2. b", "end"]),
        ("````\n```\n````\nx", ["````\n```\n````", "x"]),
        ("| a | b |\n|---|---|\n| 1 | 2 |\n\nx", ["| a | b |\n|---|---|\n| 1 | 2 |", "x"]),
        ("```\nnever closed\n\nstill", ["```\nnever closed\n\nstill"]),
        ("\n\n  \n", []),
    ],
)
def test_blocks(text: str, blocks: list[str]) -> None:
    assert split(text) == blocks
    assert split(text, 1000) == blocks, "how the text was cut must not matter"


@given(st.text(alphabet="ab`-1. \n#", max_size=80), st.integers(1, 9))
def test_no_word_is_lost_or_doubled(text: str, size: int) -> None:
    assert "".join("".join(split(text, size)).split()) == "".join(text.split())


def test_the_tail_is_what_is_not_finished() -> None:
    splitter = BlockSplitter()
    assert splitter.feed("one\n\ntwo\nthr") == ["one"]
    assert splitter.tail == "two\nthr"
    assert splitter.flush() == ["two\nthr"]
    assert splitter.tail == ""


def test_words_cannot_act_on_the_terminal() -> None:
    assert harmless("a\x1b[2Jb\x07\r\n\tc\x9b31m\u202ed") == "a[2Jb\n\tc31md"
