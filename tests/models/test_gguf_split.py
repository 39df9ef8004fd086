"""Models in several files: any part leads to the whole, and parts that do not belong together are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from gguf_files import I32, U16, U32, Gguf, Tensor, string, tiny_llama

from models.errors import InvalidModel
from models.gguf import check_loadable, first_part, read_model
from models.header.shards import part_name

Parts = list[Gguf]


def split(n_parts: int = 3) -> Parts:
    """A tiny model in `n_parts` files, as llama.cpp's own splitter writes them: facts in the first one."""
    whole = tiny_llama(n_layers=2)
    parts = [Gguf(entries=dict(whole.entries)), *(Gguf() for _ in range(n_parts - 1))]
    for number, part in enumerate(parts):
        part.set("split.no", U16, number).set("split.count", U16, n_parts)
        part.set("split.tensors.count", I32, len(whole.tensors))
        part.tensors = whole.tensors[number::n_parts]
    return parts


def write(parts: Parts, folder: Path, stem: str = "model") -> list[Path]:
    return [part.write(folder / part_name(stem, n + 1, len(parts))) for n, part in enumerate(parts)]


def test_any_part_leads_to_the_whole_model(tmp_path: Path) -> None:
    paths = write(split(), tmp_path)
    infos = [read_model(path) for path in paths]
    assert infos[0] == infos[1] == infos[2]
    assert infos[0].paths == tuple(paths)
    assert infos[0].n_params == read_model(tiny_llama(n_layers=2).write(tmp_path / "whole.gguf")).n_params
    assert infos[0].file_bytes == sum(path.stat().st_size for path in paths)
    assert {tensor.shard for tensor in infos[0].tensors} == {0, 1, 2}
    assert check_loadable(paths[2]) == infos[0]
    assert first_part(paths[1]) == paths[0]


def test_a_first_part_without_tensors(tmp_path: Path) -> None:
    """The splitter can leave all tensors to the further files."""
    parts = split(2)
    parts[1].tensors = parts[0].tensors + parts[1].tensors
    parts[0].tensors = []
    assert read_model(write(parts, tmp_path)[0]).n_params == 28_160


def test_one_part_of_one_is_an_ordinary_file(tmp_path: Path) -> None:
    file = split(1)[0]
    assert read_model(file.write(tmp_path / "any name.gguf")).paths == (tmp_path / "any name.gguf",)


def test_a_file_that_only_looks_like_a_part_is_read(tmp_path: Path) -> None:
    path = tiny_llama().write(tmp_path / part_name("model", 1, 3))
    assert read_model(path).paths == (path,)


@pytest.mark.parametrize("stem", ["模型", "with spaces", "a-00001-of-00002", "x.y"])
def test_names_of_parts(stem: str, tmp_path: Path) -> None:
    assert len(read_model(write(split(), tmp_path, stem)[1]).paths) == 3


def change(number: int, key: str, code: int, value: float) -> Callable[[Parts], object]:
    return lambda parts: parts[number].set(key, code, value)


def drop(number: int, key: str) -> Callable[[Parts], object]:
    return lambda parts: parts[number].drop(key)


HOSTILE: dict[str, tuple[str, Callable[[Parts], object]]] = {
    "first says it is second": ("split.no", change(0, "split.no", U16, 1)),
    "second says it is first": ("split.no", change(1, "split.no", U16, 0)),
    "second says it is third": ("split.no", change(1, "split.no", U16, 2)),
    "second has no number": ("split.no", drop(1, "split.no")),
    "second's number is u32": ("split.no", change(1, "split.no", U32, 1)),
    "second's number is a string": ("split.no", lambda p: p[1].raw("split.no", 8, string("1"))),
    "first claims 65,535 parts": ("split.count", change(0, "split.count", U16, 65_535)),
    "first claims 2 parts": ("split.count", change(0, "split.count", U16, 2)),
    "second claims 4 parts": ("split.count", change(1, "split.count", U16, 4)),
    "second claims none": ("split.count", drop(1, "split.count")),
    "count is i32": ("split.count", change(0, "split.count", I32, 3)),
    "one tensor more": ("split.tensors.count", change(0, "split.tensors.count", I32, 21)),
    "negative tensors": ("split.tensors.count", change(0, "split.tensors.count", I32, -1)),
    "tensors not counted": ("split.tensors.count", drop(0, "split.tensors.count")),
    "a tensor left out": ("split.tensors.count", lambda p: p[2].tensors.pop()),
    "tensors counted as u32": ("split.tensors.count", change(0, "split.tensors.count", U32, 20)),
    "a tensor in two files": ("blk.0.attn_norm.weight.name", lambda p: _moved(p)),
    "a damaged second part": ("magic", lambda p: setattr(p[1], "magic", b"GGML")),
    "a second part cut short": ("blk.1.ffn_down.weight.offset", lambda p: setattr(p[1], "cut", 64)),
}


def _moved(parts: Parts) -> None:
    name = parts[2].tensors[0].name
    parts[1].tensors[-1] = Tensor(name, parts[1].tensors[-1].dims)


@pytest.mark.parametrize("name", HOSTILE)
def test_parts_that_do_not_belong_together_are_refused(name: str, tmp_path: Path) -> None:
    field, apply = HOSTILE[name]
    parts = split()
    apply(parts)
    with pytest.raises(InvalidModel) as caught:
        read_model(write(parts, tmp_path)[0])
    assert caught.value.field == field, str(caught.value)
    assert str(tmp_path) not in str(caught.value)


def test_missing_parts_are_named(tmp_path: Path) -> None:
    paths = write(split(6), tmp_path)
    for number in (1, 2, 4, 5):
        paths[number].unlink()
    with pytest.raises(InvalidModel) as caught:
        read_model(paths[3])
    assert caught.value.field == "split.count"
    assert "4 of 6 files are missing" in caught.value.reason
    assert "model-00002-of-00006.gguf, model-00003-of-00006.gguf, model-00005-of-00006.gguf, …" in caught.value.reason


def test_a_missing_first_part_is_named(tmp_path: Path) -> None:
    paths = write(split(), tmp_path)
    paths[0].unlink()
    with pytest.raises(InvalidModel, match="model-00001-of-00003"):
        read_model(paths[1])


def test_a_part_under_another_name_says_what_to_do(tmp_path: Path) -> None:
    path = split()[0].write(tmp_path / "renamed.gguf")
    with pytest.raises(InvalidModel, match="give the files their names back"):
        read_model(path)
