"""Real files: what is known of them, and what reading them costs."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest
from gguf_files import spm, spm_tokens, tiny_llama
from peak_memory import cost

from models import limits
from models.gguf import ModelInfo, check_loadable, read_model

MEMORY_BYTES = 64 * limits.MIB


def named(variable: str) -> Path:
    path = Path(os.environ.get(variable, ""))
    assert path.is_file(), f"{variable} must be the path of the model file"
    return path


def traced(path: Path, *, loadable: bool = False) -> tuple[ModelInfo, int]:
    """The facts, and the peak of what was allocated for them."""
    tracemalloc.start()
    try:
        info = check_loadable(path) if loadable else read_model(path)
        return info, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.weights
def test_the_starter_model(starter_model: Path) -> None:
    info = check_loadable(starter_model)
    assert (info.architecture, info.file_type, info.license) == ("llama", "Q4_1", "apache-2.0")
    assert (info.n_params, info.size_bytes, info.file_bytes) == (134_515_008, 96_576_768, 98_362_432)
    assert (info.n_layers, info.n_embd, info.n_heads, info.n_heads_kv, info.head_dim_k) == (30, 576, 9, 3, 64)
    assert (info.context_length, info.n_vocab, info.rope.freq_base) == (8192, 49_152, 100_000.0)
    assert (info.tokenizer.model, info.tokenizer.pre, info.tokenizer.bos, info.tokenizer.eos) == (
        "gpt2",
        "smollm",
        1,
        2,
    )
    assert info.chat_templates["default"].startswith("{% for message in messages %}")
    assert list(info.mix) == ["Q4_1", "Q8_0", "F32"]
    assert round(info.bits_per_weight, 2) == 5.74
    assert info.tensors[-1].offset + info.tensors[-1].n_bytes <= info.file_bytes


@pytest.mark.weights
def test_the_starter_models_tokens(starter_model: Path) -> None:
    vocabulary = read_model(starter_model, tokenizer=True).tokenizer.vocabulary
    assert vocabulary is not None
    assert vocabulary.tokens[:3] == (b"<|endoftext|>", b"<|im_start|>", b"<|im_end|>")
    assert len(vocabulary.tokens) == len(vocabulary.types) == 49_152
    assert vocabulary.scores == ()


@pytest.mark.weights
def test_reading_the_starter_model_costs_little_memory(starter_model: Path) -> None:
    peaks = [traced(starter_model)[1], traced(starter_model, loadable=True)[1]]
    print(f"read {peaks[0] / limits.MIB:.1f} MiB, checked {peaks[1] / limits.MIB:.1f} MiB")
    assert 0 < max(peaks) < MEMORY_BYTES


def test_checking_the_largest_vocabulary_costs_little_memory(tmp_path: Path) -> None:
    """Two million tokens are compared with each other."""
    tokens = spm_tokens(n_words=limits.GGUF_VOCAB_MAX - 259)
    file = spm(tiny_llama(), tokens).drop("tokenizer.ggml.scores")
    file.tensors[0].dims = (1, 1)
    path = file.write(tmp_path / "large.gguf")
    assert read_model(path).n_vocab == len(tokens) == limits.GGUF_VOCAB_MAX
    refused, growth = cost("check_loadable", tmp_path)
    print(f"{len(tokens):,} tokens, memory grew by {growth / limits.MIB:.1f} MiB")
    assert refused == 0
    assert limits.MIB < growth < MEMORY_BYTES


@pytest.mark.slow
@pytest.mark.weights
def test_a_real_model_with_a_sliding_window() -> None:
    info, peak = traced(named("HEADRACE_TEST_GEMMA"), loadable=True)
    assert (info.architecture, info.file_type, info.n_vocab, info.chat_templates) == ("gemma3", "Q4_K_M", 262_144, {})
    assert (info.n_params, info.n_heads, info.n_heads_kv, info.head_dim_k) == (268_098_176, 4, 1, 256)
    assert info.attention.sliding_window == 512
    assert info.attention.window_layers == ((True,) * 5 + (False,)) * 3
    assert peak < MEMORY_BYTES


@pytest.mark.slow
@pytest.mark.weights
def test_a_real_model_with_a_large_vocabulary() -> None:
    info, peak = traced(named("HEADRACE_TEST_QWEN"), loadable=True)
    assert (info.architecture, info.file_type, info.n_vocab) == ("qwen2", "Q4_K_M", 151_936)
    assert (info.n_params, info.n_heads, info.n_heads_kv, info.license) == (630_167_424, 14, 2, None)
    assert "tools" in info.chat_templates["default"]
    assert peak < MEMORY_BYTES
