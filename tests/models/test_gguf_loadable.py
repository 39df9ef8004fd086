"""What would end the process that loads it is refused by `check_loadable`, though it reads as a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from gguf_files import F32, F64, I32, STRING, U32, Gguf, Tensor, spm, spm_tokens, spm_types, tiny_llama

from models.errors import InvalidModel
from models.gguf import check_loadable, read_model
from models.header import loadable, vocabulary

CASES_PER_KIND = 5
TOKENS = "tokenizer.ggml.tokens"
Change = Callable[[Gguf], object]


@dataclass(frozen=True)
class Case:
    kind: str
    name: str
    field: str
    change: Change


def kind(name: str, *cases: tuple[str, str, Change]) -> list[Case]:
    return [Case(name, label, field, change) for label, field, change in cases]


def architecture(name: str) -> Change:
    """The same model under another family's name, its keys renamed."""

    def apply(file: Gguf) -> None:
        file.entries = {str(key).replace("llama.", f"{name}."): value for key, value in file.entries.items()}
        file.text("general.architecture", name)

    return apply


def numbers(**values: int) -> Change:
    return lambda file: [file.set(f"llama.{key}", U32, value) for key, value in values.items()]


def both(*changes: Change) -> Change:
    return lambda file: [change(file) for change in changes]


def without(*missing: bytes) -> Change:
    return lambda file: spm(file, [token for token in spm_tokens() if token not in missing])


def vocabulary_of(tokens: Sequence[bytes], types: Sequence[int] | None = None) -> Change:
    return lambda file: spm(file, tokens, types)


def replaced(number: int, token: bytes, code: int | None = None) -> Change:
    """The sentencepiece vocabulary with one more token put in at the end, of the given type."""
    tokens = [*spm_tokens(), token]
    types = [*spm_types(spm_tokens()), 1 if code is None else code]
    return (
        vocabulary_of(tokens, types)
        if number < 0
        else vocabulary_of([*tokens[:number], token, *tokens[number + 1 : -1]])
    )


def bpe(tokens: Sequence[bytes], **special: int) -> Change:
    def apply(file: Gguf) -> None:
        file.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "gpt-2")
        file.list(TOKENS, STRING, tokens).list("tokenizer.ggml.merges", STRING, ["a b"])
        file.list("tokenizer.ggml.token_type", I32, [1] * len(tokens)).drop("tokenizer.ggml.scores")
        file.drop("tokenizer.ggml.bos_token_id").drop("tokenizer.ggml.eos_token_id")
        for name, value in special.items():
            file.set(f"tokenizer.ggml.{name}", U32, value)

    return apply


def add(flag: str) -> Change:
    return lambda file: file.raw(f"tokenizer.ggml.add_{flag}_token", 7, b"\1")


def bert(n_tokens: int, types: Sequence[int] | None = None, **special: int) -> Change:
    words = [b"w%d" % i for i in range(n_tokens)]

    def apply(file: Gguf) -> None:
        file.text("tokenizer.ggml.model", "bert").list(TOKENS, STRING, words).drop("tokenizer.ggml.scores")
        file.drop("tokenizer.ggml.bos_token_id")
        file.list("tokenizer.ggml.token_type", I32, [1] * n_tokens if types is None else types)
        for name, value in special.items():
            file.set(f"tokenizer.ggml.{name}_token_id", U32, value)

    return apply


def shifted(padding: int) -> Change:
    """Alignment 8, with a name so long that tensor data begins `padding` bytes past a multiple of 32."""

    def apply(file: Gguf) -> None:
        file.set("general.alignment", U32, 8)
        file.alignment = 8
        file.text("general.name", "")
        length = -len(file.header()) % 32 + padding
        file.text("general.name", "n" * length)

    return apply


def typed(name: str, code: int) -> Change:
    """One tensor stored in another type."""

    def apply(file: Gguf) -> None:
        next(tensor for tensor in file.tensors if tensor.name == name).type = code

    return apply


RMS_EPSILON = "llama.attention.layer_norm_rms_epsilon"
WORDS = [b"w%d" % i for i in range(40)]
CASES = [
    *kind(
        "architecture",
        ("invented", "general.architecture", architecture("llama9")),
        ("upper case", "general.architecture", architecture("LLaMA")),
        ("a prefix", "general.architecture", architecture("llam")),
        ("another engine's", "general.architecture", architecture("whisper")),
        ("llama.cpp's own placeholder", "general.architecture", architecture("(unknown)")),
    ),
    *kind(
        "shared heads",
        ("4 by 3", "llama.attention.head_count_kv", numbers(**{"attention.head_count_kv": 3})),
        ("4 by 5", "llama.attention.head_count_kv", numbers(**{"attention.head_count_kv": 5})),
        ("4 by 8", "llama.attention.head_count_kv", numbers(**{"attention.head_count_kv": 8})),
        ("1 by 2", "llama.attention.head_count_kv", numbers(**{"attention.head_count": 1})),
        ("3 by 2", "llama.attention.head_count_kv", numbers(**{"attention.head_count": 3})),
    ),
    *kind(
        "experts",
        ("1,025", "llama.expert_count", numbers(expert_count=1025, expert_used_count=2)),
        ("2^32 - 1", "llama.expert_count", numbers(expert_count=2**32 - 1, expert_used_count=2)),
        ("none used", "llama.expert_used_count", numbers(expert_count=4)),
        ("more used than there are", "llama.expert_used_count", numbers(expert_count=4, expert_used_count=5)),
        ("used without any", "llama.expert_used_count", numbers(expert_used_count=1)),
    ),
    *kind(
        "expert groups",
        (
            "as many as experts",
            "llama.expert_group_count",
            numbers(expert_count=4, expert_used_count=2, expert_group_count=4),
        ),
        ("without experts", "llama.expert_group_count", numbers(expert_group_count=2)),
        ("uneven", "llama.expert_group_count", numbers(expert_count=4, expert_used_count=2, expert_group_count=3)),
        (
            "none used",
            "llama.expert_group_used_count",
            numbers(expert_count=4, expert_used_count=2, expert_group_count=2),
        ),
        (
            "all used",
            "llama.expert_group_used_count",
            numbers(expert_count=4, expert_used_count=2, expert_group_count=2, expert_group_used_count=2),
        ),
    ),
    *kind(
        "rope scaling",
        ("empty", "llama.rope.scaling.type", lambda f: f.text("llama.rope.scaling.type", "")),
        ("dynamic", "llama.rope.scaling.type", lambda f: f.text("llama.rope.scaling.type", "dynamic")),
        ("upper case", "llama.rope.scaling.type", lambda f: f.text("llama.rope.scaling.type", "YARN")),
        ("su", "llama.rope.scaling.type", lambda f: f.text("llama.rope.scaling.type", "su")),
        ("a NUL behind it", "llama.rope.scaling.type", lambda f: f.text("llama.rope.scaling.type", "yarn\0x")),
    ),
    *kind(
        "division by zero",
        (
            "wkv heads",
            "rwkv7.wkv.head_size",
            both(architecture("rwkv7"), lambda f: f.set("rwkv7.wkv.head_size", U32, 0)),
        ),
        (
            "groups",
            "mamba2.ssm.group_count",
            both(architecture("mamba2"), lambda f: f.set("mamba2.ssm.group_count", U32, 0)),
        ),
        (
            "groups of a hybrid",
            "falcon-h1.ssm.group_count",
            both(architecture("falcon-h1"), lambda f: f.set("falcon-h1.ssm.group_count", U32, 0)),
        ),
        (
            "interval",
            "qwen35.full_attention_interval",
            both(architecture("qwen35"), lambda f: f.set("qwen35.full_attention_interval", U32, 0)),
        ),
        (
            "output groups",
            "deepseek4.attention.output_group_count",
            both(architecture("deepseek4"), lambda f: f.set("deepseek4.attention.output_group_count", U32, 0)),
        ),
    ),
    *kind(
        "tensor data that cannot be mapped",
        *((f"{n} past a multiple of 32", "token_embd.weight.offset", shifted(n)) for n in (1, 8, 9, 16, 24)),
    ),
    *kind(
        "types nothing can be computed with",
        ("q as i8", "blk.0.attn_q.weight.type", typed("blk.0.attn_q.weight", 24)),
        ("down as i32", "blk.0.ffn_down.weight.type", typed("blk.0.ffn_down.weight", 26)),
        ("embedding as i64", "token_embd.weight.type", typed("token_embd.weight", 27)),
        ("up as f64", "blk.0.ffn_up.weight.type", typed("blk.0.ffn_up.weight", 28)),
        ("gate as q8_1", "blk.0.ffn_gate.weight.type", typed("blk.0.ffn_gate.weight", 9)),
        ("output norm as f16", "output_norm.weight.type", typed("output_norm.weight", 1)),
        ("norm as bf16", "blk.0.attn_norm.weight.type", typed("blk.0.attn_norm.weight", 30)),
        ("norm as q8_0", "blk.0.ffn_norm.weight.type", typed("blk.0.ffn_norm.weight", 8)),
        ("bias as f16", "blk.0.attn_q.bias.type", lambda f: f.tensors.append(Tensor("blk.0.attn_q.bias", (32,), 1))),
    ),
    *kind(
        "epsilons",
        ("nan", RMS_EPSILON, lambda f: f.set(RMS_EPSILON, F32, float("nan"))),
        ("negative", RMS_EPSILON, lambda f: f.set(RMS_EPSILON, F32, -1e-5)),
        ("infinite", RMS_EPSILON, lambda f: f.set(RMS_EPSILON, F32, float("inf"))),
        ("as f64", RMS_EPSILON, lambda f: f.set(RMS_EPSILON, F64, 1e-5)),
        (
            "of another norm",
            "llama.attention.layer_norm_epsilon",
            lambda f: f.set("llama.attention.layer_norm_epsilon", F32, -1),
        ),
    ),
    *kind(
        "tokenizer kind",
        ("missing", "tokenizer.ggml.model", lambda f: f.drop("tokenizer.ggml.model")),
        ("empty", "tokenizer.ggml.model", lambda f: f.text("tokenizer.ggml.model", "")),
        ("none", "tokenizer.ggml.model", lambda f: f.text("tokenizer.ggml.model", "none")),
        ("no_vocab", "tokenizer.ggml.model", lambda f: f.text("tokenizer.ggml.model", "no_vocab")),
        ("test", "tokenizer.ggml.model", lambda f: f.text("tokenizer.ggml.model", "test")),
        ("unknown", "tokenizer.ggml.model", lambda f: f.text("tokenizer.ggml.model", "tiktoken")),
    ),
    *kind(
        "tokenizer arrays",
        ("no tokens", TOKENS, lambda f: f.drop(TOKENS)),
        ("an empty list", TOKENS, lambda f: f.list(TOKENS, STRING, [])),
        ("too few types", "tokenizer.ggml.token_type", lambda f: f.list("tokenizer.ggml.token_type", I32, [1] * 298)),
        ("too few scores", "tokenizer.ggml.scores", lambda f: f.list("tokenizer.ggml.scores", F32, [0.0] * 298)),
        ("a token of 4,097 bytes", TOKENS, replaced(-1, b"t" * 4097)),
        ("a token of a megabyte", TOKENS, replaced(-1, b"t" * 2**20)),
        ("a token larger than a window", TOKENS, replaced(-1, b"t" * (2**20 + 1))),
    ),
    *kind(
        "byte tokens missing",
        ("all", TOKENS, vocabulary_of([b"<unk>", b"<s>", b"</s>", *WORDS])),
        ("one", TOKENS, without(b"<0xC3>")),
        ("the newline", TOKENS, without(b"<0x0A>")),
        ("the last that UTF-8 has", TOKENS, without(b"<0xF4>")),
        ("only ASCII there", TOKENS, without(*(b"<0x%02X>" % byte for byte in range(128, 256)))),
        ("lower case", TOKENS, vocabulary_of([token.lower().replace(b"<0X", b"<0x") for token in spm_tokens()])),
    ),
    *kind(
        "byte tokens malformed",
        ("<0x-1>", TOKENS, replaced(-1, b"<0x-1>", 6)),
        ("<0x-1> as a word", TOKENS, replaced(-1, b"<0x-1>")),
        ("<0xG0>", TOKENS, replaced(-1, b"<0xG0>", 6)),
        ("too short", TOKENS, replaced(-1, b"<0", 6)),
        ("too long", TOKENS, replaced(-1, b"<0x100>", 6)),
        ("empty", TOKENS, replaced(-1, b"", 6)),
        ("a word marked as a byte", TOKENS, replaced(-1, b"hello", 6)),
        ("all marked as bytes", TOKENS, vocabulary_of(spm_tokens(), [6] * len(spm_tokens()))),
        ("two thousand", "tokenizer.ggml.token_type", vocabulary_of([b"w%d" % i for i in range(2000)], [6] * 2000)),
        ("in a bert vocabulary", "tokenizer.ggml.token_type", bert(200, [1] * 199 + [6])),
    ),
    *kind(
        "tokens that are the same",
        ("neighbours", TOKENS, replaced(-1, spm_tokens()[-1])),
        ("first and last", TOKENS, replaced(-1, b"<unk>")),
        ("in a BPE vocabulary", TOKENS, bpe([*WORDS, b"w7"])),
        ("the same up to a NUL", TOKENS, bpe([*WORDS, b"w7\0x"])),
        ("the name an empty one gets", TOKENS, bpe([*WORDS, b"", b"[EMPTY_40]"])),
        ("the name a NUL gets", TOKENS, bpe([*WORDS, b"[EMPTY_41]", b"\0x"])),
    ),
    *kind(
        "tokens added to every text",
        ("bos beyond a vocabulary of 1", "tokenizer.ggml.bos_token_id", both(bpe([b"a"]), add("bos"))),
        ("bos out of range", "tokenizer.ggml.bos_token_id", both(bpe(WORDS[:11], bos_token_id=11), add("bos"))),
        ("eos out of range", "tokenizer.ggml.eos_token_id", both(bpe(WORDS[:11], eos_token_id=99), add("eos"))),
        ("bert without cls", "tokenizer.ggml.bos_token_id", bert(100, seperator=3)),
        ("bert without sep", "tokenizer.ggml.seperator_token_id", bert(102, bos=3)),
        ("bert with sep out of range", "tokenizer.ggml.seperator_token_id", bert(102, bos=3, seperator=102)),
    ),
    *kind(
        "no weights",
        ("none", "tensor_count", lambda f: f.tensors.clear()),
        ("none, version 2", "tensor_count", both(lambda f: f.tensors.clear(), lambda f: setattr(f, "version", 2))),
        (
            "none, alignment 4096",
            "tensor_count",
            both(lambda f: f.tensors.clear(), lambda f: f.set("general.alignment", U32, 4096)),
        ),
        (
            "none, something behind",
            "tensor_count",
            both(lambda f: f.tensors.clear(), lambda f: setattr(f, "tail", b"x" * 99)),
        ),
        ("none, 512 blocks", "tensor_count", both(lambda f: f.tensors.clear(), numbers(block_count=512))),
    ),
]


def written(case: Case, folder: Path) -> Path:
    file = tiny_llama()
    case.change(file)
    return file.write(folder / "model.gguf")


def refusal(path: Path) -> InvalidModel:
    with pytest.raises(InvalidModel) as caught:
        check_loadable(path)
    return caught.value


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}: {case.name}")
def test_every_file_that_would_end_the_process_is_refused_by_its_field(case: Case, tmp_path: Path) -> None:
    error = refusal(written(case, tmp_path))
    assert error.field == case.field, str(error)


def test_every_kind_has_enough_cases() -> None:
    per_kind = Counter(case.kind for case in CASES)
    print(f"{len(CASES)} unloadable files of {len(per_kind)} kinds")
    assert {kind: n for kind, n in per_kind.items() if n < CASES_PER_KIND} == {}


def test_the_model_all_cases_start_from_is_loadable(tmp_path: Path) -> None:
    assert check_loadable(tiny_llama().write(tmp_path / "model.gguf")) == read_model(tmp_path / "model.gguf")


@pytest.mark.parametrize("rule", loadable.RULES, ids=lambda rule: rule.__name__)
def test_control_without_a_rule_its_files_are_accepted(
    rule: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted fault: one rule is forgotten. Then files that it refused are accepted."""
    before = [case for case in CASES if _accepted(case, tmp_path)]
    monkeypatch.setattr(loadable, "RULES", tuple(r for r in loadable.RULES if r is not rule))
    accepted = [case for case in CASES if _accepted(case, tmp_path)]
    print(f"without {rule.__name__} {len(accepted)} more files are accepted")
    assert before == []
    assert len(accepted) > 0


def _accepted(case: Case, folder: Path) -> bool:
    try:
        check_loadable(written(case, folder))
    except InvalidModel:
        return False
    return True


def test_equal_hashes_of_different_tokens_are_not_taken_for_a_repetition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted fault: a hash that calls every token the same. The tokens themselves decide."""
    monkeypatch.setattr(vocabulary, "hash", len, raising=False)
    check_loadable(tiny_llama().write(tmp_path / "model.gguf"))
    assert refusal(written(Case("", "", "", replaced(-1, b"<unk>")), tmp_path)).field == TOKENS


def test_a_large_vocabulary_is_sorted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "HASHES_IN_A_SET", 50)
    check_loadable(tiny_llama().write(tmp_path / "model.gguf"))
    assert refusal(written(Case("", "", "", replaced(-1, b"</s>")), tmp_path)).field == TOKENS


def test_a_dense_model_may_state_one_expert(tmp_path: Path) -> None:
    file = tiny_llama()
    both(numbers(expert_count=1), architecture("hunyuan-dense"))(file)
    check_loadable(file.write(tmp_path / "model.gguf"))


def test_tables_of_numbers_may_be_whole_numbers(tmp_path: Path) -> None:
    file = tiny_llama()
    file.tensors += [Tensor("d2t", (32,), 27), Tensor("blk.0.ffn_gate_tid2eid.weight", (2, 8), 26)]
    check_loadable(file.write(tmp_path / "model.gguf"))


def test_a_byte_may_be_spelled_by_itself(tmp_path: Path) -> None:
    """llama.cpp falls back to a token that is just the byte."""
    tokens = [token for token in spm_tokens() if token != b"<0x41>"]
    check_loadable(spm(tiny_llama(), [*tokens, b"A"]).write(tmp_path / "model.gguf"))
    assert refusal(spm(tiny_llama(), [*tokens, b"B"]).write(tmp_path / "model.gguf")).field == TOKENS


def test_bytes_that_no_text_has_may_be_missing(tmp_path: Path) -> None:
    file = tiny_llama()
    without(*(b"<0x%02X>" % byte for byte in (0xC0, 0xC1, *range(0xF5, 0x100))))(file)
    check_loadable(file.write(tmp_path / "model.gguf"))


def test_empty_tokens_are_told_apart(tmp_path: Path) -> None:
    file = tiny_llama()
    bpe([*WORDS, b"", b"", b"\0"])(file)
    check_loadable(file.write(tmp_path / "model.gguf"))
