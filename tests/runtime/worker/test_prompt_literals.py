"""Finding special tokens in text as llama.cpp finds them, and the characters that could help one to form."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from fake_vocab import FakeVocab, Special
from hypothesis import given
from hypothesis import strategies as st

from runtime.worker.literals import Hit, Literals

# Overlapping in every way: one inside another, one the other's beginning, one that overlaps itself.
TEXTS = ("<|a|>", "<|a", "a|><", ">>X<<", ">", "<|a|><|b|>")
LITERALS = Literals({text: at for at, text in enumerate(TEXTS)})
PIECES = st.lists(st.sampled_from([*TEXTS, "<", "|", "a", "b", "X", " ", "words"]), max_size=12).map("".join)


@given(PIECES)
def test_find_agrees_with_the_partition_of_the_tokenizer(text: str) -> None:
    vocab = FakeVocab(*(Special(literal) for literal in TEXTS))
    ids = [id for id in vocab.tokenize(text, add_special=False, parse_special=True) if id < len(TEXTS)]
    assert [hit.id for hit in LITERALS.find(text)] == ids


@given(PIECES)
def test_hits_are_where_they_say_and_apart(text: str) -> None:
    hits = LITERALS.find(text)
    assert all(text[hit.start : hit.end] == TEXTS[hit.id] for hit in hits)
    assert all(left.end <= right.start for left, right in pairwise(hits))


@pytest.mark.parametrize("text", ["a|><|a", ">>X<<|a|><", "<|a"])
def test_find_at_the_end_of_the_text_and_among_equally_long_ones(text: str) -> None:
    vocab = FakeVocab(*(Special(literal) for literal in TEXTS))
    made = [id for id in vocab.tokenize(text, add_special=False, parse_special=True) if id < len(TEXTS)]
    assert [hit.id for hit in LITERALS.find(text)] == made
    assert all(hit.end <= len(text) for hit in LITERALS.find(text))
    assert made


@pytest.mark.weights
@given(data=st.data())
def test_find_agrees_with_llama_cpp(starter: Any, data: st.DataObject) -> None:
    vocab = starter.vocab
    ids = {raw.decode(): id for raw, id in vocab.control_literals().items()}
    pieces = st.sampled_from([*ids, "<|im_", "start|>", "<", "|>", ">", "hello", " ", "\n"])
    text = "".join(data.draw(st.lists(pieces, max_size=12)))
    found = [id for id in vocab.tokenize(text, add_special=False, parse_special=True) if vocab.is_control(id)]
    assert [hit.id for hit in Literals(ids).find(text)] == found


def test_the_longest_literal_wins_wherever_it_stands() -> None:
    assert LITERALS.find("<|a|><|b|>") == [Hit(0, 10, 5)]


@given(PIECES, PIECES, PIECES)
def test_texts_without_their_risky_characters_never_join_to_a_literal(before: str, text: str, after: str) -> None:
    """Whatever stands on both sides: after the swap no literal touches `text`."""
    covered = list(text)
    for offset in LITERALS.risky(text):
        covered[offset] = "\ue000"
    inside = range(len(before), len(before) + len(text))
    for hit in LITERALS.find(before + "".join(covered) + after):
        touched = [at for at in range(hit.start, hit.end) if at in inside]
        # A literal may still lie over text that is only its middle or its end when that text is empty.
        assert not touched


@pytest.mark.parametrize("text", ["  <|a", "b|>  ", "a", "\n|>\n"], ids=["beginning", "end", "middle", "end inside"])
def test_white_space_at_the_edges_hides_no_risk(text: str) -> None:
    """Templates strip it."""
    literals = Literals({"<|a|>": 1, "<|b|>": 2})
    assert literals.risky(text)


def test_ordinary_text_has_no_risk() -> None:
    literals = Literals({"<|im_start|>": 1, "<|im_end|>": 2})
    assert literals.risky("if (a < b && c > d) { return x[0] | y; }  # <|nothing|> <b>bold</b>") == []


def test_no_literals_find_nothing() -> None:
    assert Literals({}).find("<|im_start|>") == []
    assert Literals({"": 3}).risky("text") == []


def test_control_a_search_for_whole_literals_only_misses_halves() -> None:
    """Planted: `risky` without its edges. Two halves then join to a token."""
    literals = Literals({"<|a|>": 1})
    whole_only = [hit.start for hit in literals.find("<|a")]
    assert whole_only == []
    assert literals.find("<|a" + "|>") != []
    assert literals.risky("<|a") == [0]
