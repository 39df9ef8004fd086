"""What a streamed reply leaves on the screen and in the scrollback: each line once, however long it is."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console
from rich.markdown import Markdown

from runtime.cli.blocks import BlockSplitter
from runtime.cli.view import PlainView, ReplyView

if sys.platform == "win32":
    pytest.skip("ptys are POSIX", allow_module_level=True)

from terminal import Screen

LONG = "\n\n".join(
    [
        "# A title",
        "First paragraph with some words that wrap around the narrow screen of this test, more than once.",
        "\n".join(f"{n}. item number {n}" for n in range(1, 25)),
        "```python\n" + "\n".join(f"line_{n} = {n}" for n in range(30)) + "\n```",
        "| a | b |\n|---|---|\n| cell1 | cell2 |",
        "The end.",
    ]
)


class EagerView(ReplyView):
    """Draws at every call, so that a test sees every intermediate screen."""

    def draw(self) -> None:
        self._drawn = self._rest_s = 0.0
        super().draw()


def shown(text: str, *, height: int = 12, step: int = 7) -> tuple[Screen, int]:
    """The screen after a reply came in pieces of `step`, and how often it was drawn."""
    screen = Screen(40, height)
    drawn = 0
    console = Console(file=_Tee(screen), force_terminal=True, width=40, height=height, highlight=False)
    console.print("before")
    with EagerView(console) as view:
        for start in range(0, len(text), step):
            view.write(text[start : start + step])
            view.draw()
            drawn += 1
    console.print("after")
    return screen, drawn


class _Tee(io.StringIO):
    """A pty turns newlines into both; a plain file does not."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen

    def write(self, text: str) -> int:
        self._screen.feed(text.replace("\n", "\r\n"))
        return len(text)


def words(text: str) -> list[str]:
    return text.split()


def reference(text: str) -> str:
    """The same markdown printed at once."""
    file = io.StringIO()
    console = Console(file=file, width=40, highlight=False)
    splitter = BlockSplitter()
    for block in [*splitter.feed(text), *splitter.flush()]:
        console.print(Markdown(block, hyperlinks=False))
    return file.getvalue()


@pytest.mark.parametrize(("height", "step"), [(6, 7), (12, 1), (12, 40), (60, 7), (60, 1000)])
def test_streamed_text_is_on_the_screen_exactly_once(height: int, step: int) -> None:
    screen, drawn = shown(LONG, height=height, step=step)
    assert drawn > 0
    assert words(screen.text) == ["before", *words(reference(LONG)), "after"]


def test_control_a_tail_taller_than_the_screen_would_leave_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: the tail is drawn in full instead of its last rows. The check above must turn red."""
    from runtime.cli import view

    monkeypatch.setattr(view.Rows, "__rich_console__", lambda self, console, options: [self._inner])
    original = view.Live.__init__
    monkeypatch.setattr(
        view.Live, "__init__", lambda self, **options: original(self, vertical_overflow="visible", **options)
    )
    screen, _ = shown(LONG, height=6)
    assert words(screen.text) != ["before", *words(reference(LONG)), "after"]


def test_no_line_is_on_the_screen_twice_at_any_moment() -> None:
    """A block that is finished must leave the part that is drawn anew at the moment it is printed."""
    screen = Screen(40, 12)
    console = Console(file=_Tee(screen), force_terminal=True, width=40, height=12)
    looks = 0
    with EagerView(console) as view:
        for piece in [f"{kind}{n}{end}" for n in range(9) for kind, end in (("a", " "), ("b", "\n\n"))]:
            view.write(piece)
            for _ in range(2):
                seen = words(screen.text)
                assert len(seen) == len(set(seen)), screen.text
                looks += 1
                view.draw()
    assert looks > 0


def test_blocks_are_one_blank_line_apart() -> None:
    screen, _ = shown("one\n\ntwo\n\n- a\n- b\n\nthree")
    assert screen.text == "before\none\n\ntwo\n\n • a\n • b\n\nthree\nafter"


def test_thoughts_come_before_the_answer_and_stay_apart() -> None:
    screen = Screen(40, 12)
    console = Console(file=_Tee(screen), force_terminal=True, width=40, height=12)
    with EagerView(console) as view:
        view.think("hmm")
        view.draw()
        view.write("yes")
        view.draw()
    assert screen.text == "hmm\n\nyes"


def test_words_of_a_model_do_not_act_on_the_terminal() -> None:
    file = io.StringIO()
    with PlainView(Console(file=file)) as view:
        view.write("a\x1b]0;owned\x07b")
    assert "\x1b" not in file.getvalue()
    screen, _ = shown("x\x1b[2J\x1b[1;1Hy")
    assert "before" in screen.text
