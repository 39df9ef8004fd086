"""What ModelInfo says about families of models, from headers that hold only what matters here."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf_files import ARRAY, BOOL, F32, I32, STRING, U32, Gguf, Tensor, array, tiny_llama

from models import limits
from models.errors import InvalidModel
from models.gguf import ModelInfo, at_layer, read_model


def family(name: str, n_layers: int = 6) -> Gguf:
    """A header of that family without weights, to which a test adds its keys."""
    file = Gguf().text("general.architecture", name).set(f"{name}.block_count", U32, n_layers)
    file.set(f"{name}.context_length", U32, 4096).set(f"{name}.embedding_length", U32, 64)
    return file.set(f"{name}.attention.head_count", U32, 8)


def read(file: Gguf, folder: Path) -> ModelInfo:
    return read_model(file.write(folder / "model.gguf"))


def test_labels_and_sizes(tmp_path: Path) -> None:
    file = tiny_llama().text("general.license", "apache-2.0").text("general.size_label", "19K")
    info = read(file.set("general.file_type", U32, 1024 + 15), tmp_path)
    assert (info.architecture, info.name, info.license, info.size_label) == ("llama", "Tiny", "apache-2.0", "19K")
    assert (info.file_type, info.version, info.alignment) == ("Q4_K_M", 3, 32)
    assert (info.n_params, info.size_bytes, info.bits_per_weight) == (18_880, 75_520, 32.0)
    assert info.file_bytes == (tmp_path / "model.gguf").stat().st_size
    assert (info.n_vocab, info.context_length, info.n_embd, info.n_ff) == (299, 512, 32, 64)


def test_the_file_type_is_taken_from_the_weights_when_it_is_not_stated(tmp_path: Path) -> None:
    file = tiny_llama(n_embd=256, n_ff=256).drop("general.file_type")
    for tensor in file.tensors:
        if "norm" not in str(tensor.name):
            tensor.type = 12
    info = read(file, tmp_path)
    assert info.file_type == "Q4_K"
    assert list(info.mix) == ["Q4_K", "F32"]
    assert info.mix["F32"].n_tensors == 3
    assert 4.5 < info.bits_per_weight < 4.6
    assert read(tiny_llama().set("general.file_type", U32, 999), tmp_path).file_type == "type 999"


def test_tensors_say_where_their_bytes_are(tmp_path: Path) -> None:
    file = tiny_llama()
    marks = [bytes((number + 1,)) * tensor.n_bytes for number, tensor in enumerate(file.tensors)]
    for tensor, data in zip(file.tensors, marks, strict=True):
        tensor.data = data
    info = read(file, tmp_path)
    raw = (tmp_path / "model.gguf").read_bytes()
    assert [raw[t.offset : t.offset + t.n_bytes] for t in info.tensors] == marks


def test_key_value_heads_default_to_heads(tmp_path: Path) -> None:
    info = read(family("llama"), tmp_path)
    assert (info.n_heads, info.n_heads_kv, info.head_dim_k, info.head_dim_v) == (8, 8, 8, 8)
    assert not info.attention.is_grouped


def test_grouped_heads_of_each_layer(tmp_path: Path) -> None:
    file = family("llama", 3).list("llama.attention.head_count_kv", I32, [8, 4, 1])
    info = read(file, tmp_path)
    assert [info.n_heads_kv_at(layer) for layer in range(3)] == [8, 4, 1]
    assert info.attention.is_grouped
    assert at_layer(info.n_heads, 2) == 8


def test_multi_head_latent_attention(tmp_path: Path) -> None:
    file = family("deepseek2").set("deepseek2.attention.head_count_kv", U32, 1)
    for key, value in {
        "key_length": 576,
        "value_length": 512,
        "key_length_mla": 192,
        "value_length_mla": 128,
        "kv_lora_rank": 512,
    }.items():
        file.set(f"deepseek2.attention.{key}", U32, value)
    attention = read(file, tmp_path).attention
    assert attention.is_mla
    assert (attention.key_length, attention.value_length, attention.kv_lora_rank) == (576, 512, 512)
    assert (attention.key_length_mla, attention.value_length_mla) == (192, 128)
    assert not read(family("llama"), tmp_path).attention.is_mla


WINDOWS = {
    "gemma3": (True, True, True, True, True, False),
    "gemma2": (True, False, True, False, True, False),
    "cohere2": (True, True, True, False, True, True),
    "modern-bert": (False, True, True, False, True, True),
    "qwen2": None,
}


@pytest.mark.parametrize("name", WINDOWS)
def test_layers_with_a_sliding_window(name: str, tmp_path: Path) -> None:
    """The family's own pattern, unless the file has one."""
    file = family(name).set(f"{name}.attention.sliding_window", U32, 512)
    attention = read(file, tmp_path).attention
    assert attention.sliding_window == 512
    assert attention.window_layers == WINDOWS[name]
    file.list(f"{name}.attention.sliding_window_pattern", BOOL, [1, 1, 0, 0, 1, 0])
    assert read(file, tmp_path).attention.window_layers == (True, True, False, False, True, False)
    file.set(f"{name}.attention.sliding_window_pattern", U32, 2)
    first = WINDOWS[name] is None or WINDOWS[name][0]
    assert read(file, tmp_path).attention.window_layers == (first, not first) * 3


def test_a_window_of_zero_or_one_that_is_not_applied_is_none(tmp_path: Path) -> None:
    for name, window in (("gemma3", 0), ("phi3", 2047)):
        attention = read(family(name).set(f"{name}.attention.sliding_window", U32, window), tmp_path).attention
        assert (attention.sliding_window, attention.window_layers) == (None, None)


def test_a_family_may_have_a_window_its_file_does_not_name(tmp_path: Path) -> None:
    assert read(family("gemma2"), tmp_path).attention.sliding_window == 4096
    assert read(family("gemma3"), tmp_path).attention.sliding_window is None


def test_experts(tmp_path: Path) -> None:
    file = family("qwen3moe").set("qwen3moe.expert_count", U32, 128).set("qwen3moe.expert_used_count", U32, 8)
    experts = read(file.set("qwen3moe.expert_shared_count", U32, 1), tmp_path).experts
    assert experts is not None
    assert (experts.count, experts.used, experts.shared) == (128, 8, 1)
    assert read(family("llama"), tmp_path).experts is None


def test_recurrent_families_have_state_instead_of_heads(tmp_path: Path) -> None:
    file = family("mamba2").set("mamba2.attention.head_count", U32, 0).set("mamba2.ssm.state_size", U32, 128)
    info = read(file.set("mamba2.ssm.conv_kernel", U32, 4), tmp_path)
    assert info.recurrent is not None
    assert (info.recurrent.state_size, info.recurrent.conv_kernel, info.recurrent.layers) == (128, 4, (True,) * 6)
    assert (info.n_heads, info.n_heads_kv, info.head_dim_k) == (0, 0, 0)
    assert read(family("mamba").drop("mamba.attention.head_count"), tmp_path).n_heads == 0
    assert read(family("llama"), tmp_path).recurrent is None


def test_hybrid_families_tell_their_recurrent_layers(tmp_path: Path) -> None:
    file = family("lfm2").list("lfm2.attention.head_count_kv", U32, [0, 0, 4, 0, 4, 0])
    recurrent = read(file, tmp_path).recurrent
    assert recurrent is not None
    assert recurrent.layers == (True, True, False, True, False, True)
    by_interval = read(family("qwen3next"), tmp_path).recurrent
    assert by_interval is not None
    assert by_interval.layers == (True, True, True, False, True, True)
    file = family("qwen35").set("qwen35.full_attention_interval", U32, 2).set("qwen35.nextn_predict_layers", U32, 1)
    with_drafts = read(file, tmp_path).recurrent
    assert with_drafts is not None
    assert with_drafts.layers == (True, False, True, False, True, False)
    stated = read(file.list("qwen35.attention.recurrent_layers", BOOL, [0, 1, 1, 1, 0, 0]), tmp_path).recurrent
    assert stated is not None
    assert stated.layers == (False, True, True, True, False, False)


def test_rope(tmp_path: Path) -> None:
    file = family("llama").set("llama.rope.freq_base", F32, 500_000.0).text("llama.rope.scaling.type", "yarn")
    file.set("llama.rope.scaling.factor", F32, 4.0).set("llama.rope.scaling.original_context_length", U32, 1024)
    rope = read(file.set("llama.rope.dimension_count", U32, 8), tmp_path).rope
    assert (rope.freq_base, rope.scaling, rope.factor, rope.original_context) == (500_000.0, "yarn", 4.0, 1024)
    assert rope.dimensions == 8
    assert read(family("llama").set("llama.rope.scale_linear", F32, 2.0), tmp_path).rope.factor == 2.0


def test_tokenizer_facts(tmp_path: Path) -> None:
    file = tiny_llama().set("tokenizer.ggml.eot_token_id", U32, 7).raw("tokenizer.ggml.add_bos_token", BOOL, b"\0")
    tokenizer = read(file.text("tokenizer.ggml.pre", "default"), tmp_path).tokenizer
    assert (tokenizer.model, tokenizer.pre, tokenizer.n_tokens) == ("llama", "default", 299)
    assert (tokenizer.bos, tokenizer.eos, tokenizer.eot, tokenizer.unknown) == (1, 2, 7, None)
    assert (tokenizer.add_bos, tokenizer.add_eos) == (False, None)
    assert tokenizer.vocabulary is None


def test_tokenizer_arrays_are_made_on_request(tmp_path: Path) -> None:
    path = tiny_llama().list("tokenizer.ggml.scores", F32, [-n / 2 for n in range(299)]).write(tmp_path / "model.gguf")
    vocabulary = read_model(path, tokenizer=True).tokenizer.vocabulary
    assert vocabulary is not None
    assert vocabulary.tokens[:5] == (b"<unk>", b"<s>", b"</s>", b"<0x00>", b"<0x01>")
    assert len(vocabulary.tokens) == len(vocabulary.scores) == len(vocabulary.types) == 299
    assert vocabulary.types[:4] == (2, 3, 3, 6)
    assert vocabulary.scores[298] == -149.0


def test_the_vocabulary_size_of_a_file_without_tokens_is_the_stated_one(tmp_path: Path) -> None:
    info = read(family("rwkv7").set("rwkv7.vocab_size", U32, 65_536), tmp_path)
    assert (info.n_vocab, info.tokenizer.model) == (65_536, None)


def test_chat_templates_by_name(tmp_path: Path) -> None:
    file = tiny_llama().text("tokenizer.chat_template.tool_use", "T").text("tokenizer.chat_template", "D")
    file.raw("tokenizer.chat_templates", ARRAY, array(STRING, ["tool_use"]))
    file.text("tokenizer.chat_template.huge", "h" * (limits.TEMPLATE_BYTES + 1))
    info = read(file, tmp_path)
    assert info.chat_templates == {"default": "D", "tool_use": "T"}
    assert info.oversized_templates == {"huge": limits.TEMPLATE_BYTES + 1}
    assert read(tiny_llama(), tmp_path).chat_templates == {}


def test_embedding_models(tmp_path: Path) -> None:
    file = family("bert").set("bert.pooling_type", U32, 2).raw("bert.attention.causal", BOOL, b"\0")
    info = read(file, tmp_path)
    assert (info.pooling, info.attention.causal) == (2, False)
    assert read(family("llama"), tmp_path).attention.causal


def test_an_unknown_family_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    file = family("novel").drop("novel.attention.head_count")
    assert read(file, tmp_path).n_heads == 0


def test_what_the_file_says_reaches_a_message_without_control_characters(tmp_path: Path) -> None:
    file = tiny_llama()
    file.tensors.append(Tensor("a\x1b[2Jb", (0,)))
    with pytest.raises(InvalidModel) as caught:
        read(file, tmp_path)
    assert caught.value.field == "a\\x1b[2Jb.dims"
    assert str(caught.value).isprintable()
