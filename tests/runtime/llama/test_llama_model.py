"""Loading, what a model says about itself, and its vocabulary."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runtime.llama.context import Context, ContextOptions
from runtime.llama.errors import LlamaError, LoadFailed
from runtime.llama.model import Model

pytestmark = pytest.mark.weights


def test_facts_of_the_starter_model(model):
    assert (model.n_layer, model.n_embd, model.n_head, model.n_head_kv, model.n_ctx_train) == (30, 576, 9, 3, 8192)
    assert model.n_params == 134_515_008
    assert 90_000_000 < model.size_bytes < 100_000_000
    assert (model.n_swa, model.is_recurrent, model.is_hybrid, model.can_cut) == (0, False, False, True)
    assert (model.has_encoder, model.has_decoder) == (False, True)
    assert "Q4_1" in model.description
    assert model.meta("general.architecture") == "llama"
    assert model.meta("no.such.key") is None
    assert len(model.meta("tokenizer.chat_template") or "") > 300
    assert "<|im_start|>" in (model.chat_template() or "")
    assert model.chat_template("no-such-template") is None


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"not a model at all", "invalid magic characters"), (b"", "was not loaded: .+")],
    ids=["another file", "an empty file"],
)
def test_failed_loads_carry_llama_cpps_reason(tmp_path, content, message):
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    with pytest.raises(LoadFailed, match=f"broken.gguf was not loaded.*{message}|{message}"):
        Model.load(path)


def test_truncated_file_names_what_is_missing(tmp_path, starter_model):
    path = tmp_path / "short.gguf"
    with starter_model.open("rb") as source:
        path.write_bytes(source.read(4_000_000))
    with pytest.raises(LoadFailed, match="data is not within the file bounds, model is corrupted or incomplete"):
        Model.load(path)


def test_missing_file(tmp_path):
    with pytest.raises(LoadFailed, match=r"absent\.gguf was not loaded: .*No such file"):
        Model.load(tmp_path / "absent.gguf")


def test_path_need_not_be_ascii(tmp_path, starter_model):
    path = tmp_path / "modèle 模型 🦙.gguf"
    os.symlink(starter_model, path)
    with Model.load(path, vocab_only=True) as model:
        assert model.vocab.n_tokens == 49_152


def test_progress_rises_to_one(starter_model):
    seen: list[float] = []
    Model.load(starter_model, progress=lambda fraction: seen.append(fraction) or True).close()
    assert len(seen) > 5
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_load_can_be_cancelled_by_progress(starter_model):
    with pytest.raises(LoadFailed, match="the load was cancelled"):
        Model.load(starter_model, progress=lambda fraction: fraction < 0.5)


def test_what_progress_raises_comes_out(starter_model):
    def fail(_fraction: float) -> bool:
        raise ConnectionResetError("the service is gone")

    with pytest.raises(ConnectionResetError, match="the service is gone"):
        Model.load(starter_model, progress=fail)


def test_overrides_take_device_names(starter_model):
    with Model.load(starter_model, tensor_overrides=[("ffn_.*", "CPU")]) as model:
        assert model.n_layer == 30
    with pytest.raises(LlamaError, match=r"no device is called 'TPU'; there are .*CPU"):
        Model.load(starter_model, tensor_overrides=[("ffn_.*", "TPU")])


def test_close_closes_contexts_first_and_may_be_repeated(starter_model):
    model = Model.load(starter_model)
    context = Context(model, ContextOptions(n_ctx=256, threads=1))
    piece = model.vocab.piece(504)
    model.close()
    model.close()
    with pytest.raises(LlamaError, match="the context is closed"):
        context.decode(1)
    with pytest.raises(LlamaError, match="is closed"):
        model.chat_template()
    with pytest.raises(LlamaError, match="its model was closed"):
        model.vocab.tokenize("x", add_special=False, parse_special=False)
    assert model.vocab.piece(504) == piece
    with pytest.raises(LlamaError, match="is closed"):
        Context(model, ContextOptions(n_ctx=256))


# vocabulary


def tokens(model: Model, text: str | bytes, *, special: bool = False) -> list[int]:
    return model.vocab.tokenize(text, add_special=False, parse_special=special)


@pytest.mark.parametrize(
    "text",
    [
        "The river turns the wheel.",
        " leading and trailing ",
        "a\0b\0\0",
        "naïve façade, 水車, 🦙🦙, \u200b",
        "line\r\nline\n\n\ttab",
        "x" * 5000,
        "",
    ],
    ids=["plain", "spaces", "NUL bytes", "not ASCII", "line breaks", "long", "empty"],
)
def test_no_text_is_lost(model, text):
    ids = tokens(model, text)
    assert b"".join(model.vocab.piece(i) for i in ids) == text.encode()
    assert model.vocab.detokenize(ids) == text.encode()
    assert all(type(i) is int for i in ids)


def test_bytes_that_are_not_utf8_do_not_end_the_process(model):
    for data in (b"\xff\xfe", b"ok \xe6\xb0", b"\xed\xa0\x80", bytes(range(128, 256))):
        assert tokens(model, data)
    assert tokens(model, "\ud800") == tokens(model, "?")


def test_retry_when_the_first_guess_is_too_small(model, monkeypatch):
    """Planted fault: llama.cpp answers once that it wanted more room."""
    text, calls = "one two three", []
    real = model.vocab._tokenize

    def stingy(pointer, data, n, out, size, add, parse):
        calls.append(size)
        return -40 if len(calls) == 1 else real(pointer, data, n, out, size, add, parse)

    monkeypatch.setattr(model.vocab, "_tokenize", stingy)
    assert model.vocab.detokenize(tokens(model, text)) == text.encode()
    assert calls[1] == 40
    monkeypatch.setattr(model.vocab, "_tokenize", lambda *_: -(2**31))
    with pytest.raises(LlamaError, match="could not tokenize 13 bytes"):
        tokens(model, text)


def test_control_literals_are_exactly_what_parse_special_changes(model):
    vocab = model.vocab
    literals = vocab.control_literals()
    assert literals[b"<|im_start|>"] == 1
    assert len(literals) > 10
    for text, token in literals.items():
        assert tokens(model, text, special=True) == [token]
        plain = tokens(model, text)
        assert token not in plain
        assert vocab.detokenize(plain) == text
        assert vocab.attr(token) & 0b1001
    # Control: the text of an ordinary token is not among them and tokenizes the same either way.
    word = vocab.piece(tokens(model, " wheel")[0])
    assert word not in literals
    assert tokens(model, word) == tokens(model, word, special=True)


def test_special_pieces_and_end_tokens(model):
    vocab = model.vocab
    start = vocab.control_literals()[b"<|im_start|>"]
    assert vocab.piece(start) == b"<|im_start|>"
    assert vocab.piece(start, special=False) == b""
    assert vocab.is_control(start)
    assert not vocab.is_control(504)
    assert vocab.eos in vocab.eog_ids
    assert vocab.is_eog(vocab.eos)
    assert not vocab.is_eog(504)
    assert vocab.kind == "bpe"
    assert (vocab.add_bos, vocab.add_eos) == (False, False)


def test_pieces_are_those_of_the_native_call(model):
    vocab = model.vocab
    pieces = vocab.pieces
    assert len(pieces) == vocab.n_tokens
    assert all(pieces[i] == vocab.detokenize([i]) for i in range(0, vocab.n_tokens, 997))


@pytest.mark.parametrize("token", [-1, 49_152, 10**9])
def test_tokens_outside_the_vocabulary_are_refused(model, token):
    """llama.cpp would throw through ctypes and end the process."""
    for use in (model.vocab.piece, model.vocab.attr, model.vocab.is_control, lambda t: model.vocab.detokenize([5, t])):
        with pytest.raises(LlamaError, match="outside the vocabulary of 49152"):
            use(token)
    assert not model.vocab.is_eog(token)


def other_model(variable: str) -> Path:
    path = Path(os.environ.get(variable, ""))
    assert path.is_file(), f"set {variable} to a GGUF file"
    return path


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["HEADRACE_TEST_GEMMA", "HEADRACE_TEST_QWEN"])
def test_other_vocabularies_lose_nothing_and_name_their_literals(variable):
    with Model.load(other_model(variable), vocab_only=True) as model:
        for text in ("Hello there", "naïve 水車 🦙", "a\0b", "tab\tnew\nline"):
            ids = tokens(model, text)
            assert model.vocab.detokenize(ids) == text.encode()
        assert tokens(model, b"\xff\xfe bytes")
        n_single = 0
        for text, token in model.vocab.control_literals().items():
            assert token not in tokens(model, text)
            n_single += tokens(model, text, special=True) == [token]
        assert n_single > 5
