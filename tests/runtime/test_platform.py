"""The platform table: every system has every row, and what a row says is what happens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from runtime import platform
from runtime.platform import ABSENT, Row, confine_worker, describe, peak_memory_bytes, rows

linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="rows of the Linux table")

CONFINED = """
import json, os, resource, sys
from pathlib import Path
from runtime.platform import confine_worker
if "--confine" in sys.argv:
    outcome = confine_worker(int(sys.argv[1]))
else:
    outcome = {}
status = dict(line.split(":\\t") for line in Path("/proc/self/status").read_text().splitlines() if ":\\t" in line)
print(json.dumps({
    "outcome": outcome,
    "oom": int(Path("/proc/self/oom_score_adj").read_text()),
    "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
    "privileges": int(status["NoNewPrivs"]),
    "umask": int(status["Umask"], 8),
    "owner": os.stat("/proc/self/environ").st_uid,
}))
"""


def _confined(parent: int, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", CONFINED, str(parent), *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_system_has_every_row() -> None:
    tables = {system: rows(system) for system in ("linux", "darwin", "win32", "freebsd14")}
    names = [row.name for row in tables["linux"]]
    assert len(set(names)) == len(names)
    for table in tables.values():
        assert [row.name for row in table] == names
        assert all(row.apply is None for row in table if row.how == ABSENT)


def test_the_table_describes_itself_for_a_bug_report() -> None:
    assert describe() == {row.name: row.how for row in rows()}
    assert describe()["end with the parent"].startswith("end of channel")


@linux_only
def test_what_the_linux_rows_say_is_what_happens() -> None:
    said = json.loads(_confined(os.getpid(), "--confine").stdout)
    assert said["outcome"] == describe(), "a row was refused here"
    assert said["oom"] == platform.WORKER_OOM_SCORE
    assert said["core"] == 0
    assert said["privileges"] == 1
    assert said["umask"] == 0o077
    # control: the planted fault is a child that forgets to confine itself
    bare = json.loads(_confined(os.getpid()).stdout)
    assert bare["oom"] != platform.WORKER_OOM_SCORE
    assert bare["privileges"] == 0


@linux_only
def test_a_child_whose_parent_is_gone_already_notices() -> None:
    ended = _confined(2**22, "--confine")
    assert ended.returncode != 0
    assert "ParentGone" in ended.stderr


def test_a_refused_row_is_reported_and_the_rest_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    applied: list[int] = []

    def refuse(_parent: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    table = (Row("first", "planted", refuse), Row("second", "planted", applied.append), Row("third"))
    monkeypatch.setattr(platform, "rows", lambda: table)
    outcome: dict[str, Any] = confine_worker(42)
    assert outcome == {"first": "refused: Operation not permitted", "second": "planted", "third": ABSENT}
    assert applied == [42]


def test_peak_memory_grows_with_use() -> None:
    before = peak_memory_bytes()
    block = b"x" * (before + 32 * 1024 * 1024)
    assert peak_memory_bytes() >= before + 16 * 1024 * 1024
    assert before > 4 * 1024 * 1024, "not in bytes"
    del block
