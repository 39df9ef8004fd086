"""What is kept is found again only whole, and a crash is remembered in its place."""

from __future__ import annotations

from pathlib import Path

import pytest
import start_wheels as wheels

NAME = "llama_cpp_python-1-py3-none-any.whl"


def put(root: Path, content: bytes = b"wheel") -> Path:
    out = root / "out"
    out.mkdir()
    (out / NAME).write_bytes(content)
    return wheels.keep(out / NAME, root / "shelf" / "key", {"recipe": {"backend": "cpu"}})


def test_kept_means_found(tmp_path: Path) -> None:
    kept = put(tmp_path)
    assert wheels.find(tmp_path / "shelf" / "key") == kept
    assert wheels.find(tmp_path / "shelf" / "other") is None


def damage_wheel(folder: Path) -> None:
    (folder / NAME).write_bytes(b"whee")


def lose_wheel(folder: Path) -> None:
    (folder / NAME).unlink()


def damage_facts(folder: Path) -> None:
    (folder / wheels.FACTS).write_bytes(b"{\0")


@pytest.mark.parametrize("fault", [damage_wheel, lose_wheel, damage_facts])
def test_a_damaged_entry_is_as_good_as_none(tmp_path: Path, fault: object) -> None:
    put(tmp_path)
    assert callable(fault)
    fault(tmp_path / "shelf" / "key")
    assert wheels.find(tmp_path / "shelf" / "key") is None


def test_a_new_wheel_takes_the_place_of_an_old_one_and_of_a_refusal(tmp_path: Path) -> None:
    folder = tmp_path / "shelf" / "key"
    put(tmp_path)
    wheels.refuse(folder, "SIGSEGV")
    assert wheels.refused(folder) == "SIGSEGV"
    assert wheels.find(folder) is None
    put(tmp_path, b"better")
    assert wheels.refused(folder) is None
    found = wheels.find(folder)
    assert found is not None
    assert found.read_bytes() == b"better"
