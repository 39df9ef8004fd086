"""The commands with the real service and the starter model: what a newcomer meets first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from runtime.paths import STARTER_FILE

if sys.platform != "win32":
    from terminal import Program

HEADRACE = [sys.executable, "-P", "-m", "runtime.cli.main"]

pytestmark = pytest.mark.weights


@pytest.fixture(autouse=True)
def home(tmp_path: Path, starter_model: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home as the set-up leaves it: the starter model and nothing else."""
    (tmp_path / "models").mkdir()
    os.symlink(starter_model, tmp_path / "models" / STARTER_FILE)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    return tmp_path


def test_one_question_for_a_pipe() -> None:
    arguments = ["chat", "-p", "Say hello.", "--max-tokens", "8", "--temperature", "0", "--threads", "1"]
    runs = [subprocess.run([*HEADRACE, *arguments], capture_output=True, text=True, timeout=200) for _ in range(2)]
    for done in runs:
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.strip()
    assert runs[0].stdout == runs[1].stdout


def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers() -> None:
    arguments = ["chat", "-p", "word " * 600, "--ctx", "512", "--threads", "1"]
    done = subprocess.run([*HEADRACE, *arguments], capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "512 tokens" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="ptys are POSIX")
def test_ctrl_c_leaves_the_private_service_running() -> None:
    with Program([*HEADRACE, "chat", "--threads", "1", "--temperature", "0"]) as chat:
        chat.expect("›", timeout_s=120)
        chat.expect("a private service")
        chat.type("Write a long story about a river and the people who live on its banks.\n")
        chat.expect_that(lambda text: len(text.partition("banks.")[2].strip()) > 40, timeout_s=120)
        chat.type("\x03")
        chat.expect("stopped", timeout_s=120)
        chat.expect("›", times=2)
        chat.type("/set max_tokens 4\n")
        chat.expect("›", times=3)
        chat.type("And now?\n")
        chat.expect("4 written", timeout_s=120)
        chat.expect("›", times=4)
        chat.type("\x04")
        assert chat.wait() == 0


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_serve_says_what_it_decided_and_ends_in_order() -> None:
    command = [*HEADRACE, "serve", "--port", "0", "--threads", "1", "--api-key", "k"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout is not None
            address = service.stdout.readline().split()[-1]
            plan = service.stdout.readline()
            assert "1 thread" in plan, "what was decided is one line"
            assert service.stdout.readline().startswith("Ready.")
            assert httpx.get(address + "/models", trust_env=False).status_code == 401
            port = address.rpartition(":")[2].removesuffix("/v1")
            second = subprocess.run([*HEADRACE, "serve", "--port", port], capture_output=True, text=True, timeout=200)
            assert (second.returncode, second.stderr.count("\n")) == (1, 1), second.stderr
            assert "--port" in second.stderr
        finally:
            service.send_signal(signal.SIGINT)
        assert service.wait(60) == 0
