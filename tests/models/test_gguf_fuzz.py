"""Damaged headers: whatever is done to the bytes, the file is read or an InvalidModel says why not. Nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from gguf_files import F32, U32, Gguf, Tensor, spm, tiny_llama
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.errors import InvalidModel
from models.gguf import check_loadable, read_model
from models.header.cursor import Cursor


def small() -> Gguf:
    """Every kind of entry in a few hundred bytes."""
    file = tiny_llama()
    spm(file, [b"<unk>", b"<s>", b"</s>", b"<0x0A>", b""])
    file.text("tokenizer.chat_template", "{{ x }}").set("llama.rope.scaling.factor", F32, 2.0)
    file.list("llama.attention.head_count_kv", U32, [2])
    file.tensors = [Tensor("a.weight", (32,)), Tensor("b.weight", (32, 2), 8), Tensor("c.weight", (1, 2, 3, 4), 1)]
    return file


WHOLE = small().build()
HEADER_BYTES = len(small().header())
# Bytes behind the last tensor, 24 halves, that only fill it up to the alignment.
PADDING = 64 - 48
SPECIAL = [0, 1, 2, 3, 4, 8, 9, 13, 31, 32, 255, 256, 2**31 - 1, 2**31, 2**32 - 1, 2**47, 2**48, 2**63, 2**64 - 1]


def refusal(read: Callable[[Path], object], path: Path) -> InvalidModel | None:
    """Why the file was refused, if it was; any other exception is the bug these tests look for."""
    try:
        read(path)
    except InvalidModel as error:
        return error
    return None


def outcome(path: Path) -> str:
    error = refusal(read_model, path)
    if error is None:
        refusal(check_loadable, path)
        return "read"
    assert error.field
    assert error.reason
    assert error.field.isprintable()
    assert str(path.parent) not in str(error)
    return "refused"


def test_the_file_all_damage_is_done_to_is_read(tmp_path: Path) -> None:
    path = tmp_path / "whole.gguf"
    path.write_bytes(WHOLE)
    assert outcome(path) == "read"


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    seen: Counter[str] = Counter()
    for length in range(len(WHOLE)):
        path.write_bytes(WHOLE[:length])
        seen[outcome(path)] += 1
    print(f"{len(WHOLE)} cuts, {HEADER_BYTES} of them in the header: {dict(seen)}")
    assert seen == {"refused": len(WHOLE) - PADDING, "read": PADDING}


def test_every_byte_of_a_header_turned_over(tmp_path: Path) -> None:
    path = tmp_path / "flip.gguf"
    seen: Counter[str] = Counter()
    for position in range(HEADER_BYTES):
        for mask in (0x01, 0x80, 0xFF):
            damaged = bytearray(WHOLE)
            damaged[position] ^= mask
            path.write_bytes(damaged)
            seen[outcome(path)] += 1
    print(f"{sum(seen.values())} flips: {dict(seen)}")
    assert seen["refused"] > HEADER_BYTES
    assert seen["read"] > 0


Damage = tuple[str, int, int]
DAMAGE = st.one_of(
    st.tuples(st.just("byte"), st.integers(0, HEADER_BYTES - 1), st.integers(0, 255)),
    st.tuples(st.just("u32"), st.integers(0, HEADER_BYTES - 4), st.sampled_from(SPECIAL)),
    st.tuples(st.just("u64"), st.integers(0, HEADER_BYTES - 8), st.sampled_from(SPECIAL)),
    st.tuples(st.just("remove"), st.integers(0, HEADER_BYTES - 1), st.integers(1, 64)),
    st.tuples(st.just("repeat"), st.integers(0, HEADER_BYTES - 1), st.integers(1, 64)),
    st.tuples(st.just("cut"), st.integers(0, HEADER_BYTES - 1), st.just(0)),
)


def damaged(steps: list[Damage]) -> bytes:
    data = bytearray(WHOLE)
    for kind, at, value in steps:
        if kind == "cut":
            del data[at:]
        elif kind == "remove":
            del data[at : at + value]
        elif kind == "repeat":
            data[at:at] = data[at : at + value]
        else:
            size = {"byte": 1, "u32": 4, "u64": 8}[kind]
            data[at : at + size] = (value % 256**size).to_bytes(size, "little")
    return bytes(data)


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(DAMAGE, min_size=1, max_size=6))
def test_random_damage_is_read_or_refused(tmp_path: Path, steps: list[Damage]) -> None:
    path = tmp_path / "damaged.gguf"
    path.write_bytes(damaged(steps))
    outcome(path)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=400))
def test_random_bytes_behind_the_magic_are_read_or_refused(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "random.gguf"
    path.write_bytes(b"GGUF\3\0\0\0" + tail)
    outcome(path)


def test_control_without_the_size_check_a_cut_file_raises_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted fault: the reader believes the lengths in the header, and takes what it gets for what it asked for."""
    path = tmp_path / "cut.gguf"
    path.write_bytes(WHOLE[: HEADER_BYTES // 2])
    assert outcome(path) == "refused"
    monkeypatch.setattr(Cursor, "need", lambda self, field, n_bytes: None)
    monkeypatch.setattr(Cursor, "_read", lambda self, field, n_bytes: path.read_bytes()[self.position :][:n_bytes])
    with pytest.raises(Exception) as caught:  # noqa: PT011 (whatever it is, it is no InvalidModel)
        check_loadable(path)
    assert not isinstance(caught.value, InvalidModel)


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path: Path) -> None:
    """The window holds what was read before; what comes after it is gone."""
    path = tmp_path / "shrinks.gguf"
    path.write_bytes(bytes(3 * 2**20))
    with Cursor(path) as cursor:
        cursor.take("a", 8)
        path.write_bytes(b"")
        cursor.skip("b", 2**20)
        with pytest.raises(InvalidModel, match="became shorter"):
            cursor.take("c", 8)
