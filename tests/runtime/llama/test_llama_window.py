"""Sliding-window memory of a real model (gemma 3, window 512): what can be put back and what must be refused."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from runtime.llama.errors import CutRefused
from runtime.llama.model import Model

pytestmark = [pytest.mark.slow, pytest.mark.weights]

N = 700


@pytest.fixture(scope="module")
def gemma():
    path = Path(os.environ.get("HEADRACE_TEST_GEMMA", ""))
    assert path.is_file(), "set HEADRACE_TEST_GEMMA to a GGUF of gemma 3"
    with Model.load(path) as loaded:
        assert loaded.n_swa == 512
        yield loaded


@pytest.fixture(scope="module")
def ids(gemma):
    text = " ".join(f"In the year {1700 + 3 * i} mill number {i} ground {7 * i} sacks of wheat." for i in range(90))
    return gemma.vocab.tokenize(text, add_special=True, parse_special=False)[: N + 60]


@pytest.fixture
def prefilled(gemma, ids, make_context, feed):
    def make(**settings):
        context = make_context(of=gemma, n_ctx=4096, n_batch=1024, n_ubatch=128, **settings)
        for start in range(0, N, 128):
            feed(context, 0, ids[start : min(start + 128, N)], start)
        return context

    return make


@pytest.mark.parametrize("swa_full", [False, True], ids=["small pool", "full pool"])
def test_restored_is_never_saved_bit_for_bit_with_a_window(prefilled, ids, feed, swa_full):
    context = prefilled(swa_full=swa_full)
    data = bytes(context.save(0))
    expected = [feed(context, 0, [ids[N + i]], N + i) for i in range(3)]
    context.restore(1, data, N)
    assert context.pos_min(1) == N - 512
    got = [feed(context, 1, [ids[N + i]], N + i) for i in range(3)]
    assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))
    blocks = [(p0, min(p0 + 256, N)) for p0 in range(0, N, 256)]
    saved = [bytes(context.save_range(0, 3, p0, p1)) for p0, p1 in blocks]
    for (p0, p1), block in zip(blocks, saved, strict=True):
        context.restore_range(2, 3, block, p0, p1)
    got = [feed(context, 2, [ids[N + i]], N + i) for i in range(3)]
    assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))


def test_a_restored_state_is_not_cut_below_its_window(prefilled, ids, feed):
    context = prefilled(swa_full=True)
    context.restore(1, bytes(context.save(0)), N)
    with pytest.raises(CutRefused, match="a sliding window of 512 before token 600 is needed"):
        context.cut(1, 600)
    assert context.pos_max(1) == N - 1
    # The sequence that was never saved still holds everything.
    assert context.pos_min(0) == 0
    context.cut(0, 600)
    again = feed(context, 0, [ids[600]], 600)
    assert np.isfinite(again).all()
