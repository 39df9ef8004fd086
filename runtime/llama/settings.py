"""What sampling settings mean for a chain: which parts are on, how far back they look, what a caller may leave out.

Pure: nothing here is changed, nothing native is called.
"""

from __future__ import annotations

import math

from runtime.llama.vocab import Vocab
from runtime.request import Sampling

# Below this, dividing by the temperature would leave the numbers of a float32; the best entry has all the weight.
COLD = 1e-4
FINITE = (
    "temperature", "top_p", "min_p", "typical_p", "top_n_sigma", "frequency_penalty", "presence_penalty",
    "dry_multiplier", "dry_base", "xtc_probability", "xtc_threshold", "mirostat_tau", "mirostat_eta",
)  # fmt: skip


def check(s: Sampling) -> None:
    """Refuse what would end in infinities. The edge refuses it too, with the field's name. Raises ValueError."""
    for name in FINITE:
        if not math.isfinite(value := getattr(s, name)):
            raise ValueError(f"{name} {value}: a finite number is needed")
    if not (math.isfinite(s.repeat_penalty) and s.repeat_penalty > 0):
        raise ValueError(f"repeat_penalty {s.repeat_penalty}: a number above 0 is needed")
    if s.mirostat not in (0, 1, 2):
        raise ValueError(f"mirostat {s.mirostat}: 0, 1 and 2 exist")


def biases(s: Sampling, vocab: Vocab) -> list[tuple[int, float]]:
    """Summed for each token; end-of-generation tokens when eos is ignored and those the model forbids at -inf."""
    total: dict[int, float] = {}
    for token, bias in s.logit_bias:
        if not 0 <= token < vocab.n_tokens:
            raise ValueError(f"logit_bias for token {token}: the vocabulary has {vocab.n_tokens} tokens")
        if math.isnan(bias) or bias == math.inf:
            raise ValueError(f"logit_bias {bias} for token {token}: a finite number is needed, or -inf to forbid it")
        total[token] = total.get(token, 0.0) + bias
    forbidden = [*vocab.suppressed, *(vocab.eog_ids if s.ignore_eos else ())]
    total.update(dict.fromkeys(forbidden, -math.inf))
    return sorted(total.items())


def windows(s: Sampling, n_ctx: int) -> tuple[int, int]:
    """Tokens that penalties and DRY look back on, 0 for a part that is off. llama.cpp reserves them at once."""
    if uses_mirostat(s):
        return 0, 0
    penalizes = s.repeat_penalty != 1 or s.frequency_penalty != 0 or s.presence_penalty != 0
    dries = s.dry_multiplier != 0 and s.dry_base >= 1
    return (
        _window(s.repeat_last_n, n_ctx) if penalizes else 0,
        _window(s.dry_penalty_last_n, n_ctx) if dries else 0,
    )


def is_cold(s: Sampling) -> bool:
    return s.temperature < COLD


def is_greedy(s: Sampling) -> bool:
    """Cold, and nothing that may drop the best entry acts before it is taken."""
    return is_cold(s) and (s.mirostat > 0 or not (s.typical_p < 1 or uses_xtc(s)))


def uses_mirostat(s: Sampling) -> bool:
    return s.mirostat > 0 and not is_cold(s)


def uses_xtc(s: Sampling) -> bool:
    return s.xtc_probability > 0 and s.xtc_threshold <= 0.5


def starts_with_a_cut(s: Sampling) -> bool:
    """Is the first thing that acts a cut which the best entries alone decide?"""
    if uses_mirostat(s) or s.top_n_sigma > 0:
        return False
    return s.top_k > 0 or (0 < s.min_p < 1 and s.top_p >= 1 and s.typical_p >= 1)


def _window(last_n: int, n_ctx: int) -> int:
    return n_ctx if last_n < 0 else min(last_n, n_ctx)
