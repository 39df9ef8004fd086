"""What a line that begins with a slash does in the chat. One row of COMMANDS each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table
from rich.text import Text

from runtime.cli.connect import Connection
from runtime.cli.session import SETTINGS, Session, SettingError
from runtime.errors import HeadraceError


class Quit(Exception):
    """The user wants to leave."""


class Again(Exception):
    """The newest turn is a question that wants a reply."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What a command may work with."""

    console: Console
    session: Session
    connection: Connection

    def say(self, text: str) -> None:
        self.console.print(Text(text, style="dim"))

    def complain(self, text: str) -> None:
        self.console.print(Text(text, style="red"))


def run(line: str, desk: Desk) -> None:
    """Carry out one command. Raises Quit or Again where the chat has to act."""
    name, _, rest = line[1:].partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        desk.complain(f"There is no command /{name}. /help lists them; begin with // to send a slash.")
        return
    command.act(desk, rest.strip())


def _help(desk: Desk, _: str) -> None:
    table = Table.grid(padding=(0, 3))
    for command in COMMANDS.values():
        table.add_row(Text(command.usage, style="cyan"), command.meaning)
    desk.console.print(table)
    desk.say(
        'Ctrl-C stops a reply or clears the line, Ctrl-D leaves. A line that ends with \\ goes on; """ opens a text.'
    )


def _new(desk: Desk, _: str) -> None:
    desk.session.clear()
    desk.say("New chat. The system prompt and the settings stay.")


def _system(desk: Desk, text: str) -> None:
    if text:
        desk.session.system = "" if text == "none" else text
    desk.say(f"System prompt: {desk.session.system}" if desk.session.system else "There is no system prompt.")


def _set(desk: Desk, text: str) -> None:
    name, _, value = text.partition(" ")
    if value:
        try:
            desk.session.set(name, value.strip())
        except SettingError as error:
            desk.complain(str(error))
        return
    table = Table.grid(padding=(0, 3))
    for setting in SETTINGS.values():
        now = desk.session.settings.get(setting.name)
        table.add_row(Text(setting.name, style="cyan"), "default" if now is None else f"{now:g}", setting.meaning)
    desk.console.print(table)


def _regen(desk: Desk, _: str) -> None:
    if desk.session.again():
        raise Again
    desk.complain("There is nothing to write again yet.")


def _stats(desk: Desk, _: str) -> None:
    totals = desk.session.totals
    table = Table.grid(padding=(0, 3))
    table.add_row("model", Text(desk.connection.model))
    table.add_row("served by", Text(desk.connection.where))
    table.add_row("turns in this chat", str(len(desk.session.turns)))
    table.add_row("replies", str(totals.replies))
    table.add_row("tokens written", f"{totals.generated:,}")
    table.add_row("tokens read", f"{totals.prompt:,} ({totals.cached:,} of them cached)")
    if totals.context:
        table.add_row("context", f"{totals.context:,} tokens{_of_context(desk)}")
    if totals.generated_ms:
        table.add_row("speed", f"{totals.generated / totals.generated_ms * 1000:.1f} tok/s")
    if totals.first_token_s:
        table.add_row("first token, median", f"{median(totals.first_token_s):.2f} s")
    desk.console.print(table)


def _of_context(desk: Desk) -> str:
    with suppress(HeadraceError):
        if length := desk.connection.client.context_length(desk.connection.model):
            return f" of {length:,}"
    return ""


def _save(desk: Desk, text: str) -> None:
    if not text:
        desk.complain("Name a file: /save chat.md, or chat.json for programs.")
        return
    path = Path(text).expanduser()
    try:
        desk.session.save(path, desk.connection.model)
    except FileExistsError:
        desk.complain(f"{path} exists already; name another file.")
    except OSError as error:
        desk.complain(f"{path} cannot be written: {error.strerror or error}.")
    else:
        desk.say(f"Saved {len(desk.session.turns)} turns to {path}.")


def _models(desk: Desk, _: str) -> None:
    from models.shelf import listing
    from runtime.paths import models_home

    try:
        served = desk.connection.client.models()
    except HeadraceError as error:
        desk.complain(error.message)
        served = ()
    for name in served:
        desk.console.print(Text(f"{name}  served now", style="bold" if name == desk.connection.model else ""))
    for model in listing(models_home()):
        if model.name not in served:
            desk.console.print(Text(f"{model.name}  in your models folder"))
    desk.say("To talk to another one, leave and start: headrace chat NAME")


def _quit(_desk: Desk, _: str) -> None:
    raise Quit


@dataclass(frozen=True, slots=True)
class Command:
    usage: str
    meaning: str
    act: Callable[[Desk, str], None]


COMMANDS = {
    "help": Command("/help", "this list", _help),
    "new": Command("/new", "forget the chat and begin another", _new),
    "regen": Command("/regen", "write the last reply again", _regen),
    "system": Command("/system TEXT", "tell the model who it is; /system none takes it back", _system),
    "set": Command("/set NAME VALUE", "change how it writes, as in /set temperature 0.2; /set lists all", _set),
    "stats": Command("/stats", "figures of this chat", _stats),
    "save": Command("/save FILE", "write the chat to a new file, .md or .json", _save),
    "models": Command("/models", "what is served and what is in your models folder", _models),
    "quit": Command("/quit", "leave", _quit),
}
