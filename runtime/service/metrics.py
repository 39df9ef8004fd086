"""Prometheus metrics of one service: a registry of its own, counted as frames pass, asked for the rest at each scrape.

docs/metrics.md describes every metric; a test holds the two together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final, Protocol, runtime_checkable

import psutil
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from runtime.frames import Accepted, ChoiceDone, Delta, Done, Failed, Progress
from runtime.service.backend import Backend, ReplyFrame
from runtime.service.tally import per_second

STATES: Final = ("loading", "ready", "restarting", "disabled", "closed")
CLIENT_GONE: Final = 499

# Steps no wider than half, so that a p99 read from them means something.
STEPS: Final = (1.0, 1.5, 2.0, 3.0, 5.0, 7.5)


def buckets(first: float, last: float) -> tuple[float, ...]:
    """From `first` to `last`, both of which are 1 to 7.5 times a power of ten."""
    decades = (round(step * 10.0**power, 9) for power in range(-4, 6) for step in STEPS)
    return tuple(bound for bound in decades if first <= bound <= last)


SPEED: Final = buckets(1, 75_000)

# The time a counter was made is one more series for each, and nothing here can be read from it.
disable_created_metrics()  # type: ignore[no-untyped-call]


@runtime_checkable
class CountsRestarts(Protocol):
    """A backend that knows how often its worker was started again."""

    @property
    def n_restarts(self) -> int: ...


class Metrics:
    """Belongs to the event loop's thread."""

    def __init__(self, backend: Backend, *, model: str, version: str) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter("headrace_requests", "HTTP requests answered", ["route", "status"], registry=registry)
        self.prompt_tokens = Counter("headrace_prompt_tokens", "Prompt tokens of replies", registry=registry)
        self.cached_tokens = Counter("headrace_cached_tokens", "Prompt tokens not computed again", registry=registry)
        self.generated_tokens = Counter("headrace_generated_tokens", "Tokens generated", registry=registry)
        self.running = Gauge("headrace_requests_running", "Prompts being computed or answered", registry=registry)
        self.waiting = Gauge("headrace_requests_waiting", "Prompts not yet begun", registry=registry)
        self.first = _histogram(registry, "time_to_first_token_seconds", "From request to text", buckets(0.001, 750))
        self.gap = _histogram(registry, "token_gap_seconds", "Between tokens of one choice", buckets(0.001, 75))
        self.duration = _histogram(registry, "request_duration_seconds", "From request to end", buckets(0.001, 1000))
        self.prefill = _histogram(registry, "prefill_tokens_per_second", "Prompt speed of each reply", SPEED)
        self.decode = _histogram(
            registry, "decode_tokens_per_second", "Speed of each reply after its first token", SPEED
        )
        build = Gauge("headrace_build_info", "Always 1; what runs", ["version", "model"], registry=registry)
        build.labels(version, model).set(1)
        registry.register(_BackendCollector(backend))

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def count(self, route: str, status: int) -> None:
        self.requests.labels(route, str(status)).inc()

    def meter(self, n_choices: int, began: float, clock: Callable[[], float] = time.monotonic) -> Meter:
        return Meter(self, n_choices, began, clock)


class Meter:
    """Follows the frames of one prompt of `n_choices`. `end` must be called once, whatever happened."""

    def __init__(self, metrics: Metrics, n_choices: int, began: float, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._n_choices = n_choices
        self._clock = clock
        self._began = began
        self._computing = False
        self._spoke = False
        self._last: dict[int, float] = {}
        self._n_prompt = 0
        self._n_seen = 0
        self._counted = False
        metrics.waiting.inc()

    def on(self, frame: ReplyFrame) -> None:
        match frame:
            case Delta():
                self._on_delta(frame)
            case Progress() | ChoiceDone():
                self._compute()
            case Accepted():
                self._n_prompt = frame.n_prompt
            case Done():
                self._on_done(frame)
            case Failed():
                self._count(self._n_prompt, 0, self._n_seen)

    def end(self) -> None:
        """The prompt is neither waiting nor running any more."""
        (self._metrics.running if self._computing else self._metrics.waiting).dec()
        self._count(self._n_prompt, 0, self._n_seen)

    def _compute(self) -> None:
        if not self._computing:
            self._computing = True
            self._metrics.waiting.dec()
            self._metrics.running.inc()

    def _on_delta(self, delta: Delta) -> None:
        now = self._clock()
        self._compute()
        if delta.n_tokens <= 0:
            return  # an echoed prompt
        if not self._spoke:
            self._spoke = True
            self._metrics.first.observe(now - self._began)
        self._n_seen += delta.n_tokens
        last = self._last.get(delta.index)
        self._last[delta.index] = now
        if last is not None:
            # Tokens that became visible together share the time since the ones before.
            gap = (now - last) / delta.n_tokens
            for _ in range(delta.n_tokens):
                self._metrics.gap.observe(gap)

    def _on_done(self, done: Done) -> None:
        self._count(done.n_prompt, done.n_cached, done.n_generated)
        timings = done.timings
        if timings.prompt_ms > 0 and timings.prompt_n > 0:
            self._metrics.prefill.observe(per_second(timings.prompt_n, timings.prompt_ms))
        n_timed = done.n_generated - self._n_choices
        if timings.predicted_ms > 0 and n_timed > 0:
            self._metrics.decode.observe(per_second(n_timed, timings.predicted_ms))

    def _count(self, n_prompt: int, n_cached: int, n_generated: int) -> None:
        if self._counted:
            return
        self._counted = True
        self._metrics.prompt_tokens.inc(n_prompt)
        self._metrics.cached_tokens.inc(n_cached)
        self._metrics.generated_tokens.inc(n_generated)


class _BackendCollector(Collector):
    """What the backend and this process say of themselves when a scrape asks."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._process = psutil.Process()

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        backend, stats = self._backend, self._backend.stats
        state = GaugeMetricFamily("headrace_model_state", "1 for the state the model is in", labels=["state"])
        for name in STATES:
            state.add_metric([name], float(backend.state == name))
        yield state
        yield GaugeMetricFamily("headrace_model_loaded_ratio", "Weights read so far", value=backend.loading)
        yield GaugeMetricFamily("headrace_kv_cells_used", "KV cells in use", value=stats.cells_used)
        yield GaugeMetricFamily("headrace_kv_cells_total", "KV cells there are", value=stats.cells_total)
        yield CounterMetricFamily("headrace_preemptions", "Sent back to wait for cells", value=stats.n_preempted)
        yield CounterMetricFamily("headrace_engine_steps", "Batches decoded", value=stats.n_steps)
        yield GaugeMetricFamily("headrace_longest_step_seconds", "Longest batch so far", value=stats.longest_step_s)
        restarts = backend.n_restarts if isinstance(backend, CountsRestarts) else 0
        yield CounterMetricFamily("headrace_worker_restarts", "Workers started in place of a dead one", value=restarts)
        resident = GaugeMetricFamily("headrace_process_resident_bytes", "Memory of our processes", labels=["process"])
        resident.add_metric(["service"], self._process.memory_info().rss)
        resident.add_metric(["worker"], stats.rss_bytes)
        yield resident
        free = GaugeMetricFamily("headrace_device_memory_free_bytes", "Free memory of a device", labels=["device"])
        total = GaugeMetricFamily("headrace_device_memory_total_bytes", "Memory of a device", labels=["device"])
        for device, free_bytes, total_bytes in stats.devices:
            free.add_metric([device], free_bytes)
            total.add_metric([device], total_bytes)
        yield from (free, total)


def _histogram(registry: CollectorRegistry, name: str, words: str, buckets: tuple[float, ...]) -> Histogram:
    return Histogram(f"headrace_{name}", words, buckets=buckets, registry=registry)
