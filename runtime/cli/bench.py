"""`headrace bench`: starts what is to be measured, shows how far it is, prints the table and writes the report."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from models import limits
from models.gguf import read_model
from runtime.bench import report as reports
from runtime.bench.pairs import CONFIDENCE, least_needed
from runtime.bench.speed import Server, measure
from runtime.bench.speed import compare as compare_servers
from runtime.bench.work import WORKS, Size
from runtime.cli.connect import Connection, private
from runtime.cli.model import ChosenModel, choose
from runtime.cli.options import EngineTexts, engine_options, whole
from runtime.cli.problems import Problem, UsageProblem
from runtime.cli.talk import progress_shown
from runtime.client import Client
from runtime.config import EngineOptions
from runtime.errors import HeadraceError

PAIRS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Peer:
    """The other server, as typed."""

    url: str
    model: str | None
    api_key: str | None


def speed(model: str | None, pairs: str, json_file: str | None, engine: EngineTexts) -> None:
    count = _pairs(pairs)
    size = Size()
    with _ours(model, engine) as (server, chosen, connection), _heard() as heard, _errors_told():
        rows = measure(server, rounds=count, size=size, heard=heard)
        made = reports.Report(
            "headrace bench speed",
            _model_facts(chosen),
            reports.build_facts(_build(connection)),
            {"runs": count, "size": asdict(size), "plan": connection.plan},
            tuple(rows),
        )
    _deliver(made, json_file)


def compare(peer: Peer, work: str, model: str | None, pairs: str, json_file: str | None, engine: EngineTexts) -> None:
    count = _pairs(pairs)
    works = _works(work)
    size = Size()
    with _other(peer) as theirs, _ours(model, engine) as (ours, chosen, connection), _heard() as heard, _errors_told():
        rows, kept = compare_servers(ours, theirs, pairs=count, size=size, works=works, heard=heard)
        made = reports.Report(
            "headrace bench compare: ours against theirs",
            _model_facts(chosen),
            reports.build_facts(_build(connection)),
            {"pairs": count, "size": asdict(size), "plan": connection.plan},
            tuple(rows),
            other=f"{theirs.client.base_url} ({theirs.model})",
            raw={name: [asdict(pair) for pair in pairs_] for name, pairs_ in kept.items()},
        )
    _deliver(made, json_file)


def _pairs(text: str) -> int:
    return whole("--pairs", text, least_needed(CONFIDENCE), PAIRS_MAX)


def _works(text: str) -> Sequence[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or any(name not in WORKS for name in names):
        raise UsageProblem(f"--work takes some of {', '.join(WORKS)}, separated by commas, not {text!r}")
    return names


@contextmanager
def _ours(model: str | None, engine: EngineTexts) -> Iterator[tuple[Server, ChosenModel, Connection]]:
    def engine_for(path: str) -> EngineOptions:
        return engine_options(path, engine)

    engine_for("")
    chosen = choose(model)
    with progress_shown() as progress, private(str(chosen.path), engine_for, progress) as connection:
        yield Server(connection.client, connection.model), chosen, connection


@contextmanager
def _other(peer: Peer) -> Iterator[Server]:
    try:
        client = Client(peer.url, peer.api_key)
    except ValueError as error:
        raise UsageProblem(str(error)) from error
    with client:
        try:
            names = client.models() if peer.model is None else (peer.model,)
        except HeadraceError as error:
            raise Problem(error.message) from error
        if not names:
            raise Problem(f"{client.base_url} offers no model: name one with --model-name")
        yield Server(client, names[0])


@contextmanager
def _heard() -> Iterator[Callable[[str, int, int], None]]:
    """One line on stderr that says how far the benchmark is; nothing where that is not a terminal."""
    console = Console(stderr=True)
    with console.status("warming up") if console.is_terminal else _nothing() as status:

        def heard(work: str, done: int, total: int) -> None:
            if status is not None:
                status.update(f"{work}: {done} of {total}")

        yield heard


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _errors_told() -> Iterator[None]:
    try:
        yield
    except (HeadraceError, ValueError) as error:
        raise Problem(f"the benchmark was broken off: {error}") from error


def _build(connection: Connection) -> str:
    return str(connection.client.about().get("build") or "")


def _model_facts(chosen: ChosenModel) -> dict[str, object]:
    info = read_model(chosen.path)
    return {
        "name": chosen.name,
        "architecture": info.architecture,
        "parameters": info.n_params,
        "size_bytes": info.size_bytes,
        "bits_per_weight": round(info.bits_per_weight, 3),
    }


def _deliver(made: reports.Report, json_file: str | None) -> None:
    if json_file == "-":
        sys.stdout.write(reports.to_json(made))
        return
    console = Console(highlight=False)
    for line in reports.summary(made):
        console.print(line, markup=False)
    header, *rows = reports.table(made)
    table = Table(*header)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    if json_file is not None:
        _write(Path(json_file), reports.to_json(made))
        console.print(f"Report written to {json_file}", markup=False)


def _write(path: Path, text: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, limits.FILE_MODE)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise Problem(f"{path} cannot be written: {error.strerror or error}") from error
