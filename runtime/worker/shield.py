"""Keeps the text of a client from becoming control tokens on its way through a template.

Characters that could begin a literal are swapped for private-use ones that occur nowhere else, so in the rendered text
every literal that can be found was written by the template. `reveal` swaps them back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from models.templates.normalise import Chat
from runtime.errors import InvalidRequest
from runtime.render.masks import inverse, swap
from runtime.worker.literals import Literals

_PRIVATE = re.compile("[\ue000-\uf8ff]")
_ESCAPED_PRIVATE = re.compile(r"\\u([ef][0-9a-f]{3})", re.IGNORECASE)
_POOL = range(0xE000, 0xF900)


class Shield:
    """The swaps of one request. `mask` has one for every character that begins a literal."""

    def __init__(self, literals: Literals, texts: Iterable[str]) -> None:
        used: set[int] = set()
        for text in texts:
            used.update(map(ord, _PRIVATE.findall(text)))
            used.update(int(code, 16) for code in _ESCAPED_PRIVATE.findall(text))
        self._literals = literals
        self._free = (chr(code) for code in _POOL if code not in used)
        self._table: dict[str, str] = {}
        self.mask = {first: self._placeholder(first) for first in literals.firsts}
        self._firsts = re.compile(f"[{re.escape(literals.firsts)}]") if literals.firsts else None

    def cover(self, text: str) -> str:
        """`text` with only those characters swapped that begin, or could help to form, a literal."""
        at = self._literals.risky(text)
        if not at:
            return text
        letters = list(text)
        for offset in at:
            letters[offset] = self._placeholder(letters[offset])
        return "".join(letters)

    def cover_chat(self, chat: Chat) -> Chat:
        """`cover_all` for messages, whose roles templates compare with; conversation.py has checked those."""
        return [
            {key: item if key == "role" else self.cover_all(item) for key, item in message.items()} for message in chat
        ]

    def cover_all(self, value: Any) -> Any:
        """`cover` for every text inside `value`, keys included."""
        if isinstance(value, str):
            return self.cover(value)
        if isinstance(value, dict):
            return {self.cover_key(key): self.cover_all(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.cover_all(item) for item in value]
        return value

    def cover_key(self, key: str) -> str:
        # Templates look keys up by name, so a key changes only for a whole literal, never for a risk at its edges.
        return self.cover(key) if self._literals.find(key) else key

    def hides_in(self, text: str) -> bool:
        """Whether `text` has a character of `mask` that `cover` left as it is."""
        return self._firsts is not None and self._firsts.search(text) is not None

    def reveal(self, text: str) -> str:
        """The text as the client wrote it. Also where a template wrote JSON with every character escaped."""
        if text.isascii() and "\\u" not in text:
            return text
        back = inverse(self._table)
        for placeholder, plain in back.items():
            escape = json.dumps(placeholder)[1:-1]
            if escape in text:
                text = text.replace(escape, json.dumps(plain)[1:-1])
        return swap(text, back)

    def _placeholder(self, character: str) -> str:
        placeholder = self._table.get(character)
        if placeholder is None:
            placeholder = next(self._free, "")
            if not placeholder:
                raise InvalidRequest(
                    f"the messages use all {len(_POOL)} private-use characters U+E000 to U+F8FF, and the special "
                    "token texts in them cannot be told apart without one: leave some out",
                    param="messages",
                )
            self._table[character] = placeholder
        return placeholder
