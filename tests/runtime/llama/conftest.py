"""The starter model, loaded once, and contexts that end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from runtime.llama.context import Context, ContextOptions
from runtime.llama.model import Model

Feed = Callable[..., np.ndarray]


@pytest.fixture(scope="session")
def model(starter_model: Path) -> Iterator[Model]:
    with Model.load(starter_model) as loaded:
        yield loaded


@pytest.fixture
def make_context(model: Model) -> Iterator[Callable[..., Context]]:
    """`make_context(n_ctx=…)`: small, one thread, closed at the end of the test."""
    made: list[Context] = []

    def make(*, of: Model | None = None, **settings: object) -> Context:
        options = {"n_ctx": 512, "n_batch": 256, "n_ubatch": 64, "n_seq_max": 4, "threads": 1} | settings
        made.append(Context(of or model, ContextOptions(**options)))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for context in made:
        context.close()


@pytest.fixture
def feed() -> Feed:
    """`feed(context, seq, tokens, start)` decodes in one batch and returns a copy of the last row's logits."""

    def run(context: Context, seq: int, tokens: Sequence[int], start: int = 0) -> np.ndarray:
        rows, n = context.rows, len(tokens)
        rows.token[:n], rows.seq[:n], rows.output[:n] = tokens, seq, 0
        rows.pos[:n] = np.arange(start, start + n)
        rows.output[n - 1] = 1
        context.decode(n)
        return context.logits(1)[0].copy()

    return run


@pytest.fixture(scope="session")
def long_ids(model: Model) -> list[int]:
    """400 tokens of English, no two stretches alike."""
    text = " ".join(f"In the year {1700 + 3 * i} mill number {i} ground {7 * i} sacks of wheat." for i in range(60))
    return model.vocab.tokenize(text, add_special=True, parse_special=False)[:400]
