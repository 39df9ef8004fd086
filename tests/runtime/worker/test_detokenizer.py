"""No half characters, no part of a stop string, and no byte lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.worker.detokenizer import Detokenizer


def feed(pieces: list[bytes], stops: tuple[str, ...] = ()) -> tuple[str, str | None, list[str]]:
    detokenizer, out = Detokenizer(stops), []
    for data in pieces:
        piece = detokenizer.push(data)
        out.append(piece.text)
        if piece.stop is not None:
            return "".join(out), piece.stop, out
    out.append(detokenizer.finish().text)
    return "".join(out), None, out


def test_a_character_split_over_tokens_appears_whole() -> None:
    family = "👨\u200d👩\u200d👧 한국어".encode()
    text, _, parts = feed([family[i : i + 1] for i in range(len(family))])
    assert text == family.decode()
    assert all("\ufffd" not in part for part in parts)


def test_a_reply_cut_inside_a_character_ends_before_it() -> None:
    assert feed([b"ab", "é".encode()[:1]])[0] == "ab"


def test_bytes_that_never_were_text_are_marked_not_lost() -> None:
    assert feed([b"a\xffb"])[0] == "a\ufffdb"


@pytest.mark.parametrize(
    ("pieces", "stops", "text", "stop"),
    [
        ([b"one ST", b"OP two"], ("STOP",), "one ", "STOP"),
        ([b"one ST", b"ART"], ("STOP",), "one START", None),
        ([b"a\n", b"\nb"], ("\n\n",), "a", "\n\n"),
        ([b"xyab", b"c"], ("abc", "ya"), "x", "ya"),
        ([b"aa", b"ab"], ("aab",), "a", "aab"),
        ([b"end ST"], ("STOP",), "end ST", None),
        (["é".encode()[:1], "é!".encode()[1:]], ("é!",), "", "é!"),
    ],
)
def test_stop_strings_are_cut(pieces: list[bytes], stops: tuple[str, ...], text: str, stop: str | None) -> None:
    assert feed(pieces, stops)[:2] == (text, stop)


class ShowsAtOnce(Detokenizer):
    """Planted fault: nothing is held back."""

    def push(self, data):  # type: ignore[no-untyped-def]
        piece = super().push(data)
        held, self._held = self._held, ""
        return type(piece)(piece.text + held, piece.stop)


@given(st.text("ab", max_size=30), st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3), st.data())
def test_the_cut_falls_where_the_whole_text_says(text: str, stops: list[str], data: st.DataObject) -> None:
    pieces = split(text, data)
    shown, stop, _ = feed(pieces, tuple(stops))
    ends = [text.find(s) + len(s) for s in stops if s in text]
    if not ends:
        assert (shown, stop) == (text, None)
    else:
        assert stop in stops
        assert text.startswith(shown + stop)
        assert not any(s in shown for s in stops)


def split(text: str, data: st.DataObject) -> list[bytes]:
    pieces, raw = [], text.encode()
    while raw:
        n = data.draw(st.integers(1, len(raw)))
        pieces.append(raw[:n])
        raw = raw[n:]
    return pieces


def test_the_stop_check_sees_a_planted_fault() -> None:
    detokenizer = ShowsAtOnce(("STOP",))
    shown = detokenizer.push(b"one ST").text + detokenizer.push(b"OP").text
    assert "ST" in shown, "the fault did not act"
    assert shown != "one "
