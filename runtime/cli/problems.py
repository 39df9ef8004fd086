"""How a command ends when it cannot do what was asked: one sentence on stderr, and an exit code.

0 is success, 1 a failure, 2 a mistake in how the command was called, 130 a command stopped with Ctrl-C.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

FAILURE = 1
USAGE = 2
INTERRUPTED = 130

P = ParamSpec("P")
R = TypeVar("R")


class Problem(Exception):
    """What happened and what to do about it, in words for people."""

    def __init__(self, sentence: str, exit_code: int = FAILURE) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


class UsageProblem(Problem):
    """A value that was typed cannot be right."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, USAGE)


def reported(command: Callable[P, R]) -> Callable[P, R]:
    """Let a command raise Problem: it is told on stderr and becomes the exit code."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except Problem as problem:
            sys.stderr.write(f"headrace: {problem}\n")
            raise typer.Exit(problem.exit_code) from problem
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None

    return run
