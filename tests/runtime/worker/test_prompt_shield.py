"""Swapping characters of client text and getting exactly the same text back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import InvalidRequest
from runtime.render.masks import swap
from runtime.worker.literals import Literals
from runtime.worker.shield import Shield

LITERALS = Literals({"<|a|>": 1, "[X]": 2})
TEXT = st.text(st.sampled_from("<|a>[X] xé\ue000\ue001\\u"), max_size=30) | st.text(max_size=30)


@given(TEXT)
def test_what_is_covered_is_revealed_again(text: str) -> None:
    shield = Shield(LITERALS, [text])
    assert shield.reveal(shield.cover(text)) == text
    assert shield.reveal(swap(shield.cover(text), shield.mask)) == text


@given(TEXT)
def test_what_was_escaped_on_the_way_is_revealed_as_json_would_have_it(text: str) -> None:
    shield = Shield(LITERALS, [text])
    masked = swap(shield.cover(text), shield.mask)
    assert json.loads(shield.reveal(json.dumps(masked))) == text


@given(TEXT)
def test_covered_text_holds_no_literal(text: str) -> None:
    assert LITERALS.find(Shield(LITERALS, [text]).cover(text)) == []


def test_ordinary_text_is_not_touched() -> None:
    shield = Shield(LITERALS, [])
    text = "a < b | c"
    assert shield.cover(text) is text
    assert shield.hides_in(text)
    assert not shield.hides_in("plain words")


def test_placeholders_occur_nowhere_else() -> None:
    texts = ["\ue000 and \\ue001 and \\uE002", "<|a|>"]
    shield = Shield(LITERALS, texts)
    assert set(shield.mask.values()).isdisjoint({"\ue000", "\ue001", "\ue002"})


def test_whole_values_are_covered_keys_only_for_whole_literals() -> None:
    shield = Shield(LITERALS, [])
    covered = shield.cover_all({"<|a|>": ["<|a|>", 3, None], "<|a": "x"})
    whole, half = covered
    assert LITERALS.find(whole) == []
    assert half == "<|a"
    assert LITERALS.find(covered[whole][0]) == []
    assert covered[whole][1:] == [3, None]


def test_roles_of_messages_stay_roles_inside_values_do_not() -> None:
    shield = Shield(LITERALS, [])
    (message,) = shield.cover_chat([{"role": "<|a|>", "content": "", "args": {"role": "<|a|>"}}])
    assert message["role"] == "<|a|>"
    assert LITERALS.find(message["args"]["role"]) == []


def test_a_text_with_every_private_character_is_refused() -> None:
    everything = "".join(map(chr, range(0xE000, 0xF900)))
    with pytest.raises(InvalidRequest, match="private-use"):
        Shield(LITERALS, [everything])
