"""Log probabilities in OpenAI's two shapes. A token that is no text by itself keeps its bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from runtime.frames import TokenLogprob

# JSON has no infinity; OpenAI's own floor for a token that cannot come.
FLOOR = -9999.0


def chat(entries: Sequence[TokenLogprob]) -> dict[str, Any]:
    content = [
        {
            **_entry(entry.piece, entry.logprob),
            "top_logprobs": [_entry(piece, logprob) for _, piece, logprob in entry.top],
        }
        for entry in entries
    ]
    return {"content": content, "refusal": None}


def text(entries: Sequence[TokenLogprob], offset: int) -> tuple[dict[str, Any], int]:
    """The four parallel lists, and the character offset after the last token."""
    tokens, offsets = [], []
    for entry in entries:
        tokens.append(_name(entry.piece))
        offsets.append(offset)
        offset += len(entry.piece.decode("utf-8", "replace"))
    said = {
        "tokens": tokens,
        "token_logprobs": [_finite(entry.logprob) for entry in entries],
        "top_logprobs": [_alternatives(entry) for entry in entries],
        "text_offset": offsets,
    }
    return said, offset


def _entry(piece: bytes, logprob: float) -> dict[str, Any]:
    return {"token": piece.decode("utf-8", "replace"), "logprob": _finite(logprob), "bytes": list(piece)}


def _alternatives(entry: TokenLogprob) -> dict[str, float] | None:
    """Best first; of two tokens with the same text the better one counts."""
    said: dict[str, float] = {}
    for _, piece, logprob in entry.top:
        said.setdefault(_name(piece), _finite(logprob))
    return said or None


def _name(piece: bytes) -> str:
    """A key in `top_logprobs`, so two halves of different characters must not share one."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


def _finite(logprob: float) -> float:
    return max(logprob, FLOOR) if not math.isnan(logprob) else FLOOR
