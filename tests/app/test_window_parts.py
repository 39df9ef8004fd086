"""Small parts: sentences, colours, figures, and the memory gauge."""

from __future__ import annotations

from dataclasses import fields

import pytest
from PySide6.QtGui import QColor

from app.state.chat import sentence
from app.state.figures import Stopwatch
from app.state.memory import look
from app.ui.theme import DARK, LIGHT, Tokens
from runtime.stream import Usage

READABLE = 4.5
PAIRS = [
    (front, back) for back in ("surface", "raised") for front in ("text", "muted", "accent", "ok", "warn", "bad")
] + [("on_accent", "accent"), ("text", "code")]


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("the model stopped", "The model stopped."),
        ("it ended by signal 9\nggml: abort", "It ended by signal 9."),
        ("", "Something went wrong; try again."),
        ("x" * 1000, "X" + "x" * 298 + "…"),
    ],
    ids=["plain", "first line only", "nothing", "too long"],
)
def test_an_error_becomes_one_sentence(message: str, says: str) -> None:
    assert sentence(message) == says


def luminance(color: str) -> float:
    parts = [part / 255 for part in QColor(color).getRgb()[:3]]  # type: ignore[index]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("tokens", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(("front", "back"), PAIRS)
def test_text_is_readable_in_both_themes(tokens: Tokens, front: str, back: str) -> None:
    assert contrast(getattr(tokens, front), getattr(tokens, back)) >= READABLE


def test_control_the_contrast_of_grey_on_white_is_too_low() -> None:
    assert contrast("#aaaaaa", "#ffffff") < READABLE
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


def test_every_token_is_a_colour() -> None:
    for tokens in (LIGHT, DARK):
        assert all(QColor(getattr(tokens, field.name)).isValid() for field in fields(tokens))


def test_speed_is_measured_while_writing_and_the_servers_at_the_end() -> None:
    watch = Stopwatch(asked_s=10.0)
    for count in range(5):
        watch.tick(10.5 + count * 0.1)
    live = watch.live()
    assert live.is_live
    assert live.first_token_s == pytest.approx(0.5)
    assert live.per_second == pytest.approx(10)
    watch.usage = Usage(n_prompt=7, predicted_per_second=12.5)
    final = watch.final()
    assert (final.per_second, final.n_prompt, final.is_live) == (12.5, 7, False)


def test_a_reply_without_text_has_no_figures() -> None:
    assert Stopwatch().live().per_second is None
    assert Stopwatch().final().first_token_s is None


def test_memory_adds_up() -> None:
    memory = look()
    assert memory.ours > 0
    assert memory.ours + memory.others + memory.free == memory.total
