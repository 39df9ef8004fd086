"""What start.py decides from its arguments, its stamps and the machine."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import start_main
import start_window
from start_llama import Tools
from start_places import Places, find
from start_run import Log
from start_say import Voice


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    return Tools(Places(tmp_path, tmp_path / "data"), Voice(io.StringIO()), Log(tmp_path / "log"), {})


def test_arguments_after_two_dashes_are_the_programs() -> None:
    options, rest = start_main.parse(["test", "--setup-only", "--", "-k", "river"])
    assert (options.command, options.setup_only, rest) == ("test", True, ["-k", "river"])


def test_an_unknown_option_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        start_main.parse(["--backnd", "cpu"])
    assert ended.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_without_a_terminal_one_question_is_answered(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert start_main.program(tools, [], window=False)[-2:] == ["-p", start_main.SAMPLE_QUESTION]
    assert start_main.program(tools, ["-p", "mine"], window=False)[-2:] == ["-p", "mine"]
    assert start_main.program(tools, [], window=True)[-1] == "app.main"


def test_stamps_survive_and_damage_counts_as_not_done(tmp_path: Path) -> None:
    path = tmp_path / "setup.json"
    start_main.Stamps(path).put("llama", "abc")
    assert start_main.Stamps(path).get("llama") == "abc"
    path.write_bytes(b"\0\0{")
    assert start_main.Stamps(path).get("llama") is None


def test_another_request_for_a_build_is_another_stamp() -> None:
    stamps = {
        start_main.llama_stamp(start_main.parse(words)[0])
        for words in ([], ["--portable"], ["--backend", "cuda"], ["--wheels", "/w"])
    }
    assert len(stamps) == 4


@pytest.mark.parametrize(
    ("environment", "platform", "expected"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({}, "darwin", True),
        ({}, "win32", True),
    ],
)
def test_has_display(environment: dict[str, str], platform: str, expected: bool) -> None:
    assert start_window.has_display(environment, platform) is expected


LDD = """
	linux-vdso.so.1 (0x00007ffc)
	libxcb-cursor.so.0 => not found
	libxcb.so.1 => /lib/x86_64-linux-gnu/libxcb.so.1 (0x00007f)
	libxcb-icccm.so.4 => not found
	libxcb-cursor.so.0 => not found
"""


def test_missing_libraries_become_packages() -> None:
    missing = start_window.missing_libraries(LDD)
    assert missing == ["libxcb-cursor.so.0", "libxcb-icccm.so.4"]
    assert start_window.packages_for(missing, "apt-get") == ["libxcb-cursor0", "libxcb-icccm4"]
    assert start_window.packages_for(missing, "dnf") == ["xcb-util-cursor", "xcb-util-wm"]


def test_without_root_the_one_command_is_named(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_window, "_root_prefix", lambda: None)
    monkeypatch.setattr(start_window.shutil, "which", lambda name: "/usr/bin/apt-get" if name == "apt-get" else None)
    assert not start_window._install(tools, ["libxcb-cursor.so.0"])
    said = tools.voice._out.getvalue()  # type: ignore[attr-defined]
    assert "sudo apt-get install -y --no-install-recommends libxcb-cursor0" in said
    assert "terminal" in said


def test_a_home_that_cannot_be_written_is_replaced(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    places = find(tmp_path, {"HEADRACE_HOME": str(blocked / "deep")}, "linux")
    assert places.data == tmp_path / ".venv" / "headrace"
    assert "HEADRACE_HOME" in places.note


def test_the_models_folder_is_the_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from runtime import paths

    for environment in ({"HEADRACE_HOME": str(tmp_path / "a")}, {"XDG_DATA_HOME": str(tmp_path / "b")}):
        monkeypatch.delenv("HEADRACE_HOME", raising=False)
        monkeypatch.delenv("XDG_DATA_HOME", raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert find(tmp_path, environment, "linux").starter_model == paths.starter_model_path()
