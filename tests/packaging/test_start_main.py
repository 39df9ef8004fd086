"""What start.py decides from its arguments, its stamps and the machine."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
import start_main
import start_window
from start_llama import Wish
from start_places import Places, find
from start_run import Log
from start_say import SetupFailed, Voice
from start_tools import Tools
from start_venv import Stamps


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


def test_another_request_for_a_build_is_another_stamp() -> None:
    wishes = [Wish(), Wish(portable=True), Wish("cuda"), Wish(wheels=Path("/w"))]
    assert len({start_main.llama_stamp(wish, "record") for wish in wishes}) == 4
    assert start_main.llama_stamp(Wish(), "record") == start_main.llama_stamp(Wish(), "record")


def install_wheel(places: Places, record: str) -> None:
    folder = places.venv / "lib" / "python3.11" / "site-packages" / "llama_cpp_python-0.3.36.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "RECORD").write_text(record)
    with contextlib.suppress(FileExistsError):
        # As venv makes it on Linux; taken for a second installation, nothing would ever fit.
        (places.venv / "lib64").symlink_to("lib")


def test_a_build_that_was_replaced_or_removed_is_noticed(tools: Tools) -> None:
    stamps = Stamps(tools.places.stamps.with_name("absent"))
    assert not start_main.llama_fits(tools, stamps, Wish())
    install_wheel(tools.places, "ours")
    from start_venv import installed_llama

    stamps._values["llama"] = start_main.llama_stamp(Wish(), installed_llama(tools.places))
    assert start_main.llama_fits(tools, stamps, Wish())
    install_wheel(tools.places, "another build of the same version")
    assert not start_main.llama_fits(tools, stamps, Wish())


def test_another_processor_needs_another_build(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    before = start_main.llama_stamp(Wish(), "record")
    monkeypatch.setattr(start_main.start_machine, "features", lambda: ("sse3",))
    assert start_main.llama_stamp(Wish(), "record") != before


class FakePackages:
    """Counts what would be installed, by extras."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.installed: list[str] = []
        monkeypatch.setattr(start_main.start_venv, "install_project", self._install)
        monkeypatch.setattr(start_main.start_venv, "project_stamp", lambda root, extras, python: extras)

    def _install(self, tools: Tools, extras: str) -> None:
        self.installed.append(extras)


def test_packages_are_installed_once_and_those_of_the_tests_stay(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakePackages(monkeypatch)
    stamps = Stamps(tools.places.root / "stamps.json")
    for with_tests in (False, False, True, True, False):
        start_main.packages(tools, stamps, with_tests=with_tests)
    assert fake.installed == ["window", "window,test"]


def test_a_missing_compiler_is_said_before_anything_is_fetched(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakePackages(monkeypatch)

    def none() -> None:
        raise SetupFailed("There is no C++ compiler")

    monkeypatch.setattr(start_main.start_venv, "make", lambda tools, stamps: None)
    monkeypatch.setattr(start_main.start_machine, "inspect", none)
    with pytest.raises(SetupFailed, match="compiler"):
        start_main.set_up(tools, start_main.parse([])[0])
    assert not fake.installed


@pytest.mark.parametrize(
    ("environment", "platform", "expected"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({}, "darwin", True),
        ({"SSH_CONNECTION": "x"}, "darwin", False),
        ({}, "win32", True),
    ],
)
def test_has_display(environment: dict[str, str], platform: str, expected: bool) -> None:
    from runtime.cli import start

    assert start_window.has_display(environment, platform) is expected
    assert start.has_display(environment, platform) is expected, "the program decides in the same way"


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


def test_the_first_file_can_be_read_by_the_oldest_python() -> None:
    """Python 2 refuses a file with a letter beyond ASCII before it could say which Python is needed."""
    start = Path(start_main.__file__).with_name("start.py").read_bytes()
    assert start.isascii()
    assert b"annotations" not in start
    assert b' f"' not in start
