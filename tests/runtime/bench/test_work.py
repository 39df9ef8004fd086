"""The work and its report, against a scripted server."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from fake_openai_server import FakeOpenAiServer

from runtime.bench import report, speed
from runtime.bench.machine import parse_cpuinfo
from runtime.bench.pairs import TooFew
from runtime.bench.work import FIGURES, WORKS, Size, ask, words
from runtime.client import Client
from runtime.errors import RemoteError

SIZE = Size(prompt_words=3, long_words=9, out_tokens=4, requests=3)


@pytest.fixture
def server() -> Iterator[FakeOpenAiServer]:
    with FakeOpenAiServer(words=tuple(f"word{n}" for n in range(10))) as fake:
        yield fake


def side(server: FakeOpenAiServer) -> speed.Server:
    return speed.Server(Client(server.url), "m")


def test_words_are_the_same_for_a_seed_and_differ_between_seeds() -> None:
    assert words(50, 1) == words(50, 1) != words(50, 2)
    assert len(words(50, 1).split()) == 50


@pytest.mark.parametrize("name", sorted(WORKS))
def test_every_work_brings_figures_that_are_explained(server: FakeOpenAiServer, name: str) -> None:
    figures = side(server).run(name, 1, SIZE)
    assert figures
    assert figures.keys() <= FIGURES.keys()
    assert all(value > 0 for value in figures.values())


def test_both_servers_get_the_same_bytes_and_never_the_same_text_twice(server: FakeOpenAiServer) -> None:
    with FakeOpenAiServer(words=server.words) as other:
        rows, pairs = speed.compare(
            side(server), side(other), pairs=6, size=SIZE, works=["decode"], heard=lambda *_: None
        )
        prompts = [body["prompt"] for body in server.bodies]
        assert sorted(prompts) == sorted(body["prompt"] for body in other.bodies)
    assert len(prompts) == len(set(prompts)) == 7
    assert len(pairs["decode"]) == 6
    assert {row.figure for row in rows} == {"decode", "first token"}


def test_a_failing_server_ends_the_benchmark_with_its_error(server: FakeOpenAiServer) -> None:
    server.mode = "error_midway"
    with pytest.raises(RemoteError, match="the model process stopped"):
        side(server).run("mixed", 1, SIZE)


def test_a_server_that_says_nothing_is_refused(server: FakeOpenAiServer) -> None:
    server.words = ("one",)
    with Client(server.url) as client, pytest.raises(ValueError, match="nothing can be timed"):
        ask(client, "m", "x", 4)


def test_measure_counts_its_runs_and_refuses_too_few(server: FakeOpenAiServer) -> None:
    heard: list[tuple[str, int, int]] = []
    rows = speed.measure(side(server), rounds=6, size=SIZE, heard=lambda *what: heard.append(what))
    assert [row.work for row in rows] == ["prefill", "prefill", "decode", "decode"]
    assert len(heard) == 12
    with pytest.raises(TooFew, match="at least 6"):
        speed.measure(side(server), rounds=2, size=SIZE, heard=lambda *_: None)


def test_report_is_json_and_a_table(server: FakeOpenAiServer) -> None:
    rows, _ = speed.compare(side(server), side(server), pairs=6, size=SIZE, works=["mixed"], heard=lambda *_: None)
    made = report.Report(
        "comparison", {"name": "m"}, report.build_facts("abc123"), {"pairs": 6}, tuple(rows), other="x"
    )
    read = json.loads(report.to_json(made))
    assert read["build"]["engine"] == "abc123"
    assert read["machine"]["memory_total"] > 0
    assert {row["interval"]["n"] for row in read["rows"]} == {6}
    table = report.markdown(made).splitlines()
    assert table[0].count("|") == table[1].count("|") == table[2].count("|")
    assert "lower is better" in table[2]
    assert len(table) == 2 + len(rows)


def test_cpuinfo_of_both_families() -> None:
    assert parse_cpuinfo("processor\t: 0\nmodel name\t: Fast 1\nflags\t\t: fpu avx2\n\nmodel name\t: Fast 2\n") == (
        "Fast 1",
        frozenset({"fpu", "avx2"}),
    )
    assert parse_cpuinfo("processor : 0\nFeatures : asimd sve\n")[1] == {"asimd", "sve"}
