"""The supervisor over fake workers: every request ends once, and the others go on."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from supervised import NEVER_OFF, Client, Watched, request, supervising

from runtime.config import WatchdogOptions
from runtime.errors import InvalidRequest, ModelDisabled, Overloaded, ShuttingDown
from runtime.frames import Accepted, ChoiceDone, Delta, Done, Failed, Ping, Progress
from runtime.service.spawn import worker_environment

THREE = replace(NEVER_OFF, crash_window_s=600.0)
QUICK = replace(NEVER_OFF, hang_s=0.4)


def n_lives(folder: Path) -> int:
    return int((folder / "lives").read_text(encoding="ascii"))


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_a_request_is_answered_in_order_and_the_model_is_known(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with supervising(tmp_path) as supervisor:
            assert supervisor.state == "loading"
            early = await supervisor.send("early")  # waits for the model
            assert isinstance(await early.end(), Done)
            assert await supervisor.settled() == "ready"
            assert supervisor.facts is not None
            assert supervisor.facts.n_ctx == 4096
            assert supervisor.loading == 1.0
            late = await supervisor.send("late", tokens=2)
            await late.end()
            kinds = [type(frame) for frame in late.frames]
            assert kinds == [Accepted, Progress, Progress, Delta, Delta, ChoiceDone, Done]
            assert late.text == "t0 t1 "
            await supervisor.until(lambda: supervisor.stats.n_steps == 1)  # a pong arrived
        assert supervisor.state == "closed"

    run(scenario())


# workers that die


def test_a_request_that_has_emitted_nothing_is_given_to_the_next_worker(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with supervising(tmp_path) as supervisor:
            client = await supervisor.send("a", at="prefill", do="segv", lives=1)
            assert isinstance(await client.end(), Done)
            assert [type(frame) for frame in client.frames].count(Accepted) == 1
            assert client.text == "t0 t1 t2 "
            assert supervisor.n_restarts == 1
            assert supervisor._calls.counts.requeued == 1

    run(scenario())


def test_a_request_that_ends_two_workers_is_not_tried_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with supervising(tmp_path) as supervisor:
            poison = await supervisor.send("poison", at="prefill", do="abort")
            innocent = [await supervisor.send(f"innocent {number}") for number in range(3)]
            failed = await poison.end()
            assert (failed.error.code, failed.emitted) == ("engine_crashed", False)
            assert "SIGABRT (ggml.c:42: GGML_ASSERT(planted) failed)" in failed.error.message
            assert "second time" in failed.error.message
            assert "/home" not in failed.error.message
            for client in innocent:
                assert isinstance(await client.end(), Done)
            assert n_lives(tmp_path) == 3

    run(scenario())


DEATHS = {
    "kill": ("engine_crashed", "SIGKILL"),
    "segv": ("engine_crashed", "SIGSEGV"),
    "abort": ("engine_crashed", "GGML_ASSERT(planted)"),
    "exit": ("engine_crashed", "exit code 3"),
    "close": ("engine_crashed", "closed its channel"),
    "garbage": ("engine_crashed", "cannot be read"),
    "oversize": ("engine_crashed", "4294967295 bytes"),
    "foreign": ("engine_crashed", "cannot be read"),
    "stop": ("engine_timeout", "hung"),
    "deaf": ("engine_timeout", "hung"),
}


@pytest.mark.parametrize(("do", "expected"), DEATHS.items(), ids=DEATHS)
def test_a_reply_that_has_begun_fails_with_the_cause_and_the_others_go_on(
    tmp_path: Path, do: str, expected: tuple[str, str]
) -> None:
    code, cause = expected

    async def scenario() -> None:
        async with supervising(tmp_path, watchdog=QUICK) as supervisor:
            victim = await supervisor.send("victim", at="decode", do=do)
            queued = await supervisor.send("queued")
            failed = await victim.end()
            assert isinstance(failed, Failed)
            assert (failed.error.code, failed.emitted) == (code, True)
            assert cause in failed.error.message
            assert "other requests go on" in failed.error.message
            assert isinstance(await queued.end(), Done)

    run(scenario())


def test_three_crashes_in_the_window_switch_the_model_off_with_the_reason(tmp_path: Path) -> None:
    async def scenario() -> None:
        broken = {"at": "load", "do": "abort", "lives": 3}
        async with supervising(tmp_path, watchdog=THREE, load=broken) as supervisor:
            waiting = await supervisor.send("waiting")
            assert await supervisor.settled() == "disabled"
            failed = await waiting.end()
            assert failed.error.code == "model_disabled"
            for part in ("3 crashes within 600 s", "GGML_ASSERT(planted)", "--ctx"):
                assert part in failed.error.message
            with pytest.raises(ModelDisabled, match="switched off after 3 crashes"):
                await supervisor.submit(request("later"))
            assert n_lives(tmp_path) == 3
            supervisor.enable()
            assert await supervisor.settled() == "ready"
            assert isinstance(await (await supervisor.send("again")).end(), Done)

    run(scenario())


def test_a_model_that_is_refused_is_switched_off_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with supervising(tmp_path, load={"at": "load", "do": "fail"}) as supervisor:
            waiting = await supervisor.send("waiting")
            assert "planted: unknown model architecture" in (await waiting.end()).error.message
            assert supervisor.state == "disabled"
            assert supervisor.problem is not None
            assert supervisor.problem.code == "model_load_failed"
            with pytest.raises(ModelDisabled, match="unknown model architecture"):
                await supervisor.submit(request("later"))
        assert n_lives(tmp_path) == 1

    run(scenario())


def test_a_worker_program_that_cannot_be_started_is_a_crash(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with supervising(tmp_path, watchdog=THREE) as supervisor:
            await supervisor.settled()
            supervisor._spawner._command = [str(tmp_path / "nothing here")]
            os.kill(supervisor.worker_pid or 0, signal.SIGKILL)
            await supervisor.until(lambda: supervisor.state == "disabled")
            assert supervisor.problem is not None
            assert "could not be started: No such file" in supervisor.problem.message

    run(scenario())


# bounds


def test_the_queue_is_bounded_and_says_when_to_come_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with supervising(tmp_path, waiting=3, parallel=1) as supervisor:
            held = await supervisor.send("held", at="prefill", do="hold")
            queued = [await supervisor.send(f"queued {number}") for number in range(3)]
            with pytest.raises(Overloaded) as refused:
                await supervisor.submit(request("one too many"))
            assert refused.value.numbers["retry_after_s"] >= 1
            held.call.cancel()
            for client in queued:
                assert isinstance(await client.end(), Done)
            assert isinstance(await (await supervisor.send("fits again")).end(), Done)

    run(scenario())


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_text_that_cannot_be_passed_on_is_refused_and_leaves_no_trace(tmp_path: Path, text: str) -> None:
    async def scenario() -> None:
        async with supervising(tmp_path) as supervisor:
            with pytest.raises(InvalidRequest, match="cannot be passed on"):
                await supervisor.submit(replace(request("a"), text=text))
            assert supervisor._calls.n_open == 0

    run(scenario())


def test_llama_variables_do_not_reach_a_worker() -> None:
    seen = worker_environment({"PATH": "/bin", "GGML_NO_BACKTRACE": "0", "LLAMA_ARG_CTX": "1", "ggml_x": "1"})
    assert seen == {"PATH": "/bin", "GGML_NO_BACKTRACE": "1"}


# frames nobody waits for


@pytest.mark.parametrize("do", ["twice", "late"])
def test_frames_after_the_terminal_one_are_dropped_and_counted(tmp_path: Path, do: str) -> None:
    async def scenario() -> None:
        async with supervising(tmp_path) as supervisor:
            client = await supervisor.send("a", at="done", do=do)
            await client.end()
            await (await supervisor.send("b")).end()
            assert supervisor._calls.counts.dropped == 1
            assert client.call.n_unread == 0

    run(scenario())


# cancelling


async def _cancelled(client: Client) -> None:
    client.call.cancel()
    client.call.cancel()
    done = await client.end()
    assert isinstance(done, Done)
    assert done.cancelled


@pytest.mark.parametrize("stage", ["accept", "prefill", "decode"])
def test_cancel_reaches_a_running_request(tmp_path: Path, stage: str) -> None:
    async def scenario() -> None:
        async with supervising(tmp_path) as supervisor:
            client = await supervisor.send("a", at=stage, do="hold")
            behind = await supervisor.send("behind")
            if stage != "accept":
                await client.saw({"prefill": Progress, "decode": Delta}[stage])
            await _cancelled(client)
            assert isinstance(await behind.end(), Done)

    run(scenario())


def test_cancel_while_the_model_loads_ends_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        (tmp_path / "hold-load").touch()
        async with supervising(tmp_path) as supervisor:
            client = await supervisor.send("a")
            await _cancelled(client)
            assert supervisor.state == "loading"

    run(scenario())


def test_cancel_between_two_workers_ends_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with supervising(tmp_path, watchdog=replace(NEVER_OFF, backoff_s=20.0)) as supervisor:
            await supervisor.settled()
            os.kill(supervisor.worker_pid or 0, signal.SIGKILL)
            await supervisor.until(lambda: supervisor.state == "restarting")
            await _cancelled(await supervisor.send("a"))

    run(scenario())


def test_cancel_of_a_request_whose_worker_hangs_ends_when_the_worker_is_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with supervising(tmp_path, watchdog=QUICK) as supervisor:
            client = await supervisor.send("a", at="prefill", do="stop")
            await client.saw(Accepted)
            await _cancelled(client)

    run(scenario())


def test_cancel_of_a_request_the_worker_has_lost_ends_all_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with supervising(tmp_path, watchdog=QUICK) as supervisor:
            client = await supervisor.send("a", at="prefill", do="lose")
            await (await supervisor.send("b")).end()  # the worker is well
            await _cancelled(client)
            assert supervisor.n_restarts == 0

    run(scenario())


def test_cancel_after_the_end_changes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with supervising(tmp_path) as supervisor:
            client = await supervisor.send("a")
            await client.end()
            client.call.cancel()
            assert client.n_terminal == 1

    run(scenario())


# closing


CLOSINGS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "while it loads": ({"load": {"at": "load", "do": "deaf"}}, {}, "loading"),
    "while requests run and wait": ({}, {"at": "decode", "do": "hold"}, "ready"),
    "while the worker hangs": ({}, {"at": "prefill", "do": "stop"}, "ready"),
    "while it waits to start again": (
        {"watchdog": replace(NEVER_OFF, backoff_s=20.0)},
        {"at": "prefill", "do": "kill"},
        "restarting",
    ),
}


@pytest.mark.parametrize(("options", "script", "state"), CLOSINGS.values(), ids=CLOSINGS)
def test_closing_answers_everyone_and_leaves_no_process(
    tmp_path: Path, options: dict[str, Any], script: dict[str, Any], state: str
) -> None:
    async def scenario() -> None:
        async with supervising(tmp_path, **options) as supervisor:
            running = await supervisor.send("running", **script)
            waiting = await supervisor.send("waiting")
            await supervisor.until(lambda: supervisor.worker_pid is not None)
            pid = supervisor.worker_pid or 0
            if script:
                await running.saw(Delta if script["at"] == "decode" else Accepted)
            await supervisor.until(lambda: supervisor.state == state)
            await asyncio.gather(supervisor.close(), supervisor.close())
            for client in (running, waiting):
                assert (await client.end()).error.code == "shutting_down"
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
            with pytest.raises(ShuttingDown):
                await supervisor.submit(request("later"))

    run(scenario())


def test_closing_a_disabled_model(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with supervising(tmp_path, load={"at": "load", "do": "fail"}) as supervisor:
            assert await supervisor.settled() == "disabled"

    run(scenario())


# the watchdog lets those live that only take long


def test_a_worker_that_answers_pings_is_left_alone_however_long_a_request_takes(tmp_path: Path) -> None:
    async def scenario(kind: type[Watched]) -> int:
        watchdog: WatchdogOptions = replace(NEVER_OFF, ping_s=0.05, hang_s=0.4)
        async with supervising(tmp_path, watchdog=watchdog, kind=kind) as supervisor:
            client = await supervisor.send("slow", at="prefill", do="hold")
            pongs = supervisor.counted  # type: ignore[attr-defined]
            await supervisor.until(lambda: len(pongs) >= 20 or supervisor.n_restarts > 0)
            await _cancelled(client)
            return supervisor.n_restarts

    assert asyncio.run(scenario(_counting(lambda ping: ping))) == 0
    # control: the planted fault is a service whose pings never leave, so that no pong can come
    assert asyncio.run(scenario(_counting(lambda ping: None))) == 1


def _counting(passed: Callable[[Ping], Ping | None]) -> type[Watched]:
    class Counting(Watched):
        counted: list[Any]

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.counted = []
            super().__init__(*args, **kwargs)

        def _tell(self, frame: Any) -> None:
            if not isinstance(frame, Ping) or passed(frame) is not None:
                super()._tell(frame)

        def _on_frame(self, frame: Any) -> None:
            if type(frame).__name__ == "Pong":
                self.counted.append(frame)
            super()._on_frame(frame)

    return Counting
