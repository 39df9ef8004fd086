"""A conversation and what slash commands do to it."""

from __future__ import annotations

import io
import json
import stat
import sys
from pathlib import Path

import pytest
from fake_openai_server import FakeOpenAiServer
from rich.console import Console

from runtime.cli import slash
from runtime.cli.connect import Connection
from runtime.cli.lines import HISTORY_LINES, History
from runtime.cli.session import Session, SettingError
from runtime.client import Client
from runtime.stream import Usage

USAGE = Usage(n_prompt=12, n_cached=5, n_generated=3, predicted_ms=60.0)


@pytest.fixture
def session() -> Session:
    session = Session("be brief")
    session.ask("hello")
    session.answered("hi", USAGE, 0.25)
    return session


def desk_of(session: Session) -> slash.Desk:
    console = Console(file=io.StringIO(), width=100)
    return slash.Desk(console, session, Connection(Client("http://127.0.0.1:9"), "small", "nowhere"))


def said(desk: slash.Desk) -> str:
    assert isinstance(desk.console.file, io.StringIO)
    return desk.console.file.getvalue()


def test_messages_begin_with_the_system_prompt(session: Session) -> None:
    assert [m["role"] for m in session.messages] == ["system", "user", "assistant"]
    session.system = ""
    assert [m["role"] for m in session.messages] == ["user", "assistant"]


def test_a_lost_question_does_not_stay_and_can_be_asked_again(session: Session) -> None:
    session.ask("again?")
    session.lost()
    assert session.messages[-1]["role"] == "assistant"
    assert session.again()
    assert session.messages[-1] == {"role": "user", "content": "again?"}


def test_again_takes_the_last_reply_back(session: Session) -> None:
    assert session.again()
    assert session.messages[-1] == {"role": "user", "content": "hello"}
    session.clear()
    assert not session.again()


@pytest.mark.parametrize(
    ("name", "text"),
    [("temperature", "warm"), ("temperature", "nan"), ("top_k", "1.5"), ("max_tokens", "0"), ("colour", "red")],
)
def test_settings_that_cannot_be_are_refused(session: Session, name: str, text: str) -> None:
    with pytest.raises(SettingError, match=name):
        session.set(name, text)
    assert session.settings == {}


def test_set_and_take_back(session: Session) -> None:
    desk = desk_of(session)
    slash.run("/set temperature 0.2", desk)
    slash.run("/set top_k 5", desk)
    assert session.settings == {"temperature": 0.2, "top_k": 5}
    slash.run("/set temperature default", desk)
    assert session.settings == {"top_k": 5}
    slash.run("/set", desk)
    assert "top_k" in said(desk)


def test_save_is_private_and_never_overwrites(session: Session, tmp_path: Path) -> None:
    desk = desk_of(session)
    markdown, program = tmp_path / "chat.md", tmp_path / "chat.json"
    slash.run(f"/save {markdown}", desk)
    slash.run(f"/save {program}", desk)
    assert markdown.read_text() == "**System**\n\nbe brief\n\n**You**\n\nhello\n\n**small**\n\nhi\n"
    assert json.loads(program.read_text())["messages"] == session.messages
    if sys.platform != "win32":
        assert stat.S_IMODE(markdown.stat().st_mode) == 0o600
    slash.run(f"/save {markdown}", desk)
    assert "exists already" in said(desk)
    slash.run(f"/save {tmp_path}/none/chat.md", desk)
    assert "cannot be written" in said(desk)


def test_the_other_commands(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    desk = desk_of(session)
    for line in ("/help", "/stats", "/system", "/nonsense"):
        slash.run(line, desk)
    text = said(desk)
    assert all(command.usage in text for command in slash.COMMANDS.values())
    assert "50.0 tok/s" in text
    assert "There is no command /nonsense" in text
    slash.run("/system none", desk)
    assert session.system == ""
    slash.run("/new", desk)
    assert session.turns == []
    slash.run("/models", desk)
    assert "headrace serve" in said(desk), "a server that is gone is told, not raised"
    with pytest.raises(slash.Quit):
        slash.run("/quit", desk)


def test_regen_asks_for_a_reply(session: Session) -> None:
    with pytest.raises(slash.Again):
        slash.run("/regen", desk_of(session))


def test_models_lists_what_is_served(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    with FakeOpenAiServer(models=("one", "two")) as server, Client(server.url) as client:
        console = Console(file=io.StringIO(), width=100)
        desk = slash.Desk(console, session, Connection(client, "one", "x"))
        slash.run("/models", desk)
    assert "one  served now" in said(desk)


def test_history_is_private_survives_and_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "chat_history"
    history = History(path)
    for text in ("one", "two\nlines", "two\nlines", "größer"):
        history.add(text)
    assert History(path).lines == ["one", "two\nlines", "größer"]
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text('"x"\nnot json\n' * (2 * HISTORY_LINES), encoding="utf-8")
    assert len(History(path).lines) <= HISTORY_LINES
    assert len(path.read_text().splitlines()) == HISTORY_LINES


def test_a_home_that_cannot_be_written_leaves_the_history_in_memory(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    history = History(blocked / "chat_history")
    history.add("kept")
    assert history.lines == ["kept"]
