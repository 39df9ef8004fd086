"""Chunks end where a saved block would, and the budget follows what steps really cost."""

from __future__ import annotations

import pytest

from runtime.worker.budget import StepBudget, chunk_end


@pytest.mark.parametrize(
    ("start", "known", "allowed", "end"),
    [
        (0, 1000, 300, 256),
        (256, 1000, 100, 320),
        (250, 1000, 3, 253),
        (0, 100, 300, 100),
        (0, 2000, 600, 512),
        (512, 2000, 256, 768),
        (448, 2000, 64, 512),
        (10, 1000, 0, 10),
    ],
)
def test_chunk_end(start: int, known: int, allowed: int, end: int) -> None:
    assert chunk_end(start, known, allowed) == end


def test_running_chats_shrink_the_step() -> None:
    budget = StepBudget(0.25, 2048)
    budget.observe(256, 1.28)  # 5 ms a token
    assert budget.tokens(others_decode=True) == 64
    assert budget.tokens(others_decode=False) == 192


def test_a_fast_device_gets_whole_batches() -> None:
    budget = StepBudget(0.25, 2048)
    budget.observe(512, 0.05)
    assert budget.tokens(others_decode=True) == 2048


def test_a_slow_device_still_gets_a_grain() -> None:
    budget = StepBudget(0.25, 2048)
    budget.observe(64, 60.0)
    assert budget.tokens(others_decode=True) == 64


def test_small_chunks_do_not_teach() -> None:
    budget = StepBudget(0.25, 2048)
    budget.observe(3, 10.0)
    assert budget.seconds_per_token == 0
