"""From the entries of a header to a ModelInfo: which keys are used, what is assumed where they are absent."""

from __future__ import annotations

from collections.abc import Iterable

from models import limits
from models.errors import InvalidModel
from models.header.cursor import shown
from models.header.facts import Facts
from models.header.info import Experts, ModelInfo, PerLayer, Recurrent, Rope, TypeShare
from models.header.memory import build_attention, recurrent_layers
from models.header.shards import OpenModel
from models.header.tensors import TensorInfo
from models.header.tokenizer import build_tokenizer
from models.header.types import FILE_TYPES

ARCHITECTURE_BYTES = 64
ROPE_SCALING_BYTES = 32
# Templates kept in memory, all together.
TEMPLATES_BYTES = 16 * limits.TEMPLATE_BYTES
TEMPLATE_KEY = "tokenizer.chat_template"
NOT_MODELS = {
    "adapter": "an adapter for a model",
    "imatrix": "an importance matrix",
    "mmproj": "the image part of a model",
}
FTYPE_GUESSED = 1024


def build_info(opened: OpenModel, *, vocabulary: bool) -> ModelInfo:
    """Everything ModelInfo holds. `vocabulary` makes the tokenizer arrays too."""
    facts = opened.facts
    facts.architecture = _architecture(facts)
    n_layers = facts.u32(".block_count", low=1, high=limits.GGUF_BLOCKS_MAX)
    n_nextn = facts.find_u32(".nextn_predict_layers", high=n_layers) or 0
    n_embd = facts.u32(".embedding_length", low=1)
    attention = build_attention(facts, n_layers, n_nextn, n_embd)
    templates, oversized = _templates(facts)
    mix = _mix(opened.tensors)
    return ModelInfo(
        paths=opened.paths,
        version=opened.version,
        alignment=opened.alignment,
        file_bytes=opened.file_bytes,
        architecture=facts.architecture,
        name=facts.label("general.name"),
        license=facts.label("general.license"),
        size_label=facts.label("general.size_label"),
        file_type=_file_type(facts, mix),
        context_length=facts.u32(".context_length", low=1),
        n_layers=n_layers,
        n_nextn_layers=n_nextn,
        n_embd=n_embd,
        n_ff=_or_zero(facts.per_layer(".feed_forward_length", n_layers)),
        pooling=facts.find_u32(".pooling_type"),
        attention=attention,
        experts=_experts(facts, n_layers),
        recurrent=_recurrent(facts, n_layers, n_nextn, attention.n_heads_kv),
        rope=_rope(facts),
        tokenizer=build_tokenizer(facts, vocabulary=vocabulary),
        chat_templates=templates,
        oversized_templates=oversized,
        mix=mix,
        tensors=opened.tensors,
    )


def _architecture(facts: Facts) -> str:
    kind = facts.find_text("general.type", ARCHITECTURE_BYTES)
    architecture = facts.find_text("general.architecture", ARCHITECTURE_BYTES)
    if not architecture:
        raise InvalidModel("general.architecture", "is missing or empty; a model file must have it")
    if architecture == "clip":
        kind = "mmproj"
    if kind in NOT_MODELS:
        raise InvalidModel("general.type", f"this is {NOT_MODELS[kind]}, not a model to chat with: choose the model")
    if not architecture.isprintable():
        raise InvalidModel("general.architecture", f"is {shown(architecture)!r}, which is no name")
    return architecture


def _or_zero(value: PerLayer | None) -> PerLayer:
    return 0 if value is None else value


def _experts(facts: Facts, n_layers: int) -> Experts | None:
    used = _or_zero(facts.per_layer(".expert_used_count", n_layers))
    count = facts.find_u32(".expert_count") or 0
    groups = facts.find_u32(".expert_group_count") or 0
    if not count and not groups and not used:
        return None
    return Experts(
        count=count,
        used=used,
        shared=facts.find_u32(".expert_shared_count") or 0,
        groups=groups,
        groups_used=facts.find_u32(".expert_group_used_count") or 0,
    )


def _recurrent(facts: Facts, n_layers: int, n_nextn: int, n_heads_kv: PerLayer) -> Recurrent | None:
    is_recurrent, layers = recurrent_layers(facts, n_layers, n_nextn, n_heads_kv)
    if not is_recurrent:
        return None
    sizes = {
        "conv_kernel": ".ssm.conv_kernel",
        "inner_size": ".ssm.inner_size",
        "state_size": ".ssm.state_size",
        "time_step_rank": ".ssm.time_step_rank",
        "group_count": ".ssm.group_count",
        "wkv_head_size": ".wkv.head_size",
        "token_shift_count": ".token_shift_count",
        "shortconv_cache": ".shortconv.l_cache",
        "kda_head_dim": ".kda.head_dim",
    }
    return Recurrent(layers, **{name: facts.find_u32(key) or 0 for name, key in sizes.items()})


def _rope(facts: Facts) -> Rope:
    factor = facts.find_float(".rope.scaling.factor")
    return Rope(
        freq_base=facts.find_float(".rope.freq_base"),
        dimensions=facts.find_u32(".rope.dimension_count"),
        scaling=facts.find_text(".rope.scaling.type", ROPE_SCALING_BYTES),
        factor=facts.find_float(".rope.scale_linear") if factor is None else factor,
        original_context=facts.find_u32(".rope.scaling.original_context_length"),
    )


def _templates(facts: Facts) -> tuple[dict[str, str], dict[str, int]]:
    """Chat templates by name, and the sizes of those too large to keep."""
    kept: dict[str, str] = {}
    oversized: dict[str, int] = {}
    left = TEMPLATES_BYTES
    keys = [TEMPLATE_KEY] if facts.has(TEMPLATE_KEY) else []
    for key in keys + facts.names(TEMPLATE_KEY + "."):
        name = shown(key[len(TEMPLATE_KEY) + 1 :]) or "default"
        n_bytes = facts.text_bytes(key)
        if n_bytes > min(left, limits.TEMPLATE_BYTES):
            oversized[name] = n_bytes
            continue
        left -= n_bytes
        kept[name] = facts.find_text(key, n_bytes) or ""
    return kept, oversized


def _mix(tensors: Iterable[TensorInfo]) -> dict[str, TypeShare]:
    """How the weights are spread over tensor types, the largest share first."""
    shares: dict[str, TypeShare] = {}
    for tensor in tensors:
        share = shares.get(tensor.type, TypeShare(0, 0, 0))
        shares[tensor.type] = TypeShare(
            share.n_tensors + 1, share.n_elements + tensor.n_elements, share.n_bytes + tensor.n_bytes
        )
    return dict(sorted(shares.items(), key=lambda item: -item[1].n_bytes))


def _file_type(facts: Facts, mix: dict[str, TypeShare]) -> str | None:
    """The stated quantization, or the type of most bytes when the file states none."""
    stated = facts.find_u32("general.file_type")
    if stated is not None:
        return FILE_TYPES.get(stated & ~FTYPE_GUESSED, f"type {stated}")
    return next(iter(mix), None)
