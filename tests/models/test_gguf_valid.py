"""Extreme but valid files: everything at a limit, or rarely seen, opens and says what it holds."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from gguf_files import (
    ARRAY,
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    STRING,
    U8,
    U16,
    U32,
    U64,
    Gguf,
    Tensor,
    scalar,
    spm,
    spm_tokens,
    spm_types,
    string,
    tiny_llama,
)

from models import limits
from models.gguf import ModelInfo, check_loadable, read_model

Build = Callable[[], Gguf]
Check = Callable[[ModelInfo], bool]


def version_2() -> Gguf:
    file = tiny_llama()
    file.version = 2
    return file


def longest_strings() -> Gguf:
    file = tiny_llama().text("x.text", b"s" * limits.GGUF_STRING_BYTES)
    return file.text("k" * limits.GGUF_KEY_BYTES, "v").text("general.name", "n" * limits.GGUF_STRING_BYTES)


def most_keys() -> Gguf:
    file = tiny_llama()
    for number in range(limits.GGUF_KEYS - len(file.entries)):
        file.set(f"x.{number}", U8, 1)
    return file


def every_value_type() -> Gguf:
    file = tiny_llama()
    for code in (U8, I8, U16, I16, U32, I32, F32, BOOL, U64, I64, F64):
        file.set(f"x.scalar.{code}", code, 1).list(f"x.array.{code}", code, [1, 0, 1])
    file.set("x.min", I64, -(2**63)).set("x.max", U64, 2**64 - 1).set("x.inf", F64, float("inf"))
    return file.text("x.string", "").list("x.array.string", STRING, ["", "é", "\n"])


def largest_array() -> Gguf:
    payload = struct.pack("<IQ", U8, limits.GGUF_ARRAY_ELEMENTS) + bytes(limits.GGUF_ARRAY_ELEMENTS)
    return tiny_llama().raw("x.bytes", ARRAY, payload)


def empty_arrays() -> Gguf:
    file = tiny_llama()
    for code in (U8, F32, BOOL, U64, F64, STRING):
        file.list(f"x.{code}", code, [])
    return file


def many_tensors() -> Gguf:
    file = tiny_llama()
    file.tensors += [Tensor(f"extra.{number}", (8,)) for number in range(5000)]
    return file


def four_dimensions() -> Gguf:
    file = tiny_llama()
    file.tensors.append(Tensor("conv.weight", (2, 3, 5, 7)))
    return file


def one_element() -> Gguf:
    file = tiny_llama()
    file.tensors += [Tensor("one", (1,)), Tensor("ones", (1, 1, 1, 1)), Tensor("half", (1,), 1)]
    return file


def shared_last_bytes() -> Gguf:
    """The file ends with the last tensor, without the padding behind it."""
    file = tiny_llama()
    file.tensors.append(Tensor("last", (9,)))
    file.cut = 28
    return file


def long_tensor_name() -> Gguf:
    file = tiny_llama()
    file.tensors.append(Tensor("n" * 63, (8,)))
    return file


def foreign_names() -> Gguf:
    file = tiny_llama().text("general.name", "Стрела 箭 🏹").text("x.ключ", "значение")
    file.tensors.append(Tensor("тензор.вес", (8,)))
    return file


def quantized_mix() -> Gguf:
    file = tiny_llama(n_embd=256, n_ff=256)
    for tensor, code in zip(file.tensors[3:7], (2, 3, 8, 12), strict=True):
        tensor.type = code
    return file


def no_tensors() -> Gguf:
    file = tiny_llama()
    file.tensors = []
    return file


def per_layer_lists() -> Gguf:
    file = tiny_llama(n_layers=3)
    file.list("llama.attention.head_count", U32, [4, 4, 4]).list("llama.attention.head_count_kv", I32, [4, 2, 1])
    return file.list("llama.feed_forward_length", U32, [64, 32, 16])


def large_vocabulary() -> Gguf:
    tokens = spm_tokens(n_words=150_000)
    file = spm(tiny_llama(), tokens)
    file.tensors[0].dims = (32, len(tokens))
    return file


def vocabulary_of_bytes() -> Gguf:
    """Single bytes as tokens, most of them no UTF-8; two of them have no token text at all for C code."""
    tokens = [b"<unk>", b"<s>", b"</s>", *(bytes((byte,)) for byte in range(1, 256)), b"<0x00>", b""]
    file = spm(tiny_llama(), tokens, spm_types(tokens))
    file.tensors[0].dims = (32, len(tokens))
    return file


def integer_scores() -> Gguf:
    return tiny_llama().list("tokenizer.ggml.scores", I32, [-number for number in range(299)])


def special_tokens_out_of_range() -> Gguf:
    file = tiny_llama().set("tokenizer.ggml.padding_token_id", U32, 2**32 - 1)
    return file.set("tokenizer.ggml.eos_token_id", U32, 299)


def zero_strings() -> Gguf:
    return tiny_llama().text("general.name", "").text("general.license", "").text("tokenizer.chat_template", "")


def name_with_controls() -> Gguf:
    return tiny_llama().text("general.name", b"a\0b\x1b[31mred\xff")


def many_templates() -> Gguf:
    file = tiny_llama().text("tokenizer.chat_template", "t" * limits.TEMPLATE_BYTES)
    file.text("tokenizer.chat_template.huge", "t" * (limits.TEMPLATE_BYTES + 1))
    for number in range(40):
        file.text(f"tokenizer.chat_template.t{number}", "t" * limits.TEMPLATE_BYTES)
    return file


def metadata_in_bulk() -> Gguf:
    file = tiny_llama()
    for number in range(6):
        file.text(f"x.{number}", bytes(limits.GGUF_STRING_BYTES))
    return file


def something_behind() -> Gguf:
    file = tiny_llama()
    file.tail = b"GGUF" * 1000
    return file


def keys_in_reverse() -> Gguf:
    file = tiny_llama()
    file.entries = dict(reversed(file.entries.items()))
    return file


def string_across_windows() -> Gguf:
    """Strings around the size of the reader's window, in an array and alone."""
    sizes = [limits.MIB - 8, limits.MIB - 1, limits.MIB, limits.MIB + 1, 3 * limits.MIB, 0]
    return tiny_llama().list("x.long", STRING, [b"z" * size for size in sizes]).text("x.after", "still here")


FILES: dict[str, tuple[Build, Check]] = {
    "version 2": (version_2, lambda i: i.version == 2),
    "longest strings": (longest_strings, lambda i: len(i.name or "") == 200),
    "most keys": (most_keys, lambda i: i.n_layers == 1),
    "every value type": (every_value_type, lambda i: i.n_layers == 1),
    "largest array": (largest_array, lambda i: i.n_layers == 1),
    "empty arrays": (empty_arrays, lambda i: i.n_layers == 1),
    "5,000 tensors more": (many_tensors, lambda i: len(i.tensors) == 5011),
    "four dimensions": (four_dimensions, lambda i: i.tensors[-1].dims == (2, 3, 5, 7) and i.tensors[-1].n_bytes == 840),
    "one element": (one_element, lambda i: [t.n_elements for t in i.tensors[-3:]] == [1, 1, 1]),
    "no padding at the end": (shared_last_bytes, lambda i: i.tensors[-1].offset + 36 == i.file_bytes),
    "tensor name of 63 bytes": (long_tensor_name, lambda i: i.tensors[-1].name == "n" * 63),
    "names in other scripts": (
        foreign_names,
        lambda i: i.name == "Стрела 箭 🏹" and i.tensors[-1].name == "тензор.вес",
    ),
    "alignment 8": (lambda: tiny_llama(alignment=8), lambda i: i.alignment == 8),
    "alignment 4096": (lambda: tiny_llama(alignment=4096), lambda i: all(t.offset % 4096 == 0 for t in i.tensors)),
    "512 blocks": (lambda: tiny_llama(n_layers=512), lambda i: i.n_layers == 512 and len(i.tensors) == 2 + 9 * 512),
    "a mix of types": (quantized_mix, lambda i: set(i.mix) == {"F32", "Q4_0", "Q4_1", "Q8_0", "Q4_K"}),
    "no tensors": (no_tensors, lambda i: i.n_params == 0 and i.bits_per_weight == 0 and i.tensors == ()),
    "one number for each layer": (per_layer_lists, lambda i: i.n_heads_kv == (4, 2, 1) and i.n_ff == (64, 32, 16)),
    "150,000 tokens": (large_vocabulary, lambda i: i.n_vocab == 150_259),
    "tokens that are single bytes": (vocabulary_of_bytes, lambda i: i.n_vocab == 260),
    "whole numbers as scores": (integer_scores, lambda i: i.n_vocab == 299),
    "special tokens that do not exist": (
        special_tokens_out_of_range,
        lambda i: i.tokenizer.padding is i.tokenizer.eos is None,
    ),
    "empty strings": (zero_strings, lambda i: i.name == "" and i.chat_templates == {"default": ""}),
    "a name with control characters": (name_with_controls, lambda i: i.name == "a\\x00b\\x1b[31mred\ufffd"),
    "42 templates": (many_templates, lambda i: len(i.chat_templates) == 16 and len(i.oversized_templates) == 26),
    "60 MB of text": (metadata_in_bulk, lambda i: i.file_bytes > 60 * 10**6),
    "something behind the tensors": (something_behind, lambda i: i.n_params == 18_880),
    "keys in reverse": (keys_in_reverse, lambda i: i.n_params == 18_880),
    "strings across windows": (string_across_windows, lambda i: i.n_params == 18_880),
    "largest context": (
        lambda: tiny_llama().set("llama.context_length", U32, 2**32 - 1),
        lambda i: i.context_length == 2**32 - 1,
    ),
    "largest numbers of heads": (
        lambda: tiny_llama(n_embd=2048, n_heads=1024, n_heads_kv=1),
        lambda i: i.n_heads == 1024 and i.head_dim_k == 2,
    ),
}
# Read as models; nothing can be done with them in llama.cpp, and `check_loadable` says so.
UNLOADABLE = {"no tensors"}


@pytest.mark.parametrize("name", FILES)
def test_an_extreme_file_opens(name: str, tmp_path: Path) -> None:
    build, check = FILES[name]
    path = build().write(tmp_path / "model.gguf")
    info = read_model(path)
    assert check(info), info
    if name not in UNLOADABLE:
        assert check_loadable(path) == info


def test_there_are_enough_extreme_files() -> None:
    print(f"{len(FILES)} extreme files")
    assert len(FILES) >= 20


def test_numbers_are_python_numbers(tmp_path: Path) -> None:
    """Sizes are added and multiplied by others: they must never wrap."""
    info = read_model(per_layer_lists().write(tmp_path / "model.gguf"))
    assert isinstance(info.n_heads_kv, tuple)
    for number in (info.n_params, info.size_bytes, info.n_layers, *info.n_heads_kv, *info.tensors[0].dims):
        assert type(number) is int
    assert type(info.rope.freq_base) is float


def test_a_value_is_read_as_written(tmp_path: Path) -> None:
    """Control: another number in the same place of the file is another fact."""
    path = tiny_llama().write(tmp_path / "model.gguf")
    raw = path.read_bytes()
    at = raw.index(string("llama.context_length")) + len(string("llama.context_length")) + 4
    assert raw[at : at + 4] == scalar(U32, 512)
    path.write_bytes(raw[:at] + scalar(U32, 777) + raw[at + 4 :])
    assert read_model(path).context_length == 777
