"""What is counted, and that all of it is described."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from asgi_call import HOST, AsgiCall, call
from fakes import WORDS, FakeBackend, Script
from prometheus_client.parser import text_string_to_metric_families
from service_bench import CHAT, TEXT, USER, application, run

from runtime.errors import Overloaded
from runtime.frames import EngineStats
from runtime.service.metrics import STATES, Metrics, buckets

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


class Steps:
    """A clock that goes on by `step` whenever it is read."""

    def __init__(self, step: float) -> None:
        self.now = 0.0
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


async def scrape(app: Any) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = (await call(app, "GET", "/metrics", headers=(HOST,))).body.decode()
    families = text_string_to_metric_families(text)
    return {
        (sample.name.removeprefix("headrace_"), tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_requests_and_tokens_are_counted() -> None:
    async def body() -> None:
        app = application(FakeBackend())
        await call(app, "POST", CHAT, {"messages": USER, "stream": True})
        await call(app, "POST", TEXT, {"prompt": ["a", "b c"], "n": 2})
        await call(app, "POST", CHAT, {"messages": []})
        await call(app, "GET", "/made/up/by/a/client")
        await call(app, "GET", "/v1/health", headers=((b"host", b"evil.com"),))
        seen = await scrape(app)
        count = {key[1]: value for key, value in seen.items() if key[0] == "requests_total"}
        assert count == {
            (("route", "/chat/completions"), ("status", "200")): 1,
            (("route", "/completions"), ("status", "200")): 1,
            (("route", "/chat/completions"), ("status", "400")): 1,
            (("route", "other"), ("status", "404")): 1,
            (("route", "other"), ("status", "403")): 1,
        }
        assert seen["prompt_tokens_total", ()] == 2 + 1 + 2
        assert seen["cached_tokens_total", ()] == 2 * 3
        assert seen["generated_tokens_total", ()] == len(WORDS) * (1 + 2 + 2)
        assert seen["time_to_first_token_seconds_count", ()] == 3
        assert seen["token_gap_seconds_count", ()] == (len(WORDS) - 1) * 5
        assert seen["request_duration_seconds_count", ()] == 2
        assert seen["prefill_tokens_per_second_count", ()] == 3
        assert seen["decode_tokens_per_second_count", ()] == 3
        assert (seen["requests_running", ()], seen["requests_waiting", ()]) == (0, 0)

    run(body)


def test_waiting_becomes_running_becomes_nothing() -> None:
    async def body() -> None:
        backend = FakeBackend(Script(hold_accept=True))
        app = application(backend)
        waiting = AsgiCall(app, "POST", CHAT, {"messages": USER})
        await backend.submitted.wait()
        await backend.replies[0].at_hold.wait()
        seen = await scrape(app)
        assert (seen["requests_running", ()], seen["requests_waiting", ()]) == (0, 1)
        waiting.leave()
        await waiting.end()

        backend.script, backend.submitted = Script(hold_at=1), type(backend.submitted)()
        running = AsgiCall(app, "POST", CHAT, {"messages": USER})
        await backend.submitted.wait()
        await backend.replies[1].at_hold.wait()
        seen = await scrape(app)
        assert (seen["requests_running", ()], seen["requests_waiting", ()]) == (1, 0)
        running.leave()
        await running.end()

        seen = await scrape(app)
        assert (seen["requests_running", ()], seen["requests_waiting", ()]) == (0, 0)
        gone = (("route", "/chat/completions"), ("status", "499"))
        assert seen["requests_total", gone] == 2
        assert seen["generated_tokens_total", ()] == 1

    run(body)


@pytest.mark.parametrize("fault", ["fail", "skip_terminal", "refused second prompt"])
def test_gauges_come_back_to_zero_after_a_failure(fault: str) -> None:
    async def body() -> None:
        backend = FakeBackend(Script(fail_at=2) if fault == "fail" else Script(skip_terminal=True))
        if fault == "refused second prompt":
            backend.refusal, backend.refuse_after = Overloaded("full"), 1
        app = application(backend)
        prompts = ["a"] if fault == "fail" else ["a", "b"]
        assert (await call(app, "POST", TEXT, {"prompt": prompts})).status in (429, 500)
        seen = await scrape(app)
        assert (seen["requests_running", ()], seen["requests_waiting", ()]) == (0, 0)
        if fault == "fail":
            assert seen["generated_tokens_total", ()] == 2

    run(body)


def test_the_gap_is_shared_by_tokens_that_come_together() -> None:
    """Two tokens in each frame, one second between frames: gaps of half a second."""

    async def body() -> None:
        backend = FakeBackend(Script(words=("a",) * 6, per_delta=2))
        metrics = Metrics(backend, model="m", version="v")
        meter = metrics.meter(1, 0.0, Steps(1.0))
        from runtime.request import ChatRequest

        async for frame in await backend.submit(ChatRequest("r", text="x")):
            meter.on(frame)
        meter.end()
        text = metrics.text().decode()
        assert "headrace_token_gap_seconds_count 4.0" in text
        assert "headrace_token_gap_seconds_sum 2.0" in text
        assert "headrace_time_to_first_token_seconds_sum 1.0" in text

    run(body)


def test_an_echoed_prompt_is_not_a_first_token() -> None:
    async def body() -> None:
        backend = FakeBackend(Script(words=()))
        app = application(backend)
        await call(app, "POST", TEXT, {"prompt": "a", "echo": True})
        assert (await scrape(app))["time_to_first_token_seconds_count", ()] == 0

    run(body)


def test_what_the_backend_says_of_itself() -> None:
    async def body() -> None:
        backend = FakeBackend()
        backend.state, backend.loading, backend.n_restarts = "restarting", 0.5, 3
        backend.stats = EngineStats(
            cells_used=7,
            cells_total=64,
            n_steps=9,
            n_preempted=2,
            longest_step_s=0.25,
            rss_bytes=1000,
            devices=(("CUDA0", 10, 20),),
        )
        seen = await scrape(application(backend))
        assert {state: seen["model_state", (("state", state),)] for state in STATES} == {
            **dict.fromkeys(STATES, 0.0),
            "restarting": 1.0,
        }
        assert seen["model_loaded_ratio", ()] == 0.5
        assert seen["worker_restarts_total", ()] == 3
        assert (seen["kv_cells_used", ()], seen["kv_cells_total", ()]) == (7, 64)
        assert (seen["preemptions_total", ()], seen["engine_steps_total", ()]) == (2, 9)
        assert seen["longest_step_seconds", ()] == 0.25
        assert seen["process_resident_bytes", (("process", "worker"),)] == 1000
        assert seen["process_resident_bytes", (("process", "service"),)] > 1_000_000
        assert seen["device_memory_free_bytes", (("device", "CUDA0"),)] == 10
        assert seen["device_memory_total_bytes", (("device", "CUDA0"),)] == 20

    run(body)


def test_each_application_counts_for_itself() -> None:
    async def body() -> None:
        first, second = application(FakeBackend()), application(FakeBackend())
        await call(first, "POST", CHAT, {"messages": USER})
        assert (await scrape(first))["generated_tokens_total", ()] == len(WORDS)
        assert (await scrape(second))["generated_tokens_total", ()] == 0

    run(body)


def test_buckets_are_fine_enough_for_percentiles() -> None:
    bounds = buckets(0.001, 750)
    assert bounds[0] == 0.001
    assert bounds[-1] == 750
    assert all(high / low < 1.7 for low, high in itertools.pairwise(bounds))


def exported() -> set[str]:
    """Names as the exposition declares them."""
    text = Metrics(FakeBackend(), model="m", version="v").text().decode()
    return set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))


def documented(page: str) -> set[str]:
    return set(re.findall(r"^\| `(headrace_\w+)`", page, re.MULTILINE))


def test_every_metric_is_described_and_every_description_is_of_a_metric() -> None:
    assert len(exported()) >= 20
    assert documented(PAGE.read_text()) == exported()


def test_control_a_missing_description_is_noticed() -> None:
    """Planted fault: one row of the page is gone."""
    page = PAGE.read_text().replace("| `headrace_kv_cells_used`", "| kv cells used")
    assert exported() - documented(page) == {"headrace_kv_cells_used"}
