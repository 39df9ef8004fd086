"""What the pinned llama.cpp answers with an abort or a division by zero, refused before it sees the file.

`RULES` is the list; each rule raises InvalidModel. Conditions come from llama-model.cpp and llama-vocab.cpp and are to
be compared with them whenever llama-cpp-python moves.
"""

from __future__ import annotations

from collections.abc import Callable

from models.errors import InvalidModel
from models.header import architectures
from models.header.cursor import shown
from models.header.facts import Facts
from models.header.info import ModelInfo, at_layer
from models.header.vocabulary import check_vocabulary

EXPERTS_MAX = 1024
# ggml asserts that a buffer mapped from the file begins at a multiple of this.
MAPPED_ALIGNMENT = 32
# Types that results have, or that tables of numbers have, but no matrix that is multiplied.
NOT_WEIGHTS = frozenset({"Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64"})
TABLES = ("d2t", "t2d", "tid2eid")
EPSILONS = (".attention.layer_norm_epsilon", ".attention.layer_norm_rms_epsilon", ".attention.group_norm_epsilon")
ROPE_SCALINGS = (None, "none", "linear", "yarn", "longrope")


def check_model(info: ModelInfo, facts: Facts) -> None:
    for rule in RULES:
        rule(info, facts)


def known_architecture(info: ModelInfo, facts: Facts) -> None:
    if info.architecture not in architectures.KNOWN:
        raise InvalidModel(
            "general.architecture",
            f"is {info.architecture!r}, which the built-in llama.cpp does not know: update, or choose another model",
        )


def holds_weights(info: ModelInfo, facts: Facts) -> None:
    if not info.tensors:
        raise InvalidModel("tensor_count", "is 0: the file holds no weights")


def mappable(info: ModelInfo, facts: Facts) -> None:
    """Only a file of smaller alignment can fail here, and only with a header of unlucky length."""
    for tensor in info.tensors:
        if tensor.offset % MAPPED_ALIGNMENT:
            raise InvalidModel(
                f"{shown(tensor.name)}.offset",
                f"is byte {tensor.offset:,} of the file; llama.cpp maps only from multiples of {MAPPED_ALIGNMENT}: "
                f"write the model again with general.alignment {MAPPED_ALIGNMENT}",
            )


def computable_types(info: ModelInfo, facts: Facts) -> None:
    """ggml has no product for some types, and adds or scales by a vector only in F32; it ends the process to say so."""
    for tensor in info.tensors:
        if tensor.type == "F32":
            continue
        field = f"{shown(tensor.name)}.type"
        if tensor.type in NOT_WEIGHTS and not any(table in tensor.name for table in TABLES):
            raise InvalidModel(field, f"is {tensor.type}, which llama.cpp cannot compute with: convert the model again")
        is_bias = tensor.name.endswith(".bias") and len(tensor.dims) == 1
        if is_bias or tensor.name.endswith("norm.weight"):
            raise InvalidModel(field, f"is {tensor.type}; norms and biases must be F32: convert the model again")


def finite_epsilons(info: ModelInfo, facts: Facts) -> None:
    for name in EPSILONS:
        facts.find_float(name)


def whole_head_groups(info: ModelInfo, facts: Facts) -> None:
    heads = info.attention
    for layer in range(info.n_layers):
        queries, keys = at_layer(heads.n_heads, layer), at_layer(heads.n_heads_kv, layer)
        if keys and queries % keys:
            raise InvalidModel(
                facts.key(".attention.head_count_kv"), f"is {keys:,}; {queries:,} heads cannot be shared out evenly"
            )


def expert_counts(info: ModelInfo, facts: Facts) -> None:
    experts = info.experts
    if experts is None or (info.architecture in architectures.ONE_EXPERT_IS_NONE and experts.count <= 1):
        return
    most = max(at_layer(experts.used, layer) for layer in range(info.n_layers))
    if experts.count > EXPERTS_MAX:
        raise InvalidModel(facts.key(".expert_count"), f"is {experts.count:,}; the limit is {EXPERTS_MAX:,}")
    if most > experts.count or (experts.count and not most):
        raise InvalidModel(facts.key(".expert_used_count"), f"is {most:,} of {experts.count:,} experts")
    if experts.groups and experts.groups >= experts.count:
        raise InvalidModel(facts.key(".expert_group_count"), f"is {experts.groups:,} for {experts.count:,} experts")
    if experts.groups > 1:
        _expert_groups(facts, experts.count, experts.groups, experts.groups_used)


def _expert_groups(facts: Facts, count: int, groups: int, used: int) -> None:
    if count % groups:
        raise InvalidModel(facts.key(".expert_group_count"), f"is {groups:,}; it does not divide {count:,} experts")
    if not 0 < used < groups:
        raise InvalidModel(facts.key(".expert_group_used_count"), f"is {used:,} of {groups:,} groups")


def known_rope_scaling(info: ModelInfo, facts: Facts) -> None:
    if info.rope.scaling not in ROPE_SCALINGS:
        raise InvalidModel(
            facts.key(".rope.scaling.type"), f"is {info.rope.scaling!r}; known are none, linear, yarn, longrope"
        )


def no_zero_divisors(info: ModelInfo, facts: Facts) -> None:
    for name in (".wkv.head_size", ".attention.output_group_count"):
        facts.find_u32(name, low=1)
    if info.architecture in architectures.DIVIDES_BY_GROUPS:
        facts.find_u32(".ssm.group_count", low=1)


def usable_vocabulary(info: ModelInfo, facts: Facts) -> None:
    check_vocabulary(info.tokenizer, facts)


RULES: tuple[Callable[[ModelInfo, Facts], None], ...] = (
    known_architecture,
    holds_weights,
    mappable,
    computable_types,
    finite_epsilons,
    whole_head_groups,
    expert_counts,
    known_rope_scaling,
    no_zero_divisors,
    usable_vocabulary,
)
