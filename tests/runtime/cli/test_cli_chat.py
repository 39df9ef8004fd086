"""`headrace chat` as people and scripts meet it: a real process, a scripted server."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_openai_server import FakeOpenAiServer

if sys.platform != "win32":
    from terminal import Program

CHAT = [sys.executable, "-P", "-m", "runtime.cli.main", "chat"]
needs_pty = pytest.mark.skipif(sys.platform == "win32", reason="ptys are POSIX")


@pytest.fixture
def server() -> Iterator[FakeOpenAiServer]:
    with FakeOpenAiServer() as fake:
        yield fake


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    return tmp_path


def ask(server: FakeOpenAiServer, *arguments: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CHAT, "--url", server.url, *arguments],
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        env={**os.environ, **env},
    )


def leave(chat: Program, *, prompts: int) -> None:
    """Ctrl-D at the prompt. A terminal drops one that is typed earlier, so the prompt must be there."""
    chat.expect("›", times=prompts)
    chat.type("\x04")
    assert chat.wait() == 0


def test_a_pipe_gets_the_reply_and_nothing_else(server: FakeOpenAiServer) -> None:
    done = ask(server, "-p", "hello", "--temperature", "0", "--system", "be brief")
    assert (done.stdout, done.stderr, done.returncode) == ("Hello there!\n", "", 0)
    assert server.bodies[0]["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hello"},
    ]
    assert server.bodies[0]["temperature"] == 0
    assert server.bodies[0]["model"] == "fake-model"


def test_the_prompt_may_come_through_stdin(server: FakeOpenAiServer) -> None:
    assert ask(server, "-p", "-", stdin="größer\nals").returncode == 0
    assert ask(server, stdin="no -p at all").returncode == 0
    prompts = [body["messages"][0]["content"] for body in server.bodies]
    assert prompts == ["größer\nals", "no -p at all"]


def test_output_is_utf8_whatever_the_locale_says(server: FakeOpenAiServer) -> None:
    server.words = ("Grüße ", "🌊\n")
    done = ask(server, "-p", "x", LC_ALL="C", PYTHONIOENCODING="", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert done.stdout == "Grüße 🌊\n"


@pytest.mark.parametrize(
    ("mode", "said"),
    [("cut", "before the reply was complete"), ("error_midway", "model process stopped"), ("refuse", "9000 tokens")],
)
def test_a_failure_is_one_line_on_stderr_and_exit_1(server: FakeOpenAiServer, mode: str, said: str) -> None:
    server.mode = mode
    done = ask(server, "-p", "x")
    assert done.returncode == 1
    assert done.stderr.startswith("headrace: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
    assert done.stdout == ("" if mode == "refuse" else "Hello there!\n")


def test_mistakes_in_the_call_are_exit_2(server: FakeOpenAiServer) -> None:
    for arguments in (["-p", ""], ["-p", "x", "--temperature", "hot"], ["-p", "x", "--ctx", "many"]):
        done = ask(server, *arguments)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    bad = subprocess.run([*CHAT, "-p", "x", "--url", "nowhere"], capture_output=True, encoding="utf-8", timeout=60)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert not server.bodies


def test_nobody_at_the_url_says_how_to_start_one() -> None:
    with FakeOpenAiServer() as gone:
        url = gone.url
    done = subprocess.run([*CHAT, "-p", "x", "--url", url], capture_output=True, encoding="utf-8", timeout=60)
    assert done.returncode == 1
    assert "headrace serve" in done.stderr


def test_a_model_that_is_not_there_is_told_before_anything_starts(home: Path) -> None:
    done = subprocess.run([*CHAT, "nonexistent", "-p", "x"], capture_output=True, encoding="utf-8", timeout=60)
    assert done.returncode == 1
    assert "nonexistent" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_reader_that_goes_away_is_not_a_traceback(server: FakeOpenAiServer) -> None:
    server.words = tuple("word \n" for _ in range(20_000))
    with subprocess.Popen(
        [*CHAT, "--url", server.url, "-p", "x"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()
        assert process.wait(60) == 1


@needs_pty
def test_ctrl_c_stops_the_reply_and_the_chat_goes_on(server: FakeOpenAiServer) -> None:
    server.gate = 2
    with Program([*CHAT, "--url", server.url]) as chat:
        chat.expect("›")
        chat.type("first question\n")
        assert server.at_gate.wait(30)
        chat.expect("Hello there")
        chat.type("\x03")
        chat.expect("stopped")
        assert server.disconnected.wait(30), "the server never learned that nobody reads"
        chat.expect("›", times=2)
        server.gate = None
        chat.type("second question\n")
        chat.expect("50.0 tok/s")
        chat.expect("12 prompt tokens (5 cached)")
        leave(chat, prompts=3)
    roles = [(turn["role"], turn["content"]) for turn in server.bodies[1]["messages"]]
    assert roles == [("user", "first question"), ("assistant", "Hello there"), ("user", "second question")]


def interrupt_until(chat: Program, seen: Callable[[], None]) -> None:
    """Press Ctrl-C as a person does: again, if nothing happens.

    CPython misses an interrupt that comes after its line editor has read a key and before it waits for the next.
    """
    for _ in range(4):
        chat.type("\x03")
        with contextlib.suppress(AssertionError):
            return seen()
    seen()


@needs_pty
def test_ctrl_c_at_the_prompt_clears_the_line(server: FakeOpenAiServer) -> None:
    with Program([*CHAT, "--url", server.url]) as chat:
        chat.expect("›")
        chat.type("half a thou")
        chat.expect("half a thou")
        interrupt_until(chat, lambda: chat.expect("›", times=2, timeout_s=5))
        chat.type("whole\n")
        chat.expect("tok/s")
        chat.type("/quit\n")
        assert chat.wait() == 0
    assert [body["messages"][0]["content"] for body in server.bodies] == ["whole"]


@needs_pty
def test_a_conversation_with_commands(server: FakeOpenAiServer, home: Path) -> None:
    saved = home / "chat.md"
    with Program([*CHAT, "--url", server.url]) as chat:
        chat.expect("/help for commands")
        for line, answer in (
            ("/system be kind", "System prompt: be kind"),
            ("/set temperature 0.2", "›"),
            ("hello", "first token"),
            ("/regen", "first token"),
            ("/stats", "15 tokens of 4,096"),
            (f"/save {saved}", "Saved 2 turns"),
            ("/models", "fake-model  served now"),
            ("//not a command", "first token"),
        ):
            before = chat.screen.text.count(answer)
            chat.type(line + "\n")
            chat.expect(answer, times=before + 1)
        chat.type("/quit\n")
        assert chat.wait() == 0
    first, again, last = server.bodies
    assert first["messages"] == again["messages"]
    assert first["temperature"] == 0.2
    assert last["messages"][-1] == {"role": "user", "content": "/not a command"}
    assert "Hello there!" in saved.read_text()
    assert (home / "chat_history").read_text().count("\n") == 9


@needs_pty
def test_a_failed_reply_takes_the_question_back_and_regen_sends_it_again(server: FakeOpenAiServer) -> None:
    server.mode = "refuse"
    with Program([*CHAT, "--url", server.url]) as chat:
        chat.expect("›")
        chat.type("too long\n")
        chat.expect("exceeds the available context size")
        chat.expect("taken back")
        server.mode = "complete"
        chat.type("/regen\n")
        chat.expect("Hello there!")
        leave(chat, prompts=3)
    assert [len(body["messages"]) for body in server.bodies] == [1, 1]


@needs_pty
def test_the_scrollback_holds_every_line_once(server: FakeOpenAiServer) -> None:
    server.words = tuple(f"line{n:03d}\n\n" for n in range(60))
    with Program([*CHAT, "--url", server.url], height=10, width=60) as chat:
        chat.expect("›")
        chat.type("go\n")
        chat.expect("tok/s")
        leave(chat, prompts=2)
    found = [word for word in chat.screen.text.split() if word.startswith("line0")]
    assert found == [f"line{n:03d}" for n in range(60)]
