"""A service killed with -9 leaves no worker: the end of the channel sees to it, and the system does where it can."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from supervised import fake_command

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="waits on a process descriptor")

FAKE_SERVICE = Path(__file__).parents[2] / "fake_service.py"
PATIENCE_MS = 20_000


@contextmanager
def killed_service(folder: Path, *flags: str) -> Iterator[tuple[int, int]]:
    """Kill a service with -9 once its worker is ready: the worker's process id and descriptor."""
    command = [sys.executable, "-P", str(FAKE_SERVICE), *fake_command(folder, *flags)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as service:
        assert service.stdout is not None
        worker = int(service.stdout.readline())
        descriptor = os.pidfd_open(worker)
        service.kill()
        service.wait()
        try:
            yield worker, descriptor
        finally:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
            os.close(descriptor)


def _ends(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(PATIENCE_MS))


@pytest.mark.parametrize(
    "flags",
    [(), ("loose",), ("stubborn",)],
    ids=["both", "only the end of the channel", "only the parent-death signal"],
)
def test_a_worker_ends_with_its_service(tmp_path: Path, flags: tuple[str, ...]) -> None:
    with killed_service(tmp_path, *flags) as (_, descriptor):
        assert _ends(descriptor)


def test_control_a_worker_with_neither_protection_outlives_its_service(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "outlived")
    with killed_service(tmp_path, "loose", "stubborn") as (worker, descriptor):
        assert int((tmp_path / "outlived").read_text(encoding="ascii")) == worker
        os.kill(worker, signal.SIGKILL)
        assert _ends(descriptor)
