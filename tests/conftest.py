"""Fixtures every folder shares: where the starter model is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def starter_model() -> Path:
    """The real starter model. Missing weights fail the test: a skip would hide that nothing was proved."""
    named = os.environ.get("HEADRACE_TEST_MODEL")
    if named:
        path = Path(named)
    else:
        from runtime.paths import starter_model_path

        path = starter_model_path()
    assert path.is_file(), f"the starter model is not at {path}: run `python3 packaging/start.py --setup-only`"
    return path
