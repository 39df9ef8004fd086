"""Runs of characters that no tokenizer should be given.

Tokenizers that fall back to a general regular expression recurse once for each character of a run of one class; the
deep stack of the tokenizing thread carries `limits.INPUT_RUN_BYTES` of them. What a class is differs from model to
model (letters, letters with marks, all signs), but no class holds both white space and other characters: those two are
told apart, and nothing finer.
"""

from __future__ import annotations

import re

from models import limits
from runtime.errors import InputRunTooLong

_RUN = re.compile(r"(?P<text>\S+)|(?P<space>\s+)")
_NAMES = {"text": "text without white space", "space": "white space"}
_MOST_BYTES = 4  # of one character in UTF-8


def check_runs(text: str, *, max_bytes: int = limits.INPUT_RUN_BYTES) -> None:
    """Raises InputRunTooLong with the length of the run and what it is made of."""
    # A run that is too long holds more characters than `step`, so it lies across one of the places looked at: long
    # prompts cost next to nothing.
    step = max(1, max_bytes // _MOST_BYTES)
    for at in range(0, len(text), step):
        match = _RUN.match(text, at)
        assert match is not None, "every character is white space or is not"
        # What begins before the place looked at last was measured from there.
        before = _RUN.match(text[max(0, at - step) : at][::-1])
        same = before is not None and before.lastgroup == match.lastgroup
        run = text[at - (before.end() if before is not None and same else 0) : match.end()]
        if len(run) * _MOST_BYTES > max_bytes and (n := len(run.encode(errors="surrogatepass"))) > max_bytes:
            raise InputRunTooLong(
                f"the prompt has {n} bytes of {_NAMES[match.lastgroup or '']} in a row, {max_bytes} can be tokenized "
                "safely: break the run up or leave it out",
                numbers={"n_run_bytes": n, "max_run_bytes": max_bytes},
            )
