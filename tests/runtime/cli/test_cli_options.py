"""What is typed: every bad value is one sentence and exit code 2, every good one arrives in the options."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from runtime.cli.main import app
from runtime.cli.options import EngineTexts, ServiceTexts, engine_options, service_options, size
from runtime.cli.problems import UsageProblem
from runtime.config import EngineOptions, ServiceOptions

BAD = [
    ["--ctx", "abc"],
    ["--ctx", "0"],
    ["--ctx", "99999999999"],
    ["--parallel", "0"],
    ["--parallel", "-3"],
    ["--parallel", "257"],
    ["--gpu-layers", "all"],
    ["--gpu-layers", "-1"],
    ["--kv-type", "f17"],
    ["--threads", "0"],
    ["--flash-attn", "yes"],
    ["--port", "65536"],
    ["--port", "http"],
    ["--on-overflow", "drop"],
    ["--max-body", "2TiB"],
    ["--max-body", "0"],
    ["--max-body", "lots"],
    ["--max-connections", "0"],
    ["--max-waiting", "-1"],
    ["--receive-timeout", "nan"],
    ["--keep-alive", "0"],
    ["--allow-host", "*.lan"],
    ["--allow-origin", "example.com"],
    ["--api-key", "schlüssel"],
    ["--host", "0.0.0.0"],
    ["--host", "::"],
    ["--host", "example.com"],
]


@pytest.mark.parametrize("arguments", BAD, ids=" ".join)
def test_a_bad_value_is_one_sentence(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_API_KEY", raising=False)
    result = CliRunner().invoke(app, ["serve", *arguments])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert arguments[0] in result.stderr
    assert "Traceback" not in result.stderr


def test_an_unknown_option_is_a_usage_error() -> None:
    assert CliRunner().invoke(app, ["serve", "--nonsense"]).exit_code == 2
    assert CliRunner().invoke(app, ["nonsense"]).exit_code == 2


def test_an_open_host_is_refused_with_the_way_out_and_allowed_with_a_key() -> None:
    with pytest.raises(UsageProblem, match="--api-key"):
        service_options("m", "p", ServiceTexts(host="0.0.0.0"))
    assert service_options("m", "p", ServiceTexts(host="0.0.0.0", api_key="k")).host == "0.0.0.0"
    assert service_options("m", "p", ServiceTexts(host="::1")).api_key is None


def test_nothing_typed_is_the_defaults() -> None:
    assert engine_options("p", EngineTexts()) == EngineOptions("p")
    assert service_options("m", "p", ServiceTexts()) == ServiceOptions("m", "p")


def test_everything_typed_arrives() -> None:
    engine = engine_options("p", EngineTexts("4096", "4", "12", "q8_0", "2", "on", "chatml"))
    assert engine == EngineOptions("p", 4096, 4, 12, "q8_0", 2, "on", template="chatml")
    assert engine_options("p", EngineTexts(gpu_layers="auto")).gpu_layers == -1
    service = service_options(
        "m",
        "p",
        ServiceTexts("localhost", "0", "k", ("box.lan",), ("https://a.b",), "trim", "64MiB", "9", "0", "1.5", "2"),
    )
    assert (service.host, service.port, service.api_key, service.on_overflow) == ("localhost", 0, "k", "trim")
    assert (service.allow_hosts, service.allow_origins) == (("box.lan",), ("https://a.b",))
    assert (service.body_bytes, service.connections, service.waiting) == (64 * 1024**2, 9, 0)
    assert (service.receive_s, service.keep_alive_s) == (1.5, 2.0)


@pytest.mark.parametrize(
    ("text", "number"), [("1", 1), ("1k", 1024), ("1.5 MiB", 1572864), ("1gb", 1024**3), ("64MB", 64 * 1024**2)]
)
def test_sizes(text: str, number: int) -> None:
    assert size("--max-body", text, 1024**3) == number
