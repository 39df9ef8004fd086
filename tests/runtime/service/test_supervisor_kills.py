"""Workers killed by every signal at every stage: one terminal frame each, the queue is answered, we live on.

The same rounds over supervisors with a planted fault must fail.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import supervised
from supervised import NEVER_OFF, Client, Watched, supervising

from runtime.errors import ErrorInfo
from runtime.frames import Delta, Done, Failed, Ping, Progress
from runtime.service.calls import Call, Calls

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")

OPTIONS = replace(NEVER_OFF, load_s=2.0)
# Of each signal at each stage. A stopped process takes as long as the watchdog's patience.
ROUNDS = {signal.SIGKILL: 8, signal.SIGSEGV: 8, signal.SIGSTOP: 4}
SHOWS = {"prefill": Progress, "decode": Delta}
Count = Counter[tuple[str, str]]


async def kill_while_loading(supervisor: Watched, gate: Path, counts: Count) -> None:
    """Requests that came while one worker after another died in its load are all answered by the one that lives."""
    waiting: list[Client] = []
    signals = [number for number, rounds in ROUNDS.items() for _ in range(rounds)]
    last = None
    for index, number in enumerate(signals):
        await supervisor.until(lambda last=last: supervisor.loading > 0 and supervisor.worker_pid not in (None, last))
        assert supervisor.state in ("loading", "restarting")
        waiting.append(await supervisor.send(f"load {index}"))
        last = supervisor.worker_pid
        if index == len(signals) - 1:
            gate.unlink()
        os.kill(last or 0, number)
        counts["load", number.name] += 1
    for client in waiting:
        assert isinstance(await client.end(), Done)


async def kill_in(supervisor: Watched, stage: str, number: signal.Signals, index: int) -> None:
    await supervisor.until(lambda: supervisor.state == "ready")
    assert supervisor.facts is not None
    life = int(supervisor.facts.plan.removeprefix("life "))
    victim = await supervisor.send(f"{stage} {number.name} {index}", at=stage, do="hold", lives=life)
    queued = [await supervisor.send(f"{stage} {number.name} {index} queued {place}") for place in range(2)]
    await victim.saw(SHOWS[stage])
    os.kill(supervisor.worker_pid or 0, number)
    supervisor.check()
    end = await victim.end()
    if stage == "prefill":
        assert isinstance(end, Done), "nothing was emitted, so the next worker must answer"
    else:
        assert isinstance(end, Failed)
        stopped = number is signal.SIGSTOP
        assert end.error.code == ("engine_timeout" if stopped else "engine_crashed")
        assert ("hung" if stopped else number.name) in end.error.message
    for client in queued:
        assert isinstance(await client.end(), Done)
    supervisor.check()


async def kills(folder: Path, *, kind: type[Watched], stages: tuple[str, ...], rounds: dict[Any, int]) -> Count:
    counts: Count = Counter()
    gate = folder / "hold-load"
    if "load" in stages:
        gate.touch()
    async with supervising(folder, kind=kind, watchdog=OPTIONS) as supervisor:
        if "load" in stages:
            await kill_while_loading(supervisor, gate, counts)
        for stage in SHOWS:
            for number, n_rounds in rounds.items():
                for index in range(n_rounds if stage in stages else 0):
                    await kill_in(supervisor, stage, number, index)
                    counts[stage, number.name] += 1
        assert supervisor.n_restarts == sum(counts.values())
        assert supervisor._calls.counts.submitted == supervisor._calls.counts.finished
    return counts


@pytest.mark.timeout(180)
def test_sixty_killed_workers_cost_only_the_replies_being_written(tmp_path: Path) -> None:
    service = os.getpid()
    counts = asyncio.run(kills(tmp_path, kind=Watched, stages=("load", "prefill", "decode"), rounds=ROUNDS))
    print(*(f"{stage} {name}: {n}" for (stage, name), n in sorted(counts.items())), sep="\n")
    assert len(counts) == 9
    assert sum(counts.values()) >= 60
    assert os.getpid() == service


class Forgetful(Watched):
    """Planted fault: what was sent to a dead worker is not queued again."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._calls.__class__ = _ForgetfulCalls


class _ForgetfulCalls(Calls):
    def _requeue(self, calls: list[Call]) -> None:
        pass


class Repeating(Watched):
    """Planted fault: a lost reply gets its terminal frame, and is queued again all the same."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._calls.__class__ = _RepeatingCalls


class _RepeatingCalls(Calls):
    def worker_lost(self, lost: ErrorInfo, refused: ErrorInfo) -> None:
        sent = list(self._sent.values())
        super().worker_lost(lost, refused)
        self._waiting.extend(call for call in sent if call.finished)


class Deaf(Watched):
    """Planted fault: never pings, so that a stopped worker is never noticed."""

    def _tell(self, frame: Any) -> None:
        if not isinstance(frame, Ping):
            super()._tell(frame)

    async def _watch(self, watchdog: Any) -> None:
        watchdog.tick = lambda now: None
        await super()._watch(watchdog)


@pytest.mark.parametrize(
    ("faulty", "stage", "number"),
    [(Forgetful, "prefill", "SIGKILL"), (Repeating, "decode", "SIGKILL"), (Deaf, "decode", "SIGSTOP")],
)
def test_the_same_rounds_over_a_planted_fault_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faulty: type[Watched], stage: str, number: str
) -> None:
    monkeypatch.setattr(supervised, "PATIENCE_S", 3.0)
    rounds = {signal.Signals[number]: 1}
    with pytest.raises((AssertionError, TimeoutError)):
        asyncio.run(kills(tmp_path, kind=faulty, stages=(stage,), rounds=rounds))
