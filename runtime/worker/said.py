"""Whether a template dropped a message without a word, as some do with system messages after the first."""

from __future__ import annotations

import json

from runtime.render.masks import swap
from runtime.render.protocol import Rendered, RenderJob


def says_all(job: RenderJob, rendered: Rendered) -> bool:
    """Whether what system, user and tools said is in the output, as it is or as JSON has it.

    Each in a place of its own, in the order of the messages unless the template moves one.
    """
    # Compared as masked as the output is: a message that only says "<|end|>" is not found in the template's own words.
    mask = job.mask if rendered.audit is None else {}
    at = 0
    taken: list[tuple[int, int]] = []
    for message in job.messages:
        content = message["content"]
        said = swap(content if isinstance(content, str) else content[0]["text"], mask).strip()
        if message["role"] == "assistant" or not said:
            continue
        place = _place(rendered.text, said, at, taken)
        if place is None:
            place = _place(rendered.text, json.dumps(said, ensure_ascii=False)[1:-1], at, taken)
        if place is None:
            return False
        taken.append(place)
        at = max(at, place[1])
    return True


def _place(text: str, said: str, at: int, taken: list[tuple[int, int]]) -> tuple[int, int] | None:
    """Where `said` stands from `at` on, else before it where nothing else was found."""
    found = text.find(said, at)
    start = 0
    while found < 0 and (before := text.find(said, start)) >= 0:
        overlaps = [end for begin, end in taken if begin < before + len(said) and before < end]
        if not overlaps:
            found = before
        start = max([*overlaps, before + 1])
    return (found, found + len(said)) if found >= 0 else None
