"""The built-in chat templates: one row and one file each, and how one is chosen for a model that brings none."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib import resources

from models.errors import TemplateError


@dataclass(frozen=True, slots=True)
class Builtin:
    """`markers` are control tokens that show a model was taught this format; all must be there.

    `stop` ends a reply of a model that has no token for the end of a turn.
    """

    name: str
    markers: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()


# Looked at in this order: the last row fits every model.
BUILTINS = (
    Builtin("chatml", ("<|im_start|>", "<|im_end|>")),
    Builtin("llama3", ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")),
    Builtin("gemma", ("<start_of_turn>", "<end_of_turn>")),
    Builtin("mistral", ("[INST]", "[/INST]")),
    Builtin("plain", stop=("\nUser:", "\nAssistant:")),
)
NAMES = tuple(row.name for row in BUILTINS)


def choose(control_literals: Collection[str]) -> Builtin:
    """The first format whose markers are all control tokens of the vocabulary."""
    return next(row for row in BUILTINS if all(marker in control_literals for marker in row.markers))


def named(name: str) -> Builtin:
    """Raises TemplateError with the names there are."""
    for row in BUILTINS:
        if row.name == name:
            return row
    raise TemplateError(f"there is no built-in template {name!r}; there are {', '.join(NAMES)}")


@cache
def source(name: str) -> str:
    """The template's text. Raises TemplateError for a name that is not in the table."""
    row = named(name)
    return (resources.files(__package__) / f"{row.name}.jinja").read_text(encoding="utf-8")
