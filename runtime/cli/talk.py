"""What `headrace chat` was asked for, and how it begins: which prompt, which service, which progress is shown."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from runtime.cli import chat
from runtime.cli.connect import Progress as Report
from runtime.cli.connect import connected
from runtime.cli.lines import Keyboard
from runtime.cli.options import EngineTexts, engine_options
from runtime.cli.problems import UsageProblem
from runtime.cli.session import Session, SettingError
from runtime.config import EngineOptions


@dataclass(frozen=True, slots=True)
class Wish:
    """The command line of `headrace chat`, as typed."""

    model: str | None = None
    prompt: str | None = None
    system: str = ""
    url: str | None = None
    api_key: str | None = None
    engine: EngineTexts = field(default_factory=EngineTexts)
    settings: Mapping[str, str | None] = field(default_factory=dict)


def run(wish: Wish) -> int:
    """The exit code."""
    session = _session(wish)
    prompt = _prompt(wish.prompt)

    def engine_for(path: str) -> EngineOptions:
        return engine_options(path, wish.engine)

    # Checked before anything is started, whichever service will answer.
    engine_for("")
    with (
        progress_shown() as report,
        connected(
            model=wish.model, url=wish.url, api_key=wish.api_key, engine_for=engine_for, progress=report
        ) as connection,
    ):
        if prompt is not None:
            return chat.one_shot(connection, session, prompt)
        chat.Chat(connection, session, Console(highlight=False), Keyboard()).run()
    return 0


def _session(wish: Wish) -> Session:
    session = Session(wish.system)
    for name, text in wish.settings.items():
        if text is None:
            continue
        try:
            session.set(name, text)
        except SettingError as error:
            raise UsageProblem(f"--{str(error).replace('_', '-', 1)}") from error
    return session


def _prompt(typed: str | None) -> str | None:
    """The one prompt to answer; None for a conversation. What comes through a pipe is one prompt."""
    if typed is None and sys.stdin.isatty():
        return None
    text = sys.stdin.read() if typed in (None, "-") else typed
    if not text or not text.strip():
        raise UsageProblem('there is nothing to ask: give a prompt with -p "…", or through a pipe with -p -')
    return text


@contextmanager
def progress_shown() -> Iterator[Report]:
    """Shows how much of a model is loaded, on stderr, and nothing where that is not a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), TimeElapsedColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task("", total=None)

    def report(name: str, part: float | None) -> None:
        bar.update(task, description=f"loading {name}", total=None if part is None else 1.0, completed=part or 0.0)
        if part is None or part < 1:
            bar.start()
        else:
            bar.stop()

    try:
        yield report
    finally:
        bar.stop()
