"""FakeVocab: a vocabulary of single characters plus whatever special tokens a test names.

It finds special tokens as llama.cpp does (longest text first, then from the left, white space stripped beside tokens
that ask for it) and may put a space before each text that follows one, as SentencePiece vocabularies do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

CONTROL, USER_DEFINED, LSTRIP, RSTRIP = 1 << 3, 1 << 4, 1 << 7, 1 << 8
FIRST_CHARACTER = 1000
_SPACE = " \t\n\v\f\r"


@dataclass(frozen=True, slots=True)
class Special:
    text: str
    attr: int = CONTROL


class FakeVocab:
    """Ids below 1000 are special tokens in the order given; a character has the id 1000 + its code point."""

    def __init__(
        self,
        *specials: Special,
        bos: str | None = None,
        eos: str | None = None,
        add_bos: bool = False,
        add_eos: bool = False,
        space_first: bool = False,
    ) -> None:
        self._specials = specials
        self._ids = {special.text: at for at, special in enumerate(specials)}
        self.bos = self._ids[bos] if bos else -1
        self.eos = self._ids[eos] if eos else -1
        self.add_bos, self.add_eos, self._space_first = add_bos, add_eos, space_first
        self.n_tokens = FIRST_CHARACTER + 0x110000

    def attr(self, token: int) -> int:
        return self._specials[token].attr if token < len(self._specials) else 1 << 2

    def is_control(self, token: int) -> bool:
        return bool(self.attr(token) & CONTROL)

    def piece(self, token: int, special: bool = True) -> bytes:
        if token < len(self._specials):
            return self._specials[token].text.encode() if special or not self.is_control(token) else b""
        return chr(token - FIRST_CHARACTER).encode()

    def control_literals(self) -> dict[bytes, int]:
        return {special.text.encode(): id for id, special in enumerate(self._specials) if special.attr & CONTROL}

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        parts: list[str | int] = [text] if text else []
        for special in sorted(self._specials, key=lambda special: -len(special.text)):
            if parse_special or special.attr & USER_DEFINED:
                parts = [piece for part in parts for piece in self._split(part, special)]
        ids = [self.bos] if add_special and self.add_bos else []
        for part in parts:
            if isinstance(part, int):
                ids.append(part)
            elif part:
                spaced = (" " if self._space_first else "") + part
                ids += [FIRST_CHARACTER + ord(character) for character in spaced]
        return [*ids, self.eos] if add_special and self.add_eos else ids

    def detokenize(self, ids: Sequence[int]) -> bytes:
        return b"".join(self.piece(token) for token in ids)

    def _split(self, part: str | int, special: Special) -> list[str | int]:
        if isinstance(part, int) or special.text not in part:
            return [part]
        before, after = part.split(special.text, 1)
        before = before.rstrip(_SPACE) if special.attr & LSTRIP else before
        after = after.lstrip(_SPACE) if special.attr & RSTRIP else after
        return [before, self._ids[special.text], *self._split(after, special)]


CHATML = FakeVocab(Special("<|im_start|>"), Special("<|im_end|>"), Special("<|endoftext|>"), eos="<|im_end|>")
