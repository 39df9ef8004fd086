"""One render child for the prompt tests of this folder, and the starter model's vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.worker.renderer import Renderer


@pytest.fixture(scope="session")
def renderer() -> Iterator[Renderer]:
    owner = Renderer()
    yield owner
    owner.close()


@pytest.fixture(scope="session")
def starter(starter_model: Path) -> Iterator[object]:
    """The starter model with its vocabulary only."""
    from runtime.llama.model import Model

    with Model.load(starter_model, vocab_only=True) as model:
        yield model
