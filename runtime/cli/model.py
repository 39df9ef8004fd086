"""From what the user typed to a model file that may be loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from models.errors import InvalidModel, ModelError
from models.gguf import check_loadable
from models.header.shards import PART_NAME
from models.shelf import resolve
from runtime import paths
from runtime.cli.problems import Problem


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """`name` is what requests call it."""

    name: str
    path: Path


def choose(named: str | None) -> ChosenModel:
    """The model the user named, or the starter model. Raises Problem when it is missing or must not be loaded."""
    path = find(named)
    try:
        check_loadable(path)
    except InvalidModel as error:
        raise Problem(f"{path.name} cannot be loaded: {error}") from error
    except OSError as error:
        raise Problem(f"{path.name} cannot be read: {error.strerror or error}") from error
    return ChosenModel(name_of(path), path)


def find(named: str | None) -> Path:
    """The file, not opened. Raises Problem when there is none, or when the name can mean several."""
    if named is None:
        return _starter()
    try:
        return resolve(named, paths.models_home())
    except ModelError as error:
        raise Problem(str(error)) from error


def name_of(path: Path) -> str:
    """The name a model goes by: its file's, without the ending and the number of a part."""
    part = PART_NAME.fullmatch(path.name)
    return part["stem"] if part else path.stem


def _starter() -> Path:
    path = paths.starter_model_path()
    if not path.is_file():
        raise Problem(
            f"the starter model {paths.STARTER_NAME} is not on this computer yet: run `python3 packaging/start.py "
            f"--setup-only` to fetch it, or name a .gguf file of your own"
        )
    return path
