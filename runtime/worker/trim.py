"""Dropping the oldest turns of a chat that is longer than the context."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from runtime.request import Message

T = TypeVar("T")

KEPT_ROLES = ("system", "developer")


def oldest_dropped(messages: tuple[Message, ...]) -> list[tuple[Message, ...]]:
    """`messages` with the 1, 2, 3 … oldest turns left out; system messages and the last user turn always stay.

    A turn is a user message and all that answers it.
    """
    starts = [at for at, message in enumerate(messages) if message.role == "user"]
    bodies = [at for at, message in enumerate(messages) if message.role not in KEPT_ROLES]
    if starts and bodies[0] < starts[0]:
        starts.insert(0, bodies[0])
    return [
        tuple(message for at, message in enumerate(messages) if at >= start or message.role in KEPT_ROLES)
        for start in starts[1:]
    ]


def first_fitting(n: int, attempt: Callable[[int], T | None]) -> tuple[int, T] | None:
    """The smallest index below `n` whose attempt gives something, by halving: once one fits, all later ones do."""
    low, high = 0, n - 1
    best: tuple[int, T] | None = None
    while low <= high:
        middle = (low + high) // 2
        result = attempt(middle)
        if result is None:
            low = middle + 1
        else:
            best, high = (middle, result), middle - 1
    return best
