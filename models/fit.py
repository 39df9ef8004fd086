"""What a load will need, and what to choose for a person who did not say. Pure: every fact is passed in.

Sizes are bytes. KV size follows llama.cpp's own arithmetic for attention caches: for every layer and cell, keys and
values of all KV heads in the cache type.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.gguf import ModelInfo

# (elements a block, bytes a block) of the cache types llama.cpp offers
KV_TYPES: dict[str, tuple[int, int]] = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "q8_0": (32, 34),
    "q5_1": (32, 24),
    "q5_0": (32, 22),
    "q4_1": (32, 20),
    "q4_0": (32, 18),
    "iq4_nl": (32, 18),
}
CTX_CHOICES = (131_072, 65_536, 32_768, 16_384, 8_192, 4_096, 2_048)
CTX_CAP = 32_768
# Share of free memory the cells of an unasked-for context may take; weights and buffers need the rest.
KV_SHARE = 0.25
# Kept free on a device: compute buffers and the desktop's own use.
DEVICE_RESERVE = 768 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Space:
    """Free memory now: host, and the GPU that would take layers (0 without one)."""

    host_bytes: int
    device_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Fit:
    """The choice, with the sizes it was made from."""

    n_ctx: int
    gpu_layers: int
    weight_bytes: int
    kv_bytes: int


def kv_bytes_per_cell(info: ModelInfo, kv_type: str) -> int:
    """Bytes one token takes in the KV cache over all layers. Sliding windows are counted in full."""
    per_block, block_bytes = KV_TYPES[kv_type]
    total = 0
    for layer in range(info.n_layers):
        heads = info.n_heads_kv_at(layer)
        elements = heads * (info.head_dim_k + info.head_dim_v)
        total += elements // per_block * block_bytes
    return total


def choose(info: ModelInfo, space: Space, *, ctx: int | None, gpu_layers: int, kv_type: str) -> Fit:
    """Context and layers on the GPU. `ctx` None and `gpu_layers` -1 mean: decide.

    The context is the model's own up to 32k, less where its cells would take over a quarter of free memory. Layers go
    to the GPU until its free memory, less a reserve, is used; the output layer counts as one.
    """
    per_cell = max(1, kv_bytes_per_cell(info, kv_type))
    n_ctx = ctx or _context(info, space, per_cell)
    kv = n_ctx * per_cell
    if gpu_layers < 0:
        gpu_layers = _layers(info, space, kv)
    return Fit(n_ctx, gpu_layers, info.size_bytes, kv)


def _context(info: ModelInfo, space: Space, per_cell: int) -> int:
    trained = info.context_length or 4096
    budget = max(space.host_bytes, space.device_bytes) * KV_SHARE
    limit = min(trained, CTX_CAP)
    for choice in (limit, *(c for c in CTX_CHOICES if c < limit)):
        if choice * per_cell <= budget:
            return choice
    return min(trained, CTX_CHOICES[-1])


def _layers(info: ModelInfo, space: Space, kv: int) -> int:
    n_total = info.n_layers + 1
    per_layer = (info.size_bytes + kv) / n_total
    spare = space.device_bytes - DEVICE_RESERVE
    return 0 if spare <= 0 else min(n_total, int(spare / per_layer))
