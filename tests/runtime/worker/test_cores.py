"""Threads give way to busy programs and come back when these end."""

from __future__ import annotations

import pytest

from runtime.worker.cores import ThreadGovernor, Usage, thread_count, usage_now


class FakeMachine:
    """Two cores; `others` of them are kept busy by other programs, ours take the rest."""

    def __init__(self) -> None:
        self.now = self.everyone = self.ours = 0.0
        self.others = 0.0

    def usage(self) -> Usage:
        return Usage(self.now, self.everyone, self.ours)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.ours += seconds * (2 - self.others)
        self.everyone += seconds * 2


@pytest.fixture
def machine() -> FakeMachine:
    return FakeMachine()


def governor_of(machine: FakeMachine, most: int = 2) -> ThreadGovernor:
    return ThreadGovernor(most, machine.usage, lambda: machine.now)


def run(governor: ThreadGovernor, machine: FakeMachine, seconds: float) -> int:
    for _ in range(int(seconds / 0.1)):
        machine.pass_time(0.1)
        governor.threads()
    return governor.threads()


def test_a_busy_program_takes_a_thread_and_gives_it_back(machine: FakeMachine) -> None:
    governor = governor_of(machine)
    assert run(governor, machine, 1) == 2
    machine.others = 1.0
    assert run(governor, machine, 1) == 1
    machine.others = 0.0
    assert run(governor, machine, 1) == 2
    assert governor.n_changes == 2


def test_the_chats_own_client_takes_none(machine: FakeMachine) -> None:
    governor = governor_of(machine)
    machine.others = 0.3
    assert run(governor, machine, 2) == 2
    assert governor.n_changes == 0


def test_a_short_burst_takes_none(machine: FakeMachine) -> None:
    governor = governor_of(machine)
    for _ in range(10):
        machine.others = 1.5
        run(governor, machine, 0.3)
        machine.others = 0.0
        run(governor, machine, 1.0)
    assert governor.n_changes == 0


def test_the_count_does_not_flutter(machine: FakeMachine) -> None:
    governor = governor_of(machine)
    for _ in range(20):
        machine.others = 0.5 if machine.others == 0.35 else 0.35
        run(governor, machine, 0.5)
    assert governor.n_changes <= 1


def test_a_pause_says_nothing(machine: FakeMachine) -> None:
    governor = governor_of(machine)
    machine.others = 1.0
    machine.pass_time(60)
    assert governor.threads() == 2


@pytest.mark.parametrize(
    ("most", "others", "now", "expected"),
    [(1, 5.0, 1, 1), (4, 0.0, 4, 4), (4, 1.2, 4, 3), (4, 9.0, 4, 1), (8, 2.6, 8, 5), (2, 0.3, 1, 1), (2, 0.2, 1, 2)],
)
def test_thread_count(most: int, others: float, now: int, expected: int) -> None:
    assert thread_count(most, others, now) == expected


def test_the_real_figures_grow() -> None:
    before, after = usage_now(), usage_now()
    assert after.at >= before.at
    assert after.everyone >= 0
    assert after.ours >= before.ours
