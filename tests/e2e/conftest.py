"""One real service for the tests of this folder: the starter model behind HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.config import EngineOptions
from runtime.private import PrivateService


@pytest.fixture(scope="session")
def service(starter_model: Path) -> Iterator[PrivateService]:
    # One thread: two would wait for each other whenever the test process works.
    with PrivateService(EngineOptions(str(starter_model), ctx=2048, threads=1), model="starter") as running:
        yield running
