"""What every step of the set-up works with: the places, the voice, the log, and pip in .venv."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from start_places import Places
from start_run import CommandFailed, Log, run
from start_say import SetupFailed, Voice

# What stands in the output of a command that failed, and what to do about it. The first that is found is said.
CAUSES = (
    (
        r"No space left on device|Disk quota exceeded",
        "The disk is full: free some gigabytes, or let TMPDIR name a folder on another disk.",
    ),
    (r"Killed signal|out of memory|Cannot allocate memory", "Memory ran out: close other programs."),
    (
        r"NewConnectionError|NameResolutionError|Temporary failure in name resolution|ConnectTimeout|Read timed out"
        r"|Network is unreachable|Connection refused|ProxyError|SSLError",
        "The network or the package index did not answer: is this computer online?",
    ),
)
AGAIN = "Running the same command again goes on from here."


@dataclass(frozen=True, slots=True)
class Tools:
    """`environment` is what programs we start see."""

    places: Places
    voice: Voice
    log: Log
    environment: Mapping[str, str]

    def pip(self, what: str, *arguments: str | Path, on_line: Callable[[str | None], None] = lambda _: None) -> None:
        """Raises CommandFailed, or SetupFailed with the cause where it is a known one."""
        command = [self.places.python, "-m", "pip", "--disable-pip-version-check", *arguments]
        # A user's pip may be told to install elsewhere; here it is .venv or nothing.
        environment = {**self.environment, "PIP_USER": "0", "PIP_NO_INPUT": "1"}
        heard = Causes()
        try:
            run(what, command, log=self.log, environment=environment, on_line=heard.along(on_line))
        except CommandFailed as error:
            if heard.cause:
                raise SetupFailed(f"{error}\n{heard.cause} {AGAIN}") from error
            raise

    def with_environment(self, environment: Mapping[str, str]) -> Tools:
        return replace(self, environment=environment)


class Causes:
    """Listens to a command's whole output: the reason is often far above its last lines."""

    def __init__(self) -> None:
        self.cause = ""

    def along(self, on_line: Callable[[str | None], None]) -> Callable[[str | None], None]:
        """`on_line`, with us listening too."""

        def both(line: str | None) -> None:
            self.hear(line or "")
            on_line(line)

        return both

    def hear(self, line: str) -> None:
        for pattern, advice in CAUSES:
            if not self.cause and re.search(pattern, line):
                self.cause = advice
