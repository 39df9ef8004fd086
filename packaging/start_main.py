"""The set-up, step by step: .venv, the project, llama.cpp, the starter model; then the chat or the tests.

Every step leaves a stamp in .venv/setup.json and is passed over while its stamp still fits, so a second run starts the
program at once. A step that failed is simply done again by the next run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import start_model
import start_recipe as recipes
import start_window
from start_llama import SelfTestFailed, Tools, bring
from start_lock import held
from start_places import absolute_root, child_environment, find
from start_run import CommandFailed, Log, run
from start_say import SetupFailed, Voice

SAMPLE_QUESTION = "In one sentence: what is a headrace?"
CHECKS = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
    ("lint-imports",),
)


def main(arguments: Sequence[str]) -> int:
    options, rest = parse(arguments)
    voice = Voice()
    try:
        places = find(absolute_root(), os.environ)
        if places.note:
            voice.line(places.note)
        places.venv.mkdir(exist_ok=True)
        tools = Tools(places, voice, Log(places.log), child_environment(places, os.environ))
        with held(places.lock, lambda: voice.line("Another set-up of this user is running; waiting for it.")):
            set_up(tools, options)
        window = options.command == "run" and not options.setup_only and wants_window(tools)
    except SetupFailed as error:
        voice.line(f"\n{error}")
        return 1
    except OSError as error:
        voice.line(f"\nThe set-up could not write its files: {error}")
        return 1
    except KeyboardInterrupt:
        voice.line("\nStopped. Running the same command again goes on from here.")
        return 130
    if options.setup_only:
        voice.line("Ready. Start with: python3 packaging/start.py")
        return 0
    if options.command == "test":
        return test(tools, rest)
    return hand_over(tools, program(tools, rest, window=window))


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Our options, and what stands after `--` for the program."""
    ours, rest = list(arguments), []
    if "--" in ours:
        at = ours.index("--")
        ours, rest = ours[:at], ours[at + 1 :]
    parser = argparse.ArgumentParser(
        prog="start.py", description="Set Headrace up on this machine and start it.",
        epilog="What stands after -- goes to the program (or to pytest).",
    )  # fmt: skip
    parser.add_argument("command", nargs="?", choices=("run", "test"), default="run", help="run the chat, or the tests")
    parser.add_argument("--setup-only", action="store_true", help="stop when everything is in place")
    parser.add_argument("--backend", choices=recipes.BACKENDS, default="auto", help="what llama.cpp is built for")
    parser.add_argument("--portable", action="store_true", help="build without this processor's newest instructions")
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="take llama-cpp-python from a wheel in this folder")
    return parser.parse_args(ours), rest


# the steps


def set_up(tools: Tools, options: argparse.Namespace) -> None:
    stamps = Stamps(tools.places.stamps)
    extras = "window,test" if options.command == "test" else "window"
    make_venv(tools)
    machine = None if stamps.get("llama") and not asks_for_build(options) else recipes.inspect()
    project = project_stamp(tools.places.root, extras, tools.places.python)
    if stamps.get("project") not in (project, project_stamp(tools.places.root, "window,test", tools.places.python)):
        install_project(tools, extras)
        stamps.put("project", project)
    if not start_model.is_there(tools.places.starter_model):
        start_model.fetch(tools)
    wanted = llama_stamp(options)
    if stamps.get("llama") != wanted:
        bring(
            tools, machine or recipes.inspect(), backend=options.backend, portable=options.portable,
            wheels=options.wheels, self_test=lambda: self_test(tools),
        )  # fmt: skip
        stamps.put("llama", wanted)


def make_venv(tools: Tools) -> None:
    if tools.places.python.exists():
        return
    tools.voice.step(".venv", "making the virtual environment")
    venv.create(tools.places.venv, with_pip=True, symlinks=sys.platform != "win32")
    tools.voice.done(f"Python {sys.version.split()[0]} in {tools.places.venv}")


def install_project(tools: Tools, extras: str) -> None:
    tools.voice.step("packages", "installing what Headrace needs")
    constraints = tools.places.root / "packaging" / "constraints.txt"
    pinned = ["-c", constraints] if constraints.exists() else []
    try:
        tools.pip(
            "Installing the packages", "install", *pinned, "-e", f"{tools.places.root}[{extras}]",
            on_line=lambda line: tools.voice.count(_short(line)),
        )  # fmt: skip
    except CommandFailed as error:
        raise SetupFailed(
            f"{error}\nIs the network there? Running the same command again goes on from here."
        ) from error
    tools.voice.done("installed")


def _short(line: str | None) -> str:
    return (line or "installing what Headrace needs").strip()[:80]


def self_test(tools: Tools) -> None:
    """A child decodes a prompt of 100 tokens: a build that crashes does it there, not in the user's chat."""
    tools.voice.count("self-test")
    command = [tools.places.python, "-P", "-m", "runtime.llama.selftest", "--model", tools.places.starter_model]
    try:
        run("The self-test", command, log=tools.log, environment=tools.environment)
    except CommandFailed as error:
        raise SelfTestFailed(f"the self-test ended with {_how(error.code)}; see {tools.log.path}") from error


def _how(code: int) -> str:
    from start_run import ending

    return ending(code)


class Stamps:
    """What was done, in one small JSON file; anything unreadable counts as not done."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._values: dict[str, Any] = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            self._values = {}

    def get(self, name: str) -> Any:
        return self._values.get(name)

    def put(self, name: str, value: str) -> None:
        self._values[name] = value
        aside = self._path.with_suffix(".tmp")
        aside.write_text(json.dumps(self._values, indent=1), "utf-8")
        os.replace(aside, self._path)


def project_stamp(root: Path, extras: str, python: Path) -> str:
    """Changes with the dependencies and with the folder the editable install points to."""
    digest = hashlib.sha256(f"{extras} {root} {python}".encode())
    for name in ("pyproject.toml", "packaging/constraints.txt"):
        path = root / name
        digest.update(path.read_bytes() if path.exists() else b"")
    return digest.hexdigest()[:16]


def llama_stamp(options: argparse.Namespace) -> str:
    asked = [recipes.VERSION, options.backend, "portable" if options.portable else "native"]
    # A checkout that moved to another processor needs another build; its features are quick to read.
    asked += [str(options.wheels or ""), *recipes.features()]
    return hashlib.sha256(" ".join(asked).encode()).hexdigest()[:16]


def asks_for_build(options: argparse.Namespace) -> bool:
    return bool(options.portable or options.backend != "auto")


# what is started


def wants_window(tools: Tools) -> bool:
    return start_window.has_display(os.environ) and start_window.make_ready(tools)


def program(tools: Tools, rest: Sequence[str], *, window: bool) -> list[str]:
    """The window; without a display the terminal chat; without a terminal the answer to one question."""
    if window:
        return [*start_window.window_command(tools.places.python), *rest]
    chat = [str(tools.places.python), "-P", "-m", "runtime.cli.main", "chat"]
    if rest or (sys.stdin.isatty() and sys.stdout.isatty()):
        return [*chat, *rest]
    tools.voice.line(f"There is no terminal here, so one question is answered: {SAMPLE_QUESTION}")
    return [*chat, "-p", SAMPLE_QUESTION]


def hand_over(tools: Tools, command: Sequence[str]) -> int:
    tools.log.close()
    sys.stdout.flush()
    if sys.platform == "win32":
        return subprocess.call(command, env=dict(tools.environment))
    os.execve(command[0], list(command), dict(tools.environment))
    return 0


def test(tools: Tools, rest: Sequence[str]) -> int:
    """The checks, then the tests; the first that fails decides the exit code."""
    scripts = tools.places.python.parent
    commands = [[str(scripts / check[0]), *check[1:]] for check in CHECKS] if not rest else []
    for command in [*commands, [str(tools.places.python), "-m", "pytest", *rest]]:
        tools.voice.line("$ " + " ".join([Path(command[0]).name, *command[1:]]))
        code = subprocess.call(command, cwd=tools.places.root, env=dict(tools.environment))
        if code:
            return code
    return 0
