"""The commands around the chat: start, version, doctor, bench, quantize; and what `--help` may cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_openai_server import FakeOpenAiServer
from typer.testing import CliRunner

from runtime import commands
from runtime.cli import connect, doctor_facts, start
from runtime.cli.main import app
from runtime.cli.problems import Problem
from runtime.config import EngineOptions

TESTS = Path(__file__).parents[2]
HEAVY = ("httpx", "rich.markdown", "numpy", "fastapi", "uvicorn", "pydantic", "llama_cpp", "psutil", "msgspec")


@pytest.fixture
def fake_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The service child is a scripted one: it answers on the real wire and loads nothing."""
    monkeypatch.setitem(commands.CHILDREN, "service", "fake_service_child")
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))


@pytest.fixture
def peer() -> Iterator[FakeOpenAiServer]:
    with FakeOpenAiServer() as fake:
        yield fake


def test_help_imports_none_of_the_heavy_modules() -> None:
    """What makes `headrace --help` slow is imports, so they are what is checked, not the clock."""
    code = (
        "import sys\nfrom runtime.cli.main import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        "sys.stderr.write(' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60)
    assert "serve" in done.stdout
    loaded = set(done.stderr.split())
    assert "typer" in loaded
    assert not loaded & set(HEAVY)


def test_version_and_help() -> None:
    runner = CliRunner()
    assert "headrace 0.1.0" in runner.invoke(app, ["version"]).stdout
    assert runner.invoke(app, ["chat", "--help"]).exit_code == 0
    assert runner.invoke(app, ["bench", "--help"]).exit_code == 0


@pytest.mark.parametrize(
    ("environment", "platform", "display"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({}, "darwin", True),
        ({"SSH_CONNECTION": "1.2.3.4"}, "darwin", False),
        ({}, "win32", True),
    ],
)
def test_display(environment: dict[str, str], platform: str, display: bool) -> None:
    assert start.has_display(environment, platform) is display


def test_without_a_command_without_a_terminal_it_is_the_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 0
    assert "chat" in result.stdout


def test_without_a_command_with_a_display_it_is_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(start, "window_is_installed", lambda: True)
    monkeypatch.setattr(start.subprocess, "call", lambda argv: started.append(argv) or 0)
    assert CliRunner().invoke(app, []).exit_code == 0
    assert started == [commands.argv("window")]


def test_quantize_says_honestly_that_it_is_not_there_yet() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "quantize.main", "x"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


@pytest.mark.weights
def test_bench_speed_prints_a_table_and_json(fake_service: None, starter_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "speed.json"
    arguments = ["bench", "speed", "--model", str(starter_model), "--pairs", "6", "--json"]
    result = CliRunner().invoke(app, [*arguments, str(out)])
    assert result.exit_code == 0, result.output
    assert "prefill" in result.stdout
    assert "tok/s" in result.stdout
    report = json.loads(out.read_text())
    assert {row["figure"] for row in report["rows"]} == {"prefill", "decode", "first token"}
    assert report["model"]["architecture"] == "llama"
    assert report["machine"]["cpu"]
    only_json = CliRunner().invoke(app, [*arguments, "-"])
    assert json.loads(only_json.stdout)["settings"]["runs"] == 6


@pytest.mark.weights
def test_bench_compare_gives_both_servers_the_same_work(
    fake_service: None, starter_model: Path, peer: FakeOpenAiServer
) -> None:
    arguments = ["bench", "compare", peer.url, "--work", "decode", "--pairs", "6", "--model", str(starter_model)]
    result = CliRunner().invoke(app, [*arguments, "--json", "-"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert [row["interval"]["n"] for row in report["rows"]] == [6, 6]
    assert len(report["raw"]["decode"]) == 6
    assert len(peer.bodies) == 7
    assert {body["model"] for body in peer.bodies} == {"fake-model"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["speed", "--pairs", "5"],
        ["speed", "--pairs", "many"],
        ["compare", "http://127.0.0.1:1", "--work", "magic"],
        ["compare", "nowhere"],
    ],
    ids=" ".join,
)
def test_bench_refuses_in_one_sentence(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)


@pytest.mark.weights
def test_a_private_service_that_dies_is_told_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch, starter_model: Path
) -> None:
    monkeypatch.setattr(
        "runtime.private.argv", lambda *_: [sys.executable, str(TESTS / "fake_service_child.py"), "die"]
    )
    result = CliRunner().invoke(app, ["bench", "speed", "--model", str(starter_model)])
    assert result.exit_code == 1
    assert "ggml abort: planted" in result.stderr


@pytest.mark.weights
def test_a_running_service_is_used_and_a_private_one_when_it_has_another_model(
    fake_service: None, starter_model: Path
) -> None:
    def engine_for(path: str) -> EngineOptions:
        return EngineOptions(path)

    def where(port: int, wanted: str | None, **of: object) -> str:
        with connect.connected(
            model=wanted, url=None, api_key=None, engine_for=engine_for, progress=lambda *_: None, port=port
        ) as connection:
            return connection.where

    name = starter_model.stem
    with FakeOpenAiServer(models=(name,)) as running:
        assert "running" in where(running.port, None)
        assert "running" in where(running.port, str(starter_model))
        running.models = ("another-model",)
        assert "private" in where(running.port, str(starter_model))
        running.models = (name,)
        running.about = {"name": "some other server"}
        assert "private" in where(running.port, str(starter_model))
        running.about, running.api_key = {"name": "headrace"}, "secret"
        assert "private" in where(running.port, str(starter_model))
        assert not running.bodies, "nobody may be sent a chat before it is known who listens"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who listens")
def test_another_users_listener_is_not_ours(peer: FakeOpenAiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert connect._listener_is_ours(peer.port)
    monkeypatch.setattr(
        connect, "_rows", lambda table: [["0:", f"0100007F:{peer.port:04X}", "0:0", "0A", *"000", "4242"]]
    )
    assert not connect._listener_is_ours(peer.port)
    monkeypatch.setattr(connect, "_rows", lambda table: [])
    assert not connect._listener_is_ours(peer.port)


def test_a_missing_starter_model_names_the_way_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from runtime.cli.model import choose

    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    with pytest.raises(Problem, match=r"packaging/start\.py"):
        choose(None)


def test_a_hostile_file_is_refused_before_any_child_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF" + (3).to_bytes(4, "little") + (2**60).to_bytes(8, "little") * 2)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a child was started"))
    for command in (["serve", "--model", str(bad)], ["chat", str(bad), "-p", "x"], ["bench", "speed", "-m", str(bad)]):
        result = CliRunner().invoke(app, command)
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1), result.output
        assert "bad.gguf" in result.stderr


def fake_child(answer: str, code: int = 0) -> list[str]:
    return [sys.executable, "-c", f"import sys; print({answer!r}); sys.stderr.write('last words'); sys.exit({code})"]


def test_a_childs_answer_its_error_and_its_death() -> None:
    assert doctor_facts.child_answer(fake_child('{"ok": true}'), 30) == {"ok": True}
    assert doctor_facts.child_answer(fake_child('{"error": "x"}', 1), 30) == {"error": "x"}
    assert doctor_facts.child_answer(fake_child("no", 3), 30) == {
        "error": "ended with exit code 3 and no answer\nlast words"
    }
    assert (
        "signal" in doctor_facts.child_answer([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], 30)["error"]
    )
    assert "within 0 s" in doctor_facts.child_answer([sys.executable, "-c", "input()"], 0.01)["error"]
    assert "started" in doctor_facts.child_answer(["/nonexistent/program"], 30)["error"]


@pytest.mark.weights
def test_doctor_text_and_json_hold_no_private_path(
    starter_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home-of-alice"
    models = home / ".local" / "share" / "headrace" / "models"
    models.mkdir(parents=True)
    os.symlink(starter_model, models / "SmolLM2-135M-Instruct.Q4_1.gguf")
    (models / "broken.gguf").write_bytes(b"GGUF")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / ".local" / "share"))
    monkeypatch.delenv("HEADRACE_HOME", raising=False)
    text = CliRunner().invoke(app, ["doctor"])
    assert text.exit_code == 0, text.output
    for word in (
        "llama.cpp",
        "processor",
        "instruction sets",
        "device CPU",
        "~/.local/share/headrace/models",
        "passed",
    ):
        assert word in text.stdout
    assert "broken: CANNOT BE LOADED" in text.stdout
    assert "alice" not in text.stdout
    report = CliRunner().invoke(app, ["doctor", "--json", "--no-selftest"])
    facts = json.loads(report.stdout)
    assert facts["ok"] is True
    assert facts["selftest"] == {"skipped": True}
    assert facts["engine"]["devices"]
    assert "alice" not in report.stdout


def test_a_broken_engine_is_told_and_exit_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Planted fault: both children die by a signal, as a build for another processor does."""
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    death = [sys.executable, "-c", "import os; os.kill(os.getpid(), 4)"]
    monkeypatch.setattr(doctor_facts, "argv", lambda *_: death)
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 1
    assert "NOT USABLE: ended with signal 4" in result.stdout
    assert "FAILED: ended with signal 4" in result.stdout
    assert "packaging/start.py" in result.stdout
