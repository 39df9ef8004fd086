"""Hostile headers: at least five for each kind of lie, every one refused by an InvalidModel that names the field."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path

import pytest
from gguf_files import ARRAY, STRING, U64, Gguf, string, tiny_llama
from hostile_headers import CASES, Case, claim_array, write_hostile
from peak_memory import cost

from models import limits
from models.errors import InvalidModel
from models.gguf import read_model
from models.header import tensors as tensor_checks

CASES_PER_KIND = 5
MEMORY_BYTES = 64 * limits.MIB


def refusal(path: Path) -> InvalidModel:
    with pytest.raises(InvalidModel) as caught:
        read_model(path)
    return caught.value


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}: {case.name}")
def test_every_lie_is_refused_by_the_name_of_its_field(case: Case, tmp_path: Path) -> None:
    error = refusal(write_hostile(case, tmp_path / "hostile.gguf"))
    assert error.field == case.field, str(error)
    assert error.reason
    assert str(tmp_path) not in str(error), "a message must not carry a path"


def test_the_model_all_lies_start_from_is_read(tmp_path: Path) -> None:
    assert read_model(tiny_llama().write(tmp_path / "honest.gguf")).n_params == 18_880


def test_every_kind_has_enough_cases() -> None:
    per_kind = Counter(case.kind for case in CASES)
    print(f"{len(CASES)} hostile headers of {len(per_kind)} kinds")
    assert {kind: n for kind, n in per_kind.items() if n < CASES_PER_KIND} == {}
    assert len(CASES) >= 150
    assert len({(case.kind, case.name) for case in CASES}) == len(CASES)


LAYOUT_KINDS = {
    "_ascending": "offset order",
    "_apart": "overlap",
    "_adjacent": "size that is not type x shape",
    "_inside": "tensor beyond the file",
}


@pytest.mark.parametrize(("check", "kind"), LAYOUT_KINDS.items(), ids=LAYOUT_KINDS)
def test_control_without_a_layout_check_its_files_get_past_it(
    check: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted fault: the reader forgets one check. Then at least one of its files is accepted, so the check acts."""
    left = tuple(c for c in tensor_checks.LAYOUT_CHECKS if c.__name__ != check)
    assert len(left) == len(tensor_checks.LAYOUT_CHECKS) - 1
    monkeypatch.setattr(tensor_checks, "LAYOUT_CHECKS", left)
    accepted = 0
    for case in CASES:
        if case.kind == kind:
            try:
                read_model(write_hostile(case, tmp_path / "hostile.gguf"))
                accepted += 1
            except InvalidModel:
                pass
    print(f"without {check} {accepted} hostile files are accepted")
    assert accepted > 0


def test_control_without_the_alignment_check_the_message_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted fault: as above. Other checks refuse an unaligned offset too, but they do not say what is wrong."""
    cases = [case for case in CASES if case.kind == "offset alignment"]

    def reasons() -> list[str]:
        return [refusal(write_hostile(case, tmp_path / "hostile.gguf")).reason for case in cases]

    assert all("multiple of the alignment" in reason for reason in reasons())
    left = tuple(c for c in tensor_checks.LAYOUT_CHECKS if c.__name__ != "_aligned")
    assert len(left) == len(tensor_checks.LAYOUT_CHECKS) - 1
    monkeypatch.setattr(tensor_checks, "LAYOUT_CHECKS", left)
    assert not any("multiple of the alignment" in reason for reason in reasons())


@pytest.mark.parametrize("n_bytes", [0, 1, 4, 8, 23])
def test_a_file_too_short_for_a_header_is_refused(n_bytes: int, tmp_path: Path) -> None:
    path = tmp_path / "short.gguf"
    path.write_bytes(tiny_llama().build()[:n_bytes])
    assert refusal(path).field == "magic"


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.gguf", tmp_path / "a\0b.gguf", tmp_path / ("n" * 5000)):
        error = refusal(path)
        assert error.field == "file"
        assert str(tmp_path) not in str(error)


def test_a_sparse_file_cannot_make_the_reader_walk_a_long_header(tmp_path: Path) -> None:
    """The file really is as large as its header says, and takes no room on the disk."""
    file = Gguf(n_keys=2, extra_entries=[string("x.0") + struct.pack("<I", ARRAY) + claim_array(STRING, 2**22)])
    # Four million empty strings, and then zeros where the next key should be.
    assert refusal(file.write_sparse(tmp_path / "sparse.gguf", 2**28)).field == "key[1]"


def test_a_header_longer_than_its_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "long.gguf"
    head = Gguf(n_keys=9).header()
    one = 8 * limits.GGUF_ARRAY_ELEMENTS
    with path.open("wb") as out:
        out.write(head)
        for number in range(9):  # 9 arrays of 32 MiB, as holes in the file
            out.write(string(f"x.{number}") + struct.pack("<I", ARRAY) + claim_array(U64, limits.GGUF_ARRAY_ELEMENTS))
            out.seek(one, 1)
        out.truncate(out.tell())
    error = refusal(path)
    assert error.field == "x.7"
    assert f"{limits.GGUF_HEADER_BYTES:,}" in error.reason


def test_refusing_costs_little_memory(tmp_path: Path) -> None:
    """How far the memory of a fresh process rises while it refuses every hostile file."""
    for number, case in enumerate(CASES):
        write_hostile(case, tmp_path / f"{number}.gguf")
    refused, growth = cost("read_model", tmp_path)
    print(f"{refused} files refused, memory grew by {growth / limits.MIB:.1f} MiB")
    assert refused == len(CASES)
    assert 0 < growth < MEMORY_BYTES
