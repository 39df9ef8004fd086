"""The set-up, step by step: .venv, the project, llama.cpp, the starter model; then the chat or the tests.

Every step leaves a stamp in .venv/setup.json and is passed over while its stamp still fits, so a second run starts the
program at once. A step that failed is simply done again by the next run.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import start_machine
import start_model
import start_recipe as recipes
import start_venv
import start_window
from start_llama import Wish, bring, self_test
from start_lock import held
from start_places import absolute_root, child_environment, find
from start_run import Log
from start_say import SetupFailed, Voice
from start_tools import Tools
from start_venv import Stamps

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
    wish = Wish(options.backend, options.portable, options.wheels)
    start_venv.make(tools, stamps)
    fits = llama_fits(tools, stamps, wish)
    if not fits and wish.wheels is None:
        # Asked before anything is fetched, so that a missing compiler is said in the first second.
        recipes.choose(start_machine.inspect(), wish.backend)
    packages(tools, stamps, with_tests=options.command == "test")
    if not start_model.is_there(tools.places.starter_model, tools.places.starter_stamp):
        start_model.fetch(tools)
    if not fits:
        bring(tools, wish, start_machine.inspect, lambda: self_test(tools))
        stamps.put("llama", llama_stamp(wish, start_venv.installed_llama(tools.places)))


def packages(tools: Tools, stamps: Stamps, *, with_tests: bool) -> None:
    """The packages of the program; once those of the tests are in, they stay."""
    places = tools.places
    plain, all_of_them = (
        start_venv.project_stamp(places.root, extras, places.python) for extras in ("window", "window,test")
    )
    had = stamps.get("project")
    if had != all_of_them and (with_tests or had != plain):
        start_venv.install_project(tools, "window,test" if with_tests else "window")
        stamps.put("project", all_of_them if with_tests else plain)


def llama_fits(tools: Tools, stamps: Stamps, wish: Wish) -> bool:
    """Whether the installed build is the one that passed its self-test here, and the one that is asked for."""
    installed = start_venv.installed_llama(tools.places)
    return bool(installed) and stamps.get("llama") == llama_stamp(wish, installed)


def llama_stamp(wish: Wish, installed: str) -> str:
    asked = [recipes.edition(), wish.backend, "portable" if wish.portable else "native", str(wish.wheels or "")]
    # A checkout that moved to another processor needs another build; its features are quick to read.
    return hashlib.sha256(" ".join([installed, *asked, *start_machine.features()]).encode()).hexdigest()[:16]


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
