"""The models in the user's folder, and what a name means. Owns nothing: the folder is read at every call.

A name is compared with the names of the files that are there and never made into a path, so what arrives over HTTP
cannot reach outside the folder. Only `resolve`, for what a person typed on this machine, takes paths.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from models import limits
from models.errors import InvalidModel, ModelNotFound
from models.gguf import ModelInfo, first_part, read_model
from models.header.cursor import shown
from models.header.shards import PART_NAME

SUFFIX = ".gguf"
QUANT = re.compile(r"[-._](?:ud-)?(?:i?q[0-9]\w*|tq[0-9]\w*|b?f(?:16|32)|fp(?:16|32)|mxfp4\w*|nvfp4)$", re.IGNORECASE)
NAMES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Shelved:
    """A model in the folder: what its header says, or why it cannot be used."""

    name: str
    path: Path
    info: ModelInfo | None
    error: InvalidModel | None


def resolve(name_or_path: str, folder: Path) -> Path:
    """The file to load for what a person typed: a path to a .gguf file, or a name in `folder`.

    Of a split model it is the first part. Raises ModelNotFound, with the way out in the message.
    """
    typed = _existing_file(name_or_path)
    if typed is not None:
        return first_part(typed)
    try:
        return lookup(name_or_path, folder)
    except ModelNotFound as error:
        advice = f"Put a .gguf file into {folder}, or give the path of one."
        raise ModelNotFound(f"{error} {advice}", error.known) from None


def lookup(name: str, folder: Path) -> Path:
    """The file in `folder` that `name` means: its file name or its name without .gguf, without the number of a part,
    and without the quantization; upper and lower case are the same where that leaves one file.

    Never touches a path outside `folder`. Raises ModelNotFound.
    """
    if len(name.encode("utf-8", "replace")) > limits.MODEL_NAME_BYTES:
        raise ModelNotFound(f"A model name has at most {limits.MODEL_NAME_BYTES} bytes.")
    files = _files(folder)
    for form in FORMS:
        wanted = form(name)
        found = [path for path in files if wanted in (form(path.name), form(_stem(path)))]
        if len(found) == 1:
            return found[0]
        if found:
            raise _ambiguous(name, found)
    without = [path for path in files if _folded(name) == _folded(QUANT.sub("", _stem(path)))]
    if len(without) == 1:
        return without[0]
    if without:
        raise _ambiguous(name, without)
    raise _unknown(name, files)


def listing(folder: Path) -> tuple[Shelved, ...]:
    """Every model in `folder` by name, with its facts or what is wrong with it."""
    return tuple(_shelved(path) for path in _files(folder))


def _shelved(path: Path) -> Shelved:
    try:
        return Shelved(_stem(path), path, read_model(path), None)
    except InvalidModel as error:
        return Shelved(_stem(path), path, None, error)


def _existing_file(typed: str) -> Path | None:
    """`typed` as a path, if it ends in .gguf and there is such a file."""
    try:
        path = Path(typed).expanduser() if typed.startswith("~") else Path(typed)
        return path if path.suffix.lower() == SUFFIX and path.is_file() else None
    except (OSError, ValueError, RuntimeError):  # too long, a NUL in it, no home folder
        return None


def _files(folder: Path) -> list[Path]:
    """The .gguf files of `folder` in order of name, one for each split model: its first part, or whichever is there."""
    try:
        paths = [
            p for p in folder.iterdir() if p.suffix.lower() == SUFFIX and not p.name.startswith(".") and p.is_file()
        ]
    except OSError:
        return []
    models: dict[str, Path] = {}
    for path in sorted(paths, key=lambda p: (_folded(p.name), p.name)):
        match = PART_NAME.fullmatch(path.name)
        models.setdefault(f"{match['stem']}/{match['count']}" if match else path.name, path)
    return list(models.values())


def _stem(path: Path) -> str:
    """The name of a model: its file name without .gguf, and without the number of a part."""
    match = PART_NAME.fullmatch(path.name)
    return match["stem"] if match else path.name[: -len(SUFFIX)]


def _composed(text: str) -> str:
    # File systems differ in how they spell accented letters.
    return unicodedata.normalize("NFC", text)


def _folded(text: str) -> str:
    return _composed(_composed(text).casefold())


FORMS: tuple[Callable[[str], str], ...] = (_composed, _folded)


def _ambiguous(name: str, paths: list[Path]) -> ModelNotFound:
    known = tuple(path.name for path in paths)
    return ModelNotFound(f"{shown(name)!r} can mean {_listed(known)}: name one of them.", known)


def _unknown(name: str, paths: list[Path]) -> ModelNotFound:
    known = tuple(_stem(path) for path in paths)
    there = f"There are: {_listed(known)}." if known else "There are no models yet."
    return ModelNotFound(f"There is no model {shown(name)!r}. {there}", known)


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(shown(name) for name in names[:NAMES_SHOWN]) + more
