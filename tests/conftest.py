"""Fixtures every folder shares: where the starter model is."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

# A background job of a shell inherits "ignore" for these, and so would every program the tests start and then stop.
for _name in ("SIGINT", "SIGHUP"):
    _number = getattr(signal, _name, None)
    if _number is not None and signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _name == "SIGINT" else signal.SIG_DFL)


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
