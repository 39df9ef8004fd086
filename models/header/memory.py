"""What each layer keeps between tokens, as the header and the family tell: heads, sliding windows, recurrent state."""

from __future__ import annotations

from models.errors import InvalidModel
from models.header import architectures
from models.header.facts import Facts
from models.header.info import Attention, PerLayer, at_layer

HEADS = ".attention.head_count"
HEADS_KV = ".attention.head_count_kv"
WINDOW = ".attention.sliding_window"
PATTERN = ".attention.sliding_window_pattern"


def build_attention(facts: Facts, n_layers: int, n_nextn: int, n_embd: int) -> Attention:
    n_heads = _heads(facts, HEADS, n_layers)
    n_heads = 0 if n_heads is None else n_heads
    n_heads_kv = _heads(facts, HEADS_KV, n_layers)
    n_heads_kv = n_heads if n_heads_kv is None else n_heads_kv
    key_length, value_length = _head_lengths(facts, n_heads, n_embd)
    window = _window(facts)
    return Attention(
        n_heads=n_heads,
        n_heads_kv=n_heads_kv,
        key_length=key_length,
        value_length=value_length,
        key_length_window=facts.find_u32(".attention.key_length_swa", low=1) or key_length,
        value_length_window=facts.find_u32(".attention.value_length_swa", low=1) or value_length,
        kv_lora_rank=facts.find_u32(".attention.kv_lora_rank"),
        key_length_mla=facts.find_u32(".attention.key_length_mla"),
        value_length_mla=facts.find_u32(".attention.value_length_mla"),
        sliding_window=window,
        window_layers=_window_layers(facts, n_layers, n_nextn) if window else None,
        shared_kv_layers=facts.find_u32(".attention.shared_kv_layers", high=n_layers) or 0,
        causal=facts.flag(".attention.causal") is not False,
    )


def recurrent_layers(
    facts: Facts, n_layers: int, n_nextn: int, n_heads_kv: PerLayer
) -> tuple[bool, tuple[bool, ...] | None]:
    """Whether the model has recurrent state at all, and which layers have it when that is known."""
    family = facts.architecture
    last = n_layers - n_nextn
    if family in architectures.RECURRENT or family in architectures.HYBRID_EVERYWHERE:
        return True, (True,) * n_layers
    if family in architectures.HYBRID_BY_HEADS:
        return True, tuple(i < last and at_layer(n_heads_kv, i) == 0 for i in range(n_layers))
    if family in architectures.HYBRID_BY_INTERVAL:
        stated = facts.layer_flags(".attention.recurrent_layers", n_layers)
        interval = facts.find_u32(".full_attention_interval", low=1) or architectures.HYBRID_BY_INTERVAL[family]
        return True, stated or tuple(i < last and (i + 1) % interval != 0 for i in range(n_layers))
    return family in architectures.HYBRID_OTHER, None


def _heads(facts: Facts, name: str, n_layers: int) -> PerLayer | None:
    """Heads per layer; none at all only in families without attention."""
    heads = facts.per_layer(name, n_layers)
    family = facts.architecture
    if family in architectures.RECURRENT:
        return heads
    if heads is None:
        if name == HEADS and family in architectures.KNOWN:
            raise facts.missing(name)
        return None
    if not any((heads,) if isinstance(heads, int) else heads):
        raise InvalidModel(facts.key(name), f"is 0; {family} has attention and needs at least 1 head")
    return heads


def _head_lengths(facts: Facts, n_heads: PerLayer, n_embd: int) -> tuple[int, int]:
    """Size of one key head and one value head; by default the embedding is shared out among the first layer's heads."""
    first = at_layer(n_heads, 0) or (0 if isinstance(n_heads, int) else max(n_heads))
    if not first:
        return 0, 0
    key = facts.find_u32(".attention.key_length", low=1)
    value = facts.find_u32(".attention.value_length", low=1)
    if (key is None or value is None) and first > n_embd:
        raise InvalidModel(facts.key(HEADS), f"is {first:,}; {n_embd:,} embedding elements cannot be shared among them")
    return key or n_embd // first, value or n_embd // first


def _window(facts: Facts) -> int | None:
    """Tokens a sliding-window layer sees; None when no layer has a window."""
    if facts.architecture in architectures.WINDOW_IGNORED:
        return None
    stated = facts.find_u32(WINDOW)
    pattern = architectures.WINDOW_PATTERNS.get(facts.architecture)
    if stated is None:
        return pattern.window if pattern else None
    return stated or None


def _window_layers(facts: Facts, n_layers: int, n_nextn: int) -> tuple[bool, ...] | None:
    stated = facts.layer_flags(PATTERN, n_layers)
    if stated is not None:
        return stated
    pattern = architectures.WINDOW_PATTERNS.get(facts.architecture)
    period = facts.find_u32(PATTERN)
    if period is None and pattern is None:
        return None
    period = pattern.period if period is None and pattern else period
    full = 0 if (pattern and pattern.full_first) or not period else period - 1
    return tuple(i < n_layers - n_nextn and (not period or i % period != full) for i in range(n_layers))
