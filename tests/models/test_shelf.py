"""What a name means among the files of a folder, and what it can never reach."""

from __future__ import annotations

import os
import sys
import unicodedata
from pathlib import Path

import pytest
from gguf_files import tiny_llama

from models import limits, shelf
from models.errors import ModelNotFound
from models.header.shards import part_name

STARTER = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "models"
    path.mkdir()
    return path


def put(folder: Path, *names: str) -> list[Path]:
    data = tiny_llama().build()
    paths = [folder / name for name in names]
    for path in paths:
        path.write_bytes(data)
    return paths


def refusal(name: str, folder: Path) -> ModelNotFound:
    with pytest.raises(ModelNotFound) as caught:
        shelf.lookup(name, folder)
    return caught.value


@pytest.mark.parametrize(
    "name",
    [
        STARTER,
        "SmolLM2-135M-Instruct.Q4_1",
        "SmolLM2-135M-Instruct",
        "smollm2-135m-instruct",
        "SMOLLM2-135M-INSTRUCT.q4_1",
        "smollm2-135m-instruct.Q4_1.GGUF",
    ],
)
def test_a_model_is_found_with_or_without_suffix_and_quantization(name: str, folder: Path) -> None:
    path = put(folder, STARTER, "other.Q8_0.gguf")[0]
    assert shelf.lookup(name, folder) == path
    assert shelf.resolve(name, folder) == path


@pytest.mark.parametrize(
    "suffix", ["Q4_K_M", "q8_0", "IQ2_XXS", "UD-Q4_K_XL", "F16", "bf16", "MXFP4_MOE", "TQ1_0", "NVFP4", "Q4_0_4_4"]
)
@pytest.mark.parametrize("separator", [".", "-", "_"])
def test_every_way_to_name_a_quantization_can_be_left_out(suffix: str, separator: str, folder: Path) -> None:
    path = put(folder, f"Model-7B{separator}{suffix}.gguf")[0]
    assert shelf.lookup("model-7b", folder) == path


def test_an_exact_name_wins_over_a_shorter_meaning(folder: Path) -> None:
    plain, quantized = put(folder, "model.gguf", "model.Q4_0.gguf")
    assert shelf.lookup("model", folder) == plain
    assert shelf.lookup("model.q4_0", folder) == quantized


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file system that tells upper from lower case")
def test_the_case_decides_only_where_it_must(folder: Path) -> None:
    upper, lower = put(folder, "Model.gguf", "model.gguf")
    assert shelf.lookup("Model", folder) == upper
    assert shelf.lookup("model", folder) == lower
    assert "can mean" in str(refusal("MODEL", folder))


def test_an_ambiguous_name_lists_what_it_can_mean(folder: Path) -> None:
    put(folder, "model.Q4_0.gguf", "model.Q8_0.gguf", "other.gguf")
    error = refusal("model", folder)
    assert error.known == ("model.Q4_0.gguf", "model.Q8_0.gguf")
    assert str(error) == "'model' can mean model.Q4_0.gguf, model.Q8_0.gguf: name one of them."


def test_an_unknown_name_lists_what_there_is_and_the_way_out(folder: Path) -> None:
    put(folder, "b.gguf", "a.Q4_0.gguf")
    error = refusal("c", folder)
    assert error.known == ("a.Q4_0", "b")
    assert str(error) == "There is no model 'c'. There are: a.Q4_0, b."
    with pytest.raises(ModelNotFound, match=r"Put a \.gguf file into .*models, or give the path of one\.") as caught:
        shelf.resolve("c", folder)
    assert caught.value.known == ("a.Q4_0", "b")


def test_a_long_list_is_cut(folder: Path) -> None:
    for number in range(30):
        (folder / f"m{number:02}.gguf").touch()
    error = refusal("x", folder)
    assert "m19 and 10 more" in str(error)
    assert len(error.known) == 30


def test_an_empty_or_missing_folder_says_that_there_are_none(folder: Path) -> None:
    assert "There are no models yet" in str(refusal("x", folder))
    assert "There are no models yet" in str(refusal("x", folder / "missing"))
    assert shelf.listing(folder / "missing") == ()


def test_accented_names_are_the_same_however_they_are_spelled(folder: Path) -> None:
    path = put(folder, unicodedata.normalize("NFD", "modèle.gguf"))[0]
    assert shelf.lookup(unicodedata.normalize("NFC", "modèle"), folder) == path


def outside(folder: Path) -> list[str]:
    """Names that would be paths out of the folder, if they were paths; a model lies at the end of each."""
    put(folder.parent, "secret.gguf")
    (folder / "sub").mkdir()
    put(folder / "sub", "deep.gguf")
    home = str(folder.parent / "secret.gguf")
    names = [
        "../secret.gguf",
        "../secret",
        home,
        home[:-5],
        "sub/deep",
        "sub/deep.gguf",
        "./model.gguf",
        "sub/../model",
    ]
    return [
        *names,
        "..",
        ".",
        "",
        "~/secret.gguf",
        "model\0",
        "file:///etc/passwd",
        "models/../../secret.gguf",
        "*",
        "m?del",
    ]


def test_a_name_never_reaches_outside_the_folder(folder: Path) -> None:
    put(folder, "model.gguf")
    names = outside(folder)
    for name in names:
        refusal(name, folder)
    assert len(names) >= 15


def test_control_a_name_used_as_a_path_would_reach_outside(folder: Path) -> None:
    """Planted fault: the name is joined to the folder, as a careless reader would do. Some of the names then hit."""
    put(folder, "model.gguf")
    hit = [name for name in outside(folder) if "\0" not in name and (folder / name).is_file()]
    print(f"{len(hit)} of the names are paths to files")
    assert len(hit) >= 4


def test_a_message_for_the_network_carries_no_path_and_no_control_characters(folder: Path) -> None:
    put(folder, "model.gguf")
    for name in ("x", "x\x1b[2J\n", "x" * 256, "../model"):
        message = str(refusal(name, folder))
        assert str(folder) not in message
        assert message.isprintable()


@pytest.mark.parametrize("name", ["n" * (limits.MODEL_NAME_BYTES + 1), "é" * 129, "n" * 10**6, "\ud800" * 300])
def test_a_name_has_a_limit(name: str, folder: Path) -> None:
    put(folder, "model.gguf")
    assert str(refusal(name, folder)) == "A model name has at most 256 bytes."


def test_a_name_at_the_limit_is_looked_up(folder: Path) -> None:
    name = "n" * 250
    path = put(folder, name + ".gguf")[0]
    assert shelf.lookup(name, folder) == path
    assert shelf.lookup(name + ".gguf", folder) == path


def test_a_path_is_taken_only_from_a_person(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, "elsewhere.gguf")[0]
    assert shelf.resolve(str(path), folder) == path
    monkeypatch.chdir(tmp_path)
    assert shelf.resolve("elsewhere.gguf", folder) == Path("elsewhere.gguf")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert shelf.resolve("~/elsewhere.gguf", folder) == path
    refusal(str(path), folder)


def test_a_folder_or_another_file_of_the_same_name_does_not_hide_a_model(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(folder, "model.gguf")[0]
    (tmp_path / "model").mkdir()
    (tmp_path / "model.txt").touch()
    monkeypatch.chdir(tmp_path)
    assert shelf.resolve("model", folder) == path


@pytest.mark.parametrize("typed", ["", "missing.gguf", "a\0b.gguf", "x" * 5000 + ".gguf", "~nobody-here/x.gguf"])
def test_what_cannot_be_a_path_is_not_found(typed: str, folder: Path) -> None:
    with pytest.raises(ModelNotFound):
        shelf.resolve(typed, folder)


def test_a_split_model_is_one_model_by_its_first_part(folder: Path) -> None:
    names = [part_name("big-Q4_K_M", number, 3) for number in (1, 2, 3)]
    paths = put(folder, *names)
    for name in ("big", "big-q4_k_m", names[0]):
        assert shelf.lookup(name, folder) == paths[0]
    assert shelf.resolve(str(paths[2]), folder) == paths[0]
    assert [shelved.name for shelved in shelf.listing(folder)] == ["big-Q4_K_M"]


def test_a_listing_has_facts_or_what_is_wrong(folder: Path) -> None:
    good, bad = put(folder, "good.gguf", "bad.gguf")
    bad.write_bytes(good.read_bytes()[:1000])
    part = folder / part_name("lonely", 2, 2)
    part.write_bytes(good.read_bytes())
    put(folder, "notes.txt", ".hidden.gguf", "model.gguf.part")
    (folder / "folder.gguf").mkdir()
    listed = shelf.listing(folder)
    assert [(item.name, item.path) for item in listed] == [("bad", bad), ("good", good), ("lonely", part)]
    assert [item.info is None for item in listed] == [True, False, True]
    fields = [item.error.field if item.error else None for item in listed]
    assert fields[1:] == [None, "split.count"]
    assert fields[0] is not None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes on this platform")
def test_a_pipe_in_the_folder_does_not_block(folder: Path) -> None:
    os.mkfifo(folder / "pipe.gguf")
    put(folder, "model.gguf")
    assert [item.name for item in shelf.listing(folder)] == ["model"]


@pytest.mark.weights
def test_the_starter_model_is_found_by_its_name(starter_model: Path) -> None:
    found = shelf.lookup("smollm2-135m-instruct", starter_model.parent)
    assert found.name == starter_model.name
