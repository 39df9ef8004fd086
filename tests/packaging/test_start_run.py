"""Children of the set-up: their last words reach the user, and none hangs it."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import start_lock
from start_run import CommandFailed, Log, ending, run
from start_say import Voice, duration


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = Log(tmp_path / "log")
    yield log
    log.close()


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_failure_shows_the_last_lines_and_the_log(log: Log) -> None:
    code = "for i in range(100): print('line', i)\nraise SystemExit(3)"
    with pytest.raises(CommandFailed) as failed:
        run("The work", python(code), log=log, environment={})
    assert failed.value.code == 3
    assert failed.value.tail[0] == "line 80"
    assert str(log.path) in str(failed.value)
    assert "line 0\n" in log.path.read_text("utf-8")


def test_a_child_that_does_not_end_is_ended(log: Log) -> None:
    with pytest.raises(CommandFailed, match="did not end within 1 s"):
        run("The work", python("import time; time.sleep(600)"), log=log, environment={}, timeout_s=1.0)


def test_a_program_that_is_not_there_is_a_failure_too(log: Log) -> None:
    with pytest.raises(CommandFailed, match="no-such-program"):
        run("The work", ["/no-such-program"], log=log, environment={})


def test_endings_are_said_as_people_know_them() -> None:
    assert (ending(-11), ending(1), ending(0xC000001D)) == ("SIGSEGV", "exit code 1", "0xC000001D")
    assert (duration(7.4), duration(125)) == ("7 s", "2 min 05 s")


def test_off_a_terminal_a_line_comes_every_ten_seconds() -> None:
    out, now = io.StringIO(), [0.0]
    voice = Voice(out, clock=lambda: now[0])
    voice.step("llama.cpp", "building")
    for second in range(1, 31):
        now[0] = float(second)
        voice.count(f"part {second}")
    assert out.getvalue().count("\n") == 4


def test_one_set_up_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with start_lock.held(path, lambda: pytest.fail("nobody has it yet")), path.open("a+b") as other:
        assert not start_lock._take(other)
    with path.open("a+b") as after:
        assert start_lock._take(after)
