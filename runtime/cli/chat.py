"""`headrace chat`: a conversation in the terminal, or one question and its answer for a pipe."""

from __future__ import annotations

import os
import sys

from rich.console import Console
from rich.text import Text

from runtime.cli import slash
from runtime.cli.connect import Connection
from runtime.cli.lines import Keyboard, quiet_keyboard
from runtime.cli.problems import FAILURE, INTERRUPTED
from runtime.cli.reply import Reply, receive
from runtime.cli.session import Session
from runtime.cli.view import PlainView, ReplyView

PROMPT = "› "


class Chat:
    """The loop of questions and replies. Owns the terminal while it runs."""

    def __init__(self, connection: Connection, session: Session, console: Console, keyboard: Keyboard) -> None:
        self._connection = connection
        self._session = session
        self._console = console
        self._keyboard = keyboard
        self._desk = slash.Desk(console, session, connection)

    def run(self) -> None:
        """Until the user leaves."""
        self._greet()
        while True:
            try:
                self._turn(self._keyboard.ask(PROMPT))
            except KeyboardInterrupt:
                self._console.print()
            except (EOFError, slash.Quit):
                self._console.print()
                return

    def _greet(self) -> None:
        self._console.print(Text(self._connection.model, style="bold"))
        for line in (self._connection.where, self._connection.plan, "/help for commands, Ctrl-D to leave"):
            if line:
                self._console.print(Text(line, style="dim", overflow="ellipsis", no_wrap=True))
        self._console.print()

    def _turn(self, line: str) -> None:
        text = line.strip()
        if not text:
            return
        if text.startswith("/") and not text.startswith("//"):
            try:
                slash.run(text, self._desk)
                return
            except slash.Again:
                pass
        else:
            self._session.ask(text[1:] if text.startswith("//") else text)
        self._answer()

    def _answer(self) -> None:
        view = PlainView(self._console) if self._console.is_dumb_terminal else ReplyView(self._console)
        stream = self._connection.client.stream_chat(
            self._session.messages, model=self._connection.model, truncate="oldest", **self._session.settings
        )
        with quiet_keyboard(), view:
            reply = receive(stream, view)
        self._note(reply)
        self._console.print(Text(footer(reply), style="dim"))
        if (error := reply.error) is not None:
            self._desk.complain(error.message)
            self._desk.say(
                "/regen tries again." if reply.text else "Your message was taken back; /regen sends it again."
            )
        self._console.print()

    def _note(self, reply: Reply) -> None:
        if reply.text:
            self._session.answered(reply.text, reply.usage, reply.first_token_s)
        else:
            self._session.lost()


def footer(reply: Reply) -> str:
    """The figures of a reply in one line; what the server did not say is left out."""
    usage = reply.usage
    parts = ["stopped"] if reply.stopped else ["incomplete"] if reply.error else []
    if usage.predicted_per_second:
        parts.append(f"{usage.predicted_per_second:.1f} tok/s")
    if reply.first_token_s is not None:
        parts.append(f"first token {reply.first_token_s:.2f} s")
    if usage.n_prompt is not None:
        cached = f" ({usage.n_cached} cached)" if usage.n_cached is not None else ""
        parts.append(f"{usage.n_prompt} prompt tokens{cached}")
    if usage.n_generated is not None:
        parts.append(f"{usage.n_generated} written")
    return " · ".join(parts)


def one_shot(connection: Connection, session: Session, prompt: str) -> int:
    """Ask once, write the reply to stdout and nothing else; the exit code says whether it is whole."""
    session.ask(prompt)
    stream = connection.client.stream_chat(session.messages, model=connection.model, **session.settings)
    console = Console(highlight=False)
    rich = console.is_terminal and not console.is_dumb_terminal
    view = ReplyView(console) if rich else _Pipe()
    try:
        with view:
            reply = receive(stream, view)
    except BrokenPipeError:
        # Whoever read us is gone; without this the interpreter complains once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    if reply.error is not None:
        sys.stderr.write(f"headrace: {reply.error.message}\n")
        return FAILURE
    return INTERRUPTED if reply.stopped else 0


class _Pipe:
    """stdout as it comes: for programs, so nothing is taken out and nothing is added but a last newline."""

    def __init__(self) -> None:
        self._last = "\n"

    def __enter__(self) -> _Pipe:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self._last != "\n":
            self.write("\n")

    def think(self, text: str) -> None:
        pass

    def write(self, text: str) -> None:
        self._last = text[-1]
        sys.stdout.write(text)
        sys.stdout.flush()

    def draw(self) -> None:
        pass
