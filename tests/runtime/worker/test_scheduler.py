"""The books balance after every step, and what the engine says equals what one sequence alone would say."""

from __future__ import annotations

from collections import Counter

import pytest
from fake_memory import EOG, FakeMemory, GreedyChain, continuation
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.request import Sampling
from runtime.worker.budget import StepBudget
from runtime.worker.engine import Cancellation, Engine, StopMet, Submission
from runtime.worker.plan import Event, PrefillEvent
from runtime.worker.runner import Runner
from runtime.worker.sampler import Picker
from runtime.worker.scheduler import Scheduler, SchedulerOptions


class Bench:
    """An engine over the fake memory, driven step by step, with everything it said."""

    def __init__(
        self, n_cells: int = 128, parallel: int = 4, n_batch: int = 64, *, eog_every: int = 0,
        scheduler: type[Scheduler] = Scheduler, nan_after: int | None = None, memory_cells: int | None = None,
    ) -> None:  # fmt: skip
        self.n_cells = n_cells
        self.memory = FakeMemory(memory_cells or n_cells, n_batch, eog_every=eog_every, nan_after=nan_after)
        n_ids = 2 * parallel + 1
        self.scheduler = scheduler(
            SchedulerOptions(parallel, n_ids, n_cells, frozenset({EOG})), StepBudget(0.1, n_batch)
        )
        self.runner = Runner(self.memory)
        self.said: dict[tuple[str, int], list[int]] = {}
        self.ended: dict[tuple[str, int], str] = {}
        self.n_ends: Counter[tuple[str, int]] = Counter()
        self.prefill_events = 0
        self.chains: list[GreedyChain] = []
        self.engine = Engine(self.scheduler, self.runner, self._hear)

    def _hear(self, events: list[Event | PrefillEvent], began: float) -> None:
        for event in events:
            if isinstance(event, PrefillEvent):
                self.prefill_events += 1
                continue
            key = event.request_id, event.index
            if event.token >= 0:
                self.said.setdefault(key, []).append(event.token)
            if event.reason:
                self.ended[key] = event.reason
                self.n_ends[key] += 1

    def submit(self, name: str, prompt: list[int], n_new: int, n: int = 1) -> None:
        chains = [GreedyChain() for _ in range(n)]
        self.chains += chains
        pickers = tuple(Picker(chain, Sampling(temperature=0), lambda token: b"") for chain in chains)
        limit = min(len(prompt) + n_new, self.n_cells)
        self.engine._read(Submission(name, list(prompt), limit, pickers))

    def step(self) -> None:
        self.engine._deliver(self.engine.step())
        self.scheduler.check()
        # A finished sequence's cells are free in the books now and in memory at the next step's drops.
        leaving = set(self.scheduler._drops)
        assert self.scheduler.cells.used == sum(bool(cell.owners - leaving) for cell in self.memory.cells)

    def run(self, at_most: int = 20_000) -> None:
        for _ in range(at_most):
            if not self.scheduler.has_work:
                break
            self.step()
        assert not self.scheduler.has_work, "the engine does not come to an end"

    def close(self) -> None:
        self.runner.close()
        assert self.scheduler.cells.used == 0
        assert self.memory.n_used == 0
        assert all(chain.is_closed for chain in self.chains)


def prompt_of(seed: int, n: int) -> list[int]:
    return [(seed * 31 + i * 7) % 90 for i in range(n)]


def test_one_request_says_what_the_model_says() -> None:
    bench = Bench()
    bench.submit("a", prompt_of(1, 50), 20)
    bench.run()
    assert bench.said["a", 0] == continuation(prompt_of(1, 50), 20)
    assert bench.ended["a", 0] == "length"
    bench.close()


def test_an_end_of_generation_token_stops_and_is_not_said() -> None:
    bench = Bench(eog_every=5)
    bench.submit("a", prompt_of(2, 10), 100)
    bench.run()
    assert bench.said.get(("a", 0), []) == continuation(prompt_of(2, 10), 100, eog_every=5)
    assert bench.ended["a", 0] == "stop"
    bench.close()


def test_decode_rows_come_before_a_long_prompt() -> None:
    bench = Bench(n_cells=600)
    bench.submit("chat", prompt_of(1, 8), 60)
    bench.step()
    bench.submit("long", prompt_of(2, 400), 1)
    before = len(bench.said["chat", 0])
    n_steps = 0
    while ("long", 0) not in bench.ended:
        bench.step()
        n_steps += 1
    assert n_steps > 4, "the prompt was not cut into chunks"
    assert len(bench.said["chat", 0]) - before == n_steps
    bench.run()
    bench.close()


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    bench = Bench(n_cells=1000)
    bench.submit("long", prompt_of(2, 800), 1)
    bench.step()
    bench.submit("short", prompt_of(3, 20), 1)
    bench.step()
    bench.step()
    assert ("short", 0) in bench.ended
    assert ("long", 0) not in bench.ended
    bench.run()
    bench.close()


def test_choices_share_one_prompt() -> None:
    bench = Bench(n_cells=300, parallel=3)
    bench.submit("a", prompt_of(1, 90), 10, n=8)
    bench.run()
    assert {tuple(bench.said["a", i]) for i in range(8)} == {tuple(continuation(prompt_of(1, 90), 10))}
    assert bench.memory.n_shared == 8
    bench.close()


def test_choices_of_a_one_token_prompt_need_no_trunk() -> None:
    bench = Bench()
    bench.submit("a", [5], 4, n=3)
    bench.run()
    assert [bench.said["a", i] for i in range(3)] == [continuation([5], 4)] * 3
    bench.close()


def test_preemption_loses_nothing() -> None:
    bench = Bench(n_cells=120, parallel=4)
    for i in range(4):
        bench.submit(f"r{i}", prompt_of(i, 20), 60)
    bench.run()
    for i in range(4):
        assert bench.said[f"r{i}", 0] == continuation(prompt_of(i, 20), 60)
    assert bench.scheduler.n_preempted > 0, "nothing was preempted: the test proves nothing"
    print(f"preempted {bench.scheduler.n_preempted} times")
    bench.close()


def test_the_oldest_is_never_preempted() -> None:
    bench = Bench(n_cells=100, parallel=4)
    bench.submit("old", prompt_of(0, 20), 75)
    n_steps = 0
    for i in range(3):
        bench.submit(f"young{i}", prompt_of(i + 1, 20), 70)
    while ("old", 0) not in bench.ended:
        bench.step()
        n_steps += 1
    assert bench.scheduler.n_preempted > 0
    assert n_steps <= 80, "the oldest had to start again"
    bench.run()
    bench.close()


def test_a_prompt_that_fills_the_context_gets_one_token() -> None:
    bench = Bench(n_cells=128)
    bench.submit("full", prompt_of(1, 127), 50)
    bench.run()
    assert bench.said["full", 0] == continuation(prompt_of(1, 127), 1)
    assert bench.ended["full", 0] == "length"
    bench.close()


def test_zero_new_tokens_only_compute_the_prompt() -> None:
    bench = Bench()
    bench.submit("warm", prompt_of(1, 40), 0)
    bench.run()
    assert ("warm", 0) not in bench.said
    assert bench.ended["warm", 0] == "length"
    bench.close()


def test_cancelling_inside_a_prefill_stops_within_one_chunk() -> None:
    bench = Bench(n_cells=2000)
    bench.submit("long", prompt_of(1, 1500), 5)
    bench.step()
    bench.engine._read(Cancellation("long"))
    assert bench.ended["long", 0] == "cancelled"
    decodes = bench.memory.n_decodes
    bench.run()
    assert bench.memory.n_decodes == decodes
    bench.close()


def test_a_cancellation_that_overtakes_its_request_still_counts() -> None:
    bench = Bench()
    bench.engine.cancel("early")
    bench.submit("early", prompt_of(1, 10), 5)
    assert bench.ended["early", 0] == "cancelled"
    bench.run()
    assert bench.memory.n_decodes == 0
    bench.close()


def test_numbers_that_are_not_finite_end_one_request_only() -> None:
    bench = Bench(nan_after=30)
    bench.submit("short", prompt_of(1, 5), 10)
    bench.submit("long", prompt_of(2, 40), 10)
    bench.run()
    assert bench.ended == {("short", 0): "length", ("long", 0): "numeric_error"}
    assert bench.said["short", 0] == continuation(prompt_of(1, 5), 10)
    bench.close()


def test_a_request_whose_one_choice_fails_leaves_no_other_choice_running() -> None:
    bench = Bench(nan_after=45)
    bench.submit("a", prompt_of(2, 40), 60, n=3)
    bench.run()
    assert "numeric_error" in {bench.ended["a", i] for i in range(3) if ("a", i) in bench.ended}
    assert sum(len(bench.said.get(("a", i), [])) for i in range(3)) <= 3 * 6
    bench.close()


def test_memory_with_fewer_cells_than_the_books_say_costs_preemptions_not_replies() -> None:
    bench = Bench(n_cells=200, parallel=3, memory_cells=120)
    for i in range(3):
        bench.submit(f"r{i}", prompt_of(i, 20), 60)
    bench.run()
    for i in range(3):
        assert bench.said[f"r{i}", 0] == continuation(prompt_of(i, 20), 60)
    assert bench.scheduler.n_preempted > 0
    bench.close()


class ForgetsToGiveBack(Scheduler):
    """Planted fault: a finished sequence's cells stay booked."""

    def _release(self, sequence):  # type: ignore[no-untyped-def]
        used = self._book.used
        super()._release(sequence)
        self._book.used = used


class SharesTooMuch(Scheduler):
    """Planted fault: a fork is told that it sees one cell more than the trunk has computed."""

    def _shareable(self, sequence):  # type: ignore[no-untyped-def]
        n = super()._shareable(sequence)
        return n - 1 if n else 0


@pytest.mark.parametrize("fault", [ForgetsToGiveBack, SharesTooMuch], ids=lambda fault: fault.__name__)
def test_the_checks_see_a_planted_fault(fault: type[Scheduler]) -> None:
    bench = Bench(n_cells=300, scheduler=fault)
    with pytest.raises(AssertionError):  # noqa: PT012 - any step may be the one that notices
        bench.submit("a", prompt_of(1, 40), 5, n=3)
        bench.run()
        bench.close()
    bench.runner.close()


REQUEST = st.tuples(st.integers(1, 60), st.integers(0, 30), st.integers(1, 3))
ACTION = st.one_of(
    st.tuples(st.just("submit"), REQUEST),
    st.tuples(st.just("cancel"), st.integers(0, 30)),
    st.tuples(st.just("stop"), st.tuples(st.integers(0, 30), st.integers(0, 2))),
    st.tuples(st.just("step"), st.integers(1, 6)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(ACTION, min_size=5, max_size=60), st.integers(70, 160), st.integers(1, 5))
def test_any_order_of_events_keeps_books_and_texts(actions: list, n_cells: int, parallel: int) -> None:
    bench = Bench(n_cells=n_cells, parallel=parallel)
    asked: dict[str, tuple[list[int], int, int]] = {}
    disturbed: set[tuple[str, int]] = set()
    for verb, value in actions:
        if verb == "submit":
            name = f"r{len(asked)}"
            prompt = prompt_of(len(asked), min(value[0], n_cells - 1))
            asked[name] = prompt, value[1], value[2]
            bench.submit(name, prompt, value[1], value[2])
        elif verb == "cancel":
            bench.engine._read(Cancellation(f"r{value}"))
            disturbed |= {(f"r{value}", i) for i in range(3)}
        elif verb == "stop":
            bench.engine._read(StopMet(f"r{value[0]}", value[1]))
            disturbed.add((f"r{value[0]}", value[1]))
        else:
            for _ in range(value):
                if bench.scheduler.has_work:
                    bench.step()
    bench.run()
    for name, (prompt, n_new, n) in asked.items():
        for i in range(n):
            expected = continuation(prompt, min(n_new, n_cells - len(prompt)))
            said = bench.said.get((name, i), [])
            if (name, i) in disturbed:
                assert said == expected[: len(said)]
            else:
                assert said == expected
                assert bench.n_ends[name, i] == 1
    # The truth test: after anything, a full context still decodes.
    bench.submit("truth", prompt_of(99, n_cells - 1), 1)
    bench.run()
    assert bench.ended["truth", 0] == "length"
    bench.close()
