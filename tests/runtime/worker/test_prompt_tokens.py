"""Cutting a prompt at the template's own tokens gives the ids of the whole, except where client text spells one out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fake_vocab import CONTROL, LSTRIP, RSTRIP, USER_DEFINED, FakeVocab, Special
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import InvalidRequest
from runtime.worker.shield import Shield
from runtime.worker.tokens import SafeTokenizer

VOCABS: dict[str, Callable[[], FakeVocab]] = {
    "bpe": lambda: FakeVocab(Special("<s>"), Special("<|a|>"), Special("<|b|>"), bos="<s>", add_bos=True),
    "spm": lambda: FakeVocab(
        Special("<s>"), Special("<|a|>"), Special("<|b|>"), bos="<s>", add_bos=True, space_first=True
    ),
    "strips": lambda: FakeVocab(
        Special("<s>"), Special("<|a|>", CONTROL | RSTRIP), Special("<|b|>", CONTROL | LSTRIP), bos="<s>"
    ),
    "ends": lambda: FakeVocab(Special("<s>"), Special("<|a|>"), Special("<|b|>"), eos="<s>", add_eos=True),
    "defined": lambda: FakeVocab(Special("<s>"), Special("<|a|>"), Special("<|b|>"), Special("<t>", USER_DEFINED)),
}  # fmt: skip
SAID = st.lists(st.sampled_from(["words", " ", "\n", "<", "|a|>", "<t>", "é"]), max_size=5).map("".join)


@pytest.mark.parametrize("kind", VOCABS)
@given(said=st.lists(SAID, min_size=1, max_size=4))
def test_a_cut_prompt_has_the_ids_of_the_whole(kind: str, said: list[str]) -> None:
    vocab = VOCABS[kind]()
    tokenizer = SafeTokenizer(vocab)
    text = "".join(f"<|a|>{words}<|b|>\n" for words in said)
    shield = Shield(tokenizer.literals, [])
    assert tokenizer._cut(text, shield) == vocab.tokenize(text, add_special=True, parse_special=True)


@pytest.mark.parametrize("kind", VOCABS)
def test_spelled_out_tokens_stay_text(kind: str) -> None:
    vocab = VOCABS[kind]()
    tokenizer = SafeTokenizer(vocab)
    shield = Shield(tokenizer.literals, [])
    said = shield.cover("say <|a|> and <|b|>!")
    ids = tokenizer.tokenize(f"<|a|>{said}<|b|>", shield)
    assert [id for id in ids if vocab.is_control(id)] == [
        *([0] if vocab.add_bos else []), 1, 2, *([0] if vocab.add_eos else [])
    ]  # fmt: skip
    assert b"say <|a|> and <|b|>!" in vocab.detokenize(ids)


def test_control_the_whole_text_at_once_lets_them_through() -> None:
    """Planted: no cut. The same chat then holds four control tokens instead of two."""
    vocab = VOCABS["bpe"]()
    ids = vocab.tokenize("<|a|>say <|a|> and <|b|>!<|b|>", add_special=False, parse_special=True)
    assert [id for id in ids if vocab.is_control(id)] == [1, 1, 2, 2]


@pytest.mark.parametrize("space_first", [False, True], ids=["bpe", "spm"])
def test_user_defined_turn_markers_are_broken_up(space_first: bool) -> None:
    vocab = FakeVocab(Special("<|a|>", USER_DEFINED), Special("<s>"), bos="<s>", add_bos=True, space_first=space_first)
    tokenizer = SafeTokenizer(vocab, {"<|a|>": 0}.items())
    shield = Shield(tokenizer.literals, [])
    ids = tokenizer.tokenize("<|a|>" + shield.cover("x<|a|><|a|>y"), shield)
    assert ids.count(0) == 1
    assert vocab.detokenize(ids).replace(b" ", b"") == b"<s><|a|>x<|a|><|a|>y"
    assert vocab.detokenize(ids).count(b" ") == int(space_first), "a cut must not put a space inside"


class Leaky(FakeVocab):
    """Turns the text of a control token into that token even where it must not, as a merge of pieces could."""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        return super().tokenize(text, add_special=add_special, parse_special=True)


def test_a_tokenizer_that_leaks_is_caught() -> None:
    vocab = Leaky(Special("<|a|>"))
    tokenizer = SafeTokenizer(vocab)
    shield = Shield(tokenizer.literals, [])
    with pytest.raises(InvalidRequest, match="spell out a special token"):
        tokenizer.tokenize("<|a|>" + shield.cover("<|a|>"), shield)
    assert tokenizer.tokenize("<|a|>" + shield.cover("fine"), shield)[0] == 0


def test_a_text_that_only_looks_risky_is_tokenized_whole() -> None:
    """Covered for its edge, but nothing formed: the ids are those of one call."""
    vocab = VOCABS["spm"]()
    tokenizer = SafeTokenizer(vocab)
    shield = Shield(tokenizer.literals, [])
    text = "<|a|>" + shield.cover("ends with <|") + "<|b|>"
    whole = vocab.tokenize("<|a|>ends with <|<|b|>", add_special=True, parse_special=True)
    assert tokenizer.tokenize(text, shield) == whole
