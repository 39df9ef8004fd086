"""Rendered text to token ids, with control tokens only where the template wrote them.

An ordinary prompt is tokenized in one piece, exactly as llama-server does. Where client text spells out a special
token, the prompt is cut right at the template's own special tokens: every tokenizer of llama.cpp starts afresh there,
so the pieces get the ids they have in the whole, except that what the client spelled out stays text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from runtime.errors import InvalidRequest
from runtime.worker.literals import Literals
from runtime.worker.shield import Shield

# llama.h, llama_token_attr
USER_DEFINED = 1 << 4
LSTRIP = 1 << 7
RSTRIP = 1 << 8

_C_SPACE = " \t\n\v\f\r"


class VocabLike(Protocol):
    """What prompts need of a vocabulary. `bos` and `eos` are -1 where there is none."""

    @property
    def n_tokens(self) -> int: ...
    @property
    def bos(self) -> int: ...
    @property
    def eos(self) -> int: ...
    @property
    def add_bos(self) -> bool: ...
    @property
    def add_eos(self) -> bool: ...
    def attr(self, token: int, /) -> int: ...
    def is_control(self, token: int, /) -> bool: ...
    def piece(self, token: int, /, special: bool = True) -> bytes: ...
    def tokenize(self, text: str, /, *, add_special: bool, parse_special: bool) -> list[int]: ...
    def control_literals(self) -> dict[bytes, int]: ...


def control_texts(vocab: VocabLike) -> dict[str, int]:
    """Texts of control tokens. One that is no UTF-8 cannot stand in a text and is left out."""
    found = {}
    for raw, id in vocab.control_literals().items():
        try:
            found[raw.decode()] = id
        except UnicodeDecodeError:
            continue
    return found


class SafeTokenizer:
    """Tokenizes shielded text. `turns` are user-defined tokens the template marks turns with (see markers.py)."""

    def __init__(self, vocab: VocabLike, turns: Iterable[tuple[str, int]] = ()) -> None:
        self._vocab = vocab
        self._turns = Literals(dict(turns))
        self.literals = Literals(control_texts(vocab) | self._turns.ids)
        guarded = {id for id in self.literals.ids.values() if vocab.is_control(id)}
        self._guarded = guarded.union(self._turns.ids.values())
        self._head, self._tail = _added(vocab)
        # SentencePiece vocabularies may put a space before each text that follows a special token.
        self._space_first = self._written(self._text("x")) != b"x"

    @property
    def n_head(self) -> int:
        """Tokens the tokenizer puts before the text."""
        return len(self._head)

    def control_ids(self, text: str) -> list[int]:
        """Ids of the special tokens that stand literally in `text`."""
        return [hit.id for hit in self.literals.find(text)]

    def tokenize(self, shielded: str, shield: Shield) -> list[int]:
        """Ids of the revealed text. Raises InvalidRequest for text no cut keeps from becoming a control token."""
        plain = shield.reveal(shielded)
        if plain == shielded:
            return self._whole(plain)
        written = self.control_ids(shielded)
        if len(self.literals.find(plain)) == len(written):
            ids = self._whole(plain)
            if self._only(written, ids):
                return ids
        ids = self._cut(shielded, shield)
        if not self._only(written, ids):
            raise InvalidRequest(
                "the messages spell out a special token that this model's tokenizer cannot take as text: leave it out",
                param="messages",
            )
        return ids

    def _whole(self, text: str) -> list[int]:
        return self._vocab.tokenize(text, add_special=True, parse_special=True)

    def _only(self, written: list[int], ids: list[int]) -> bool:
        """Whether the special tokens among `ids` are those the template wrote and those the tokenizer adds."""
        expected = [id for id in (*self._head, *written, *self._tail) if id in self._guarded]
        return list(filter(self._guarded.__contains__, ids)) == expected

    def _cut(self, shielded: str, shield: Shield) -> list[int]:
        ids = list(self._head)
        at, strip_left = 0, False
        for hit in self.literals.find(shielded):
            attr = self._vocab.attr(hit.id)
            ids += self._fragment(shielded[at : hit.start], shield, strip_left, bool(attr & LSTRIP))
            ids.append(hit.id)
            at, strip_left = hit.end, bool(attr & RSTRIP)
        ids += self._fragment(shielded[at:], shield, strip_left, False)
        return ids + self._tail

    def _fragment(self, shielded: str, shield: Shield, strip_left: bool, strip_right: bool) -> list[int]:
        text = shield.reveal(shielded)
        text = text.lstrip(_C_SPACE) if strip_left else text
        text = text.rstrip(_C_SPACE) if strip_right else text
        # A user-defined token is matched even where control tokens are not: only a cut inside its text prevents that.
        cuts = [hit.start + 1 for hit in self._turns.find(text)]
        first, *others = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        ids = self._text(first)
        for other in others:
            ids += self._continued(other)
        return ids

    def _continued(self, text: str) -> list[int]:
        """Ids of a text that goes on in the middle of a line, without the space some vocabularies put first."""
        if not self._space_first:
            return self._text(text)
        ids = self._text("\n" + text)
        for n in range(1, len(ids) + 1):
            if self._written(ids[:n]).lstrip(b" ") == b"\n":
                return ids[n:]
        return self._text(text)

    def _written(self, ids: Sequence[int]) -> bytes:
        return b"".join(self._vocab.piece(id) for id in ids)

    def _text(self, text: str) -> list[int]:
        return self._vocab.tokenize(text, add_special=False, parse_special=False) if text else []


def _added(vocab: VocabLike) -> tuple[list[int], list[int]]:
    empty = vocab.tokenize("", add_special=True, parse_special=False)
    head = [vocab.bos] if vocab.add_bos and empty[:1] == [vocab.bos] else []
    tail = [vocab.eos] if vocab.add_eos and empty[len(head) :] == [vocab.eos] else []
    return head, tail
