"""The real worker, killed by every signal at every stage: one terminal frame each, and the next worker is as good."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from supervised import Client, Watched

from runtime.config import EngineOptions, ServiceOptions, WatchdogOptions
from runtime.frames import Accepted, Delta, Done, Failed, Loading, Ready
from runtime.request import ChatRequest, Message, Sampling

pytestmark = [
    pytest.mark.weights,
    pytest.mark.timeout(280),
    pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX"),
]

# A window of no length: this many crashes must not switch the model off. `hang_s` outlasts any step of a small model.
WATCHDOG = WatchdogOptions(ping_s=0.25, hang_s=4.0, load_s=6.0, backoff_s=0.01, crash_window_s=0.0)
# Of each signal at each stage. A stopped process takes as long as the watchdog's patience.
ROUNDS = {signal.SIGKILL: 9, signal.SIGSEGV: 9, signal.SIGSTOP: 2}
GREEDY = Sampling(temperature=0.0)
# One step, long enough that the signal falls into it and short enough for `hang_s` on a busy machine.
LONG_PROMPT = tuple(1000 + index % 500 for index in range(96))


class Chaos(Watched):
    """Knows which worker reads weights and how many became ready."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.n_ready = 0
        self.reading: int | None = None
        self.waiting: list[Client] = []
        super().__init__(*args, **kwargs)

    def _on_frame(self, frame: Any) -> None:
        self.n_ready += isinstance(frame, Ready)
        if isinstance(frame, Loading):
            self.reading = self.worker_pid
        super()._on_frame(frame)

    async def client(self, request: ChatRequest) -> Client:
        return Client(await self.submit(request))

    async def strike(self, number: signal.Signals) -> None:
        """Send the signal and wait until the worker is gone."""
        pid = self.worker_pid
        assert pid is not None
        os.kill(pid, number)
        await self.until(lambda: self.worker_pid != pid)
        self.check()


def long_prompt(id: str) -> ChatRequest:
    return ChatRequest(id, tokens=LONG_PROMPT, max_tokens=2, sampling=GREEDY)


def long_reply(id: str) -> ChatRequest:
    return ChatRequest(id, text="Once upon a time", max_tokens=400, sampling=GREEDY)


def short(id: str) -> ChatRequest:
    return ChatRequest(id, text="One, two,", max_tokens=2, sampling=GREEDY)


async def kill_in_load(chaos: Chaos, number: signal.Signals, index: int) -> bool:
    """Every second worker dies while Python starts, the others while weights are read. False if it came too late."""
    if chaos.state == "ready":
        await chaos.strike(signal.SIGKILL)
    reads_weights = index % 2 == 1
    await chaos.until(lambda: chaos.worker_pid is not None and (not reads_weights or chaos.reading == chaos.worker_pid))
    waiting = await chaos.client(short(f"load {number.name} {index}"))
    n_ready = chaos.n_ready
    in_time = chaos.state != "ready"
    await chaos.strike(number)
    chaos.waiting.append(waiting)
    return in_time and chaos.n_ready == n_ready


async def kill_in_prefill(chaos: Chaos, number: signal.Signals, index: int) -> bool:
    victim = await chaos.client(long_prompt(f"prefill {number.name} {index}"))
    queued = await chaos.client(short(f"prefill {number.name} {index} queued"))
    await victim.saw(Accepted)
    await chaos.strike(number)
    in_time = not victim.call.emitted
    end = await victim.end()
    assert isinstance(end, Done if in_time else Failed)
    assert sum(isinstance(frame, Accepted) for frame in victim.frames) == 1
    assert isinstance(await queued.end(), Done)
    return in_time


async def kill_in_decode(chaos: Chaos, number: signal.Signals, index: int) -> bool:
    victim = await chaos.client(long_reply(f"decode {number.name} {index}"))
    queued = await chaos.client(short(f"decode {number.name} {index} queued"))
    await victim.saw(Delta)
    await chaos.strike(number)
    end = await victim.end()
    assert isinstance(end, Failed)
    assert end.emitted
    stopped = number is signal.SIGSTOP
    assert end.error.code == ("engine_timeout" if stopped else "engine_crashed")
    assert ("hung" if stopped else number.name) in end.error.message
    assert isinstance(await queued.end(), Done)
    return True


STAGES = {"load": kill_in_load, "prefill": kill_in_prefill, "decode": kill_in_decode}


async def answer(chaos: Chaos, id: str) -> str:
    messages = (Message("user", "Name three colours."),)
    client = await chaos.client(ChatRequest(id, messages=messages, max_tokens=24, sampling=GREEDY))
    assert isinstance(await client.end(), Done)
    return client.text


async def matrix(chaos: Chaos) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for stage, kill in STAGES.items():
        for number, n_rounds in ROUNDS.items():
            index = 0
            while counts[stage, number.name] < n_rounds:
                counts[stage, number.name] += await kill(chaos, number, index)
                index += 1
                assert index < 3 * n_rounds, f"{stage} {number.name} came too late too often"
        while chaos.waiting:
            client = chaos.waiting.pop()
            assert isinstance(await client.end(), Done)
    return counts


def test_sixty_killed_workers_cost_only_the_replies_being_written(starter_model: Path) -> None:
    async def scenario() -> tuple[Counter[tuple[str, str]], str, str]:
        engine = EngineOptions(str(starter_model), ctx=1024, parallel=1, threads=1)
        chaos = Chaos(engine, ServiceOptions("starter", str(starter_model), watchdog=WATCHDOG))
        await chaos.start()
        try:
            before = await answer(chaos, "before")
            counts = await matrix(chaos)
            after = await answer(chaos, "after")
        finally:
            await chaos.close()
        chaos.check()
        assert chaos._calls.counts.requeued > 0
        return counts, before, after

    service = os.getpid()
    counts, before, after = asyncio.run(scenario())
    print(*(f"{stage} {name}: {n}" for (stage, name), n in sorted(counts.items())), sep="\n")
    assert sum(counts.values()) >= 60
    assert len(counts) == 9
    assert after == before != ""
    assert os.getpid() == service
