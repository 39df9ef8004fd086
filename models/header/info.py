"""What a model file says about itself: frozen values, filled by models.header.facts. Nothing here reads a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from models.header.tensors import TensorInfo

PerLayer = int | tuple[int, ...]


def at_layer(value: PerLayer, layer: int) -> int:
    """The value of one layer, whether the file gives one for all or one for each."""
    return value if isinstance(value, int) else value[layer]


@dataclass(frozen=True, slots=True)
class Attention:
    """Heads and what they keep. Zero heads: no attention (in that layer).

    `key_length` and `value_length` are the sizes of one head in the KV cache; the `_window` pair holds for layers with
    a sliding window where it differs. With multi-head latent attention (`kv_lora_rank` and `key_length_mla` present)
    the cache holds one compressed head, and the `_mla` pair are the sizes after expansion. `window_layers` tells for
    each layer whether it sees only `sliding_window` tokens; None when nothing tells.
    """

    n_heads: PerLayer
    n_heads_kv: PerLayer
    key_length: int
    value_length: int
    key_length_window: int
    value_length_window: int
    kv_lora_rank: int | None = None
    key_length_mla: int | None = None
    value_length_mla: int | None = None
    sliding_window: int | None = None
    window_layers: tuple[bool, ...] | None = None
    shared_kv_layers: int = 0
    causal: bool = True

    @property
    def is_mla(self) -> bool:
        return bool(self.key_length_mla and self.value_length_mla)

    @property
    def is_grouped(self) -> bool:
        """Several query heads share a key-value head in some layer."""
        return self.n_heads != self.n_heads_kv


@dataclass(frozen=True, slots=True)
class Experts:
    """Mixture of experts: `used` of `count` run for a token, `shared` always."""

    count: int
    used: PerLayer
    shared: int
    groups: int
    groups_used: int


@dataclass(frozen=True, slots=True)
class Recurrent:
    """State of fixed size instead of, or beside, a KV cache. `layers` tells which layers have it; None when unknown."""

    layers: tuple[bool, ...] | None
    conv_kernel: int = 0
    inner_size: int = 0
    state_size: int = 0
    time_step_rank: int = 0
    group_count: int = 0
    wkv_head_size: int = 0
    token_shift_count: int = 0
    shortconv_cache: int = 0
    kda_head_dim: int = 0


@dataclass(frozen=True, slots=True)
class Rope:
    """Positions. `original_context` is what the model was trained on before its context was stretched."""

    freq_base: float | None
    dimensions: int | None
    scaling: str | None
    factor: float | None
    original_context: int | None


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokenizer arrays, made only on request. `scores` and `types` are empty when the file has none."""

    tokens: tuple[bytes, ...]
    scores: tuple[float, ...]
    types: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Kind and special tokens. An id is None when the file names none or one outside the vocabulary."""

    model: str | None
    pre: str | None
    n_tokens: int
    bos: int | None
    eos: int | None
    eot: int | None
    unknown: int | None
    separator: int | None
    padding: int | None
    add_bos: bool | None
    add_eos: bool | None
    vocabulary: Vocabulary | None = None


@dataclass(frozen=True, slots=True)
class TypeShare:
    """What one tensor type contributes to the model."""

    n_tensors: int
    n_elements: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Everything known from the header. `paths[0]` is the file to load; the rest are its further parts.

    `size_bytes` counts tensor data, `file_bytes` the files. `n_layers` includes `n_nextn_layers` that only predict
    drafts. `oversized_templates` names templates that were left out, with their sizes in bytes.
    """

    paths: tuple[Path, ...]
    version: int
    alignment: int
    file_bytes: int
    architecture: str
    name: str | None
    license: str | None
    size_label: str | None
    file_type: str | None
    context_length: int
    n_layers: int
    n_nextn_layers: int
    n_embd: int
    n_ff: PerLayer
    pooling: int | None
    attention: Attention
    experts: Experts | None
    recurrent: Recurrent | None
    rope: Rope
    tokenizer: Tokenizer
    chat_templates: Mapping[str, str]
    oversized_templates: Mapping[str, int]
    mix: Mapping[str, TypeShare]
    tensors: tuple[TensorInfo, ...] = field(repr=False)

    @property
    def n_params(self) -> int:
        return sum(share.n_elements for share in self.mix.values())

    @property
    def size_bytes(self) -> int:
        return sum(share.n_bytes for share in self.mix.values())

    @property
    def bits_per_weight(self) -> float:
        return self.size_bytes * 8 / self.n_params if self.n_params else 0.0

    @property
    def n_vocab(self) -> int:
        return self.tokenizer.n_tokens

    @property
    def n_heads(self) -> PerLayer:
        return self.attention.n_heads

    @property
    def n_heads_kv(self) -> PerLayer:
        return self.attention.n_heads_kv

    def n_heads_kv_at(self, layer: int) -> int:
        return at_layer(self.attention.n_heads_kv, layer)

    @property
    def head_dim_k(self) -> int:
        return self.attention.key_length

    @property
    def head_dim_v(self) -> int:
        return self.attention.value_length
