"""Hostile files through the doors a person uses: the command line and the service both name the field and go on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from gguf_files import tiny_llama
from hostile_headers import CASES, Case, write_hostile
from typer.testing import CliRunner

from models.errors import InvalidModel
from models.gguf import check_loadable
from runtime import commands
from runtime.cli.main import app
from runtime.config import EngineOptions
from runtime.errors import HeadraceError
from runtime.private import PrivateService

ONE_OF_EACH = list({case.kind: case for case in CASES}.values())


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return tmp_path


def test_the_command_line_names_the_field_of_every_hostile_file(files: Path) -> None:
    refused = 0
    for case in CASES:
        path = write_hostile(case, files / "hostile.gguf")
        result = CliRunner().invoke(app, ["serve", "--model", str(path), "--port", "0"])
        assert result.exit_code == 1, (case.name, result.output)
        assert case.field in " ".join(result.output.split()), (case.name, result.output)
        path.unlink()
        refused += 1
    print(f"{refused} files refused")
    assert refused >= 200


def test_a_file_that_is_not_hostile_passes_the_same_check(files: Path) -> None:
    """The control: without the planted change the file is accepted."""
    path = files / "honest.gguf"
    tiny_llama().write(path)
    check_loadable(path)


@pytest.mark.parametrize("case", ONE_OF_EACH[:6], ids=lambda case: case.name)
def test_the_service_says_the_field_and_keeps_answering(case: Case, files: Path) -> None:
    path = write_hostile(case, files / "hostile.gguf")
    with pytest.raises(InvalidModel):
        check_loadable(path)
    service = PrivateService(EngineOptions(str(path)), model="hostile")
    with pytest.raises(HeadraceError) as refused, service:
        pytest.fail("the service took a hostile file")
    assert case.field in refused.value.message


def test_a_real_process_ends_with_one_sentence(files: Path) -> None:
    path = write_hostile(ONE_OF_EACH[0], files / "hostile.gguf")
    done = subprocess.run(
        [*commands.argv("worker")[:1], "-P", "-m", "runtime.cli.main", "serve", "--model", str(path), "--port", "0"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert ONE_OF_EACH[0].field in done.stderr
