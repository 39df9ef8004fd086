"""What a benchmark leaves behind: figures with everything needed to judge them, as JSON and as a table for people."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from runtime.bench.machine import Machine, describe
from runtime.bench.pairs import Interval
from runtime.bench.work import FIGURES

# Where llama.cpp's line about itself turns to what it was compiled for: "…, CPU : AVX2 = 1 | …".
INSTRUCTION_SETS = re.compile(r", \w+ : ")


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. `ours` and `theirs` are medians; `interval` is that of the ratio where two sides were measured, else
    that of `ours`."""

    work: str
    figure: str
    unit: str
    higher_is_better: bool
    interval: Interval
    ours: float
    theirs: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Rows, and the machine, build and model they belong to. `raw` holds every measurement behind them."""

    title: str
    model: dict[str, Any]
    build: dict[str, str]
    settings: dict[str, Any]
    rows: tuple[Row, ...]
    other: str | None = None
    notes: tuple[str, ...] = ()
    raw: dict[str, Any] = field(default_factory=dict)
    machine: Machine = field(default_factory=describe)
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))


def build_facts(engine_build: str = "") -> dict[str, str]:
    """Versions of what was measured; `engine_build` is what the service says of llama-cpp-python and llama.cpp."""
    engine = {"engine": engine_build} if engine_build else {"llama-cpp-python": version_of("llama-cpp-python")}
    return {"headrace": version_of("headrace"), **engine}


def version_of(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"


def to_json(report: Report) -> str:
    return json.dumps(asdict(report), indent=2, ensure_ascii=False) + "\n"


def table(report: Report) -> list[list[str]]:
    """Header and rows as text, for the terminal and for Markdown."""
    compared = any(row.theirs is not None for row in report.rows)
    header = ["work", "figure", "ours", "theirs", "ratio", "95 % interval"] if compared else [
        "work", "figure", "median", "95 % interval"
    ]  # fmt: skip
    return [header, *(_compared(row) if compared else _alone(row) for row in report.rows)]


def markdown(report: Report) -> str:
    rows = table(report)
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]) + "\n"


def summary(report: Report) -> list[str]:
    """The lines above a table: what ran on what."""
    machine = report.machine
    gib = machine.memory_total / 2**30
    build = ", ".join(f"{name} {INSTRUCTION_SETS.split(version)[0]}" for name, version in report.build.items())
    return [
        f"{report.title}, {report.date}",
        f"model    {report.model.get('name', '?')}",
        f"machine  {machine.cpu}, {machine.cores} cores, {gib:.1f} GiB, {machine.os}",
        f"build    {build}",
        *([f"other    {report.other}"] if report.other else []),
        *([f"plan     {plan}"] if (plan := report.settings.get("plan")) else []),
    ]


def figure_row(work: str, key: str, spread: Interval, ours: float, theirs: float | None = None) -> Row:
    """A row for one of the figures that work.FIGURES explains."""
    figure = FIGURES[key]
    return Row(work, figure.title, figure.unit, figure.higher_is_better, spread, ours, theirs)


def _compared(row: Row) -> list[str]:
    wish = "higher is better" if row.higher_is_better else "lower is better"
    if row.theirs is None:
        *start, spread = _alone(row)
        return [*start, "", "", f"{spread}, {wish}"]
    spread = f"{row.interval.low:.3f} to {row.interval.high:.3f} ({row.interval.n} pairs, {wish})"
    theirs = _number(row.theirs, row.unit)
    return [row.work, row.figure, _number(row.ours, row.unit), theirs, f"{row.interval.median:.3f}", spread]


def _alone(row: Row) -> list[str]:
    spread = f"{_number(row.interval.low, row.unit)} to {_number(row.interval.high, row.unit)} ({row.interval.n} runs)"
    return [row.work, row.figure, _number(row.ours, row.unit), spread]


def _number(value: float, unit: str) -> str:
    if unit == "s" and abs(value) < 1:
        return f"{value * 1000:.1f} ms"
    return f"{value:.1f} {unit}" if abs(value) >= 10 else f"{value:.2f} {unit}"
