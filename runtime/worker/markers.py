"""Tokens that mark turns although the vocabulary calls them user-defined.

Some models (Command R, many fine-tunes with added ChatML tokens) mark turns with tokens llama.cpp finds in any text, so
a client could open a turn with them. A marker is what the template writes around a plain user turn; other user-defined
tokens, such as those around a tool call, are text that clients may send.
"""

from __future__ import annotations

import re

from runtime.worker.tokens import USER_DEFINED, VocabLike

PROBE = "zqxprobe"

_LOOKS_SPECIAL = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]")


def turn_markers(vocab: VocabLike, rendered: str) -> dict[str, int]:
    """The markers in `rendered`, which is a chat of one user message that says PROBE."""
    around = rendered.replace(PROBE, "\n")
    found = {}
    for literal in dict.fromkeys(_LOOKS_SPECIAL.findall(around)):
        # What stands before a text with a special token (a space, in some vocabularies) is not part of that token.
        *_, last = vocab.tokenize(literal, add_special=False, parse_special=False)
        if vocab.attr(last) & USER_DEFINED and vocab.piece(last, special=True) == literal.encode():
            found[literal] = last
    return found
