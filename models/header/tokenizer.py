"""The tokenizer's entries: its kind, its special tokens and, on request, its arrays."""

from __future__ import annotations

from models import limits
from models.header.facts import Facts
from models.header.info import Tokenizer, Vocabulary
from models.header.metadata import TOKENS_KEY as TOKENS
from models.header.types import FLOAT32, INT32, STRING

SCORES = "tokenizer.ggml.scores"
TYPES = "tokenizer.ggml.token_type"
MERGES = "tokenizer.ggml.merges"
KIND_BYTES = 64


def build_tokenizer(facts: Facts, *, vocabulary: bool) -> Tokenizer:
    stated = facts.find_u32(".vocab_size", high=limits.GGUF_VOCAB_MAX) or 0
    listed = facts.array(TOKENS, (STRING,))
    n_tokens = stated if listed is None else listed.count
    facts.array(SCORES, (FLOAT32, INT32))
    facts.array(TYPES, (INT32,))
    facts.array(MERGES, (STRING,))
    return Tokenizer(
        model=facts.find_text("tokenizer.ggml.model", KIND_BYTES),
        pre=facts.find_text("tokenizer.ggml.pre", KIND_BYTES),
        n_tokens=n_tokens,
        bos=_special(facts, "bos", n_tokens),
        eos=_special(facts, "eos", n_tokens),
        eot=_special(facts, "eot", n_tokens),
        unknown=_special(facts, "unknown", n_tokens),
        separator=_special(facts, "seperator", n_tokens),  # the format spells it so
        padding=_special(facts, "padding", n_tokens),
        add_bos=facts.flag("tokenizer.ggml.add_bos_token"),
        add_eos=facts.flag("tokenizer.ggml.add_eos_token"),
        vocabulary=_vocabulary(facts) if vocabulary else None,
    )


def _special(facts: Facts, name: str, n_tokens: int) -> int | None:
    token = facts.find_u32(f"tokenizer.ggml.{name}_token_id")
    return token if token is not None and token < n_tokens else None


def _vocabulary(facts: Facts) -> Vocabulary:
    tokens = facts.array(TOKENS, (STRING,))
    scores = facts.array(SCORES, (FLOAT32, INT32))
    types = facts.array(TYPES, (INT32,))
    return Vocabulary(
        tokens=tuple(token for batch in facts.strings(TOKENS, tokens) for token in batch) if tokens else (),
        scores=tuple(float(score) for score in facts.numbers(SCORES, scores)) if scores else (),
        types=tuple(int(kind) for kind in facts.numbers(TYPES, types)) if types else (),
    )
