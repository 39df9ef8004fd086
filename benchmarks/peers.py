#!/usr/bin/env python3
"""Our service beside llama.cpp's own programs, on this machine, in one run: the rows of docs/benchmarks.md.

    python benchmarks/peers.py --llama-bin DIR --model FILE.gguf [--pairs 15] [--rows decode,mixed,…] [--json OUT]

DIR holds llama-server and llama-bench, built from the same llama.cpp commit and for the same processor as the engine.
Both servers run at their defaults and stay loaded; every pair measures one after the other, and who goes first
alternates. The Markdown table goes to stdout, the measurements to the JSON file.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import psutil

from runtime.bench import report as reports
from runtime.bench.pairs import Interval, Pair, alternate, interval, ratio
from runtime.bench.speed import Server
from runtime.bench.work import Size, ask, words
from runtime.client import Client
from runtime.config import EngineOptions
from runtime.private import PrivateService

START_S = 120.0
OVERHEAD_TOKENS = 16
CPU_TOKENS = 256
AT_SPEED = 100.0


@dataclass(frozen=True, slots=True)
class Bench:
    """What every row may use."""

    ours: Server
    theirs: Server
    service: PrivateService
    llama_bench: Path
    model: Path
    pairs: int
    size: Size


@dataclass(frozen=True, slots=True)
class Result:
    """A row with the bound it has to keep; `kept` compares the unfavourable end of the interval with it."""

    row: reports.Row
    against: str
    bound: float
    raw: Sequence[Mapping[str, object]]

    @property
    def kept(self) -> bool:
        return (
            self.row.interval.low >= self.bound if self.row.higher_is_better else self.row.interval.high <= self.bound
        )


def decode(bench: Bench) -> Iterator[Result]:
    """One stream: against llama-bench, which generates without a server, and against llama-server."""
    pairs = _pairs(bench, _ours(bench, "decode"), lambda seed: {"decode_tok_s": _llama_bench(bench)}, "llama-bench")
    yield _compared("decode", "decode_tok_s", pairs, "llama-bench tg", 0.95)
    pairs = _pairs(bench, _ours(bench, "decode"), _theirs(bench, "decode"), "decode")
    yield _compared("decode", "decode_tok_s", pairs, "llama-server", 1.0)


def mixed(bench: Bench) -> Iterator[Result]:
    """A chat is running while a long prompt arrives."""
    pairs = _pairs(bench, _ours(bench, "mixed"), _theirs(bench, "mixed"), "mixed")
    yield _compared("mixed", "gap_max_s", pairs, "llama-server", 0.15)
    yield _compared("mixed", "long_first_token_s", pairs, "llama-server", 1.25)


def overhead(bench: Bench) -> Iterator[Result]:
    """Time of a short request that the engine did not spend on prompt or tokens: HTTP, frames, text, queue."""
    raw = []
    for seed in range(2 * bench.pairs + 1):
        reply = ask(bench.ours.client, bench.ours.model, words(8, seed), OVERHEAD_TOKENS)
        engine_ms = (reply.usage.prompt_ms or 0.0) + (reply.usage.predicted_ms or 0.0)
        raw.append({"overhead_ms": reply.total_s * 1000 - engine_ms, "engine_ms": engine_ms})
    spread = interval([one["overhead_ms"] for one in raw[1:]])
    row = reports.Row("short request", "time outside the model, p50", "ms", False, spread, spread.median)
    yield Result(row, "", 10.0, raw)


def cpu(bench: Bench) -> Iterator[Result]:
    """What the service process itself costs while one reply streams, at the speed seen and scaled to 100 tok/s."""
    process = psutil.Process(bench.service.pid)
    raw = []
    for seed in range(bench.pairs + 1):
        before = process.cpu_times()
        reply = ask(bench.ours.client, bench.ours.model, words(8, seed), CPU_TOKENS)
        after = process.cpu_times()
        used_s = after.user + after.system - before.user - before.system
        speed = reply.n_tokens / reply.total_s
        share = 100 * used_s / reply.total_s
        raw.append({"percent": share, "tok_s": speed, "percent_at_100": share * AT_SPEED / speed})
    spread = interval([one["percent_at_100"] for one in raw[1:]])
    seen = median(one["tok_s"] for one in raw[1:])
    row = reports.Row(
        "decode", f"service CPU at 100 tok/s (measured at {seen:.0f})", "% of a core", False, spread, spread.median
    )
    yield Result(row, "", 5.0, raw)


ROWS: dict[str, Callable[[Bench], Iterator[Result]]] = {
    "decode": decode,
    "mixed": mixed,
    "overhead": overhead,
    "cpu": cpu,
}


def _ours(bench: Bench, work: str) -> Callable[[int], Mapping[str, float]]:
    return lambda seed: bench.ours.run(work, seed, bench.size)


def _theirs(bench: Bench, work: str) -> Callable[[int], Mapping[str, float]]:
    return lambda seed: bench.theirs.run(work, seed, bench.size)


def _pairs(
    bench: Bench,
    ours: Callable[[int], Mapping[str, float]],
    theirs: Callable[[int], Mapping[str, float]],
    name: str,
) -> tuple[Pair, ...]:
    def told(index: int, pair: Pair) -> None:
        print(f"{name} {index + 1}/{bench.pairs} ours {dict(pair.ours)} theirs {dict(pair.theirs)}", file=sys.stderr)

    return alternate(ours, theirs, pairs=bench.pairs, on_pair=told)


def _compared(work: str, key: str, pairs: Sequence[Pair], against: str, bound: float) -> Result:
    ours, theirs = median(p.ours[key] for p in pairs), median(p.theirs[key] for p in pairs)
    row = reports.figure_row(work, key, ratio(pairs, key), ours, theirs)
    return Result(row, against, bound, [asdict(pair) for pair in pairs])


def _llama_bench(bench: Bench) -> float:
    """tg tokens per second of one run, with its defaults."""
    command = [
        bench.llama_bench,
        "-m",
        bench.model,
        "-p",
        "0",
        "-n",
        str(bench.size.out_tokens),
        "-r",
        "1",
        "-o",
        "json",
    ]
    done = subprocess.run(command, capture_output=True, check=True)
    return float(json.loads(done.stdout)[0]["avg_ts"])


@contextmanager
def llama_server(program: Path, model: Path) -> Iterator[Server]:
    """llama-server at its defaults on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(program), "-m", str(model), "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            with Client(f"http://127.0.0.1:{port}") as client:
                _wait_ready(client, process)
                yield Server(client, client.models()[0])
        finally:
            process.terminate()


def _wait_ready(client: Client, process: subprocess.Popen[bytes]) -> None:
    for _ in range(int(START_S / 0.2)):
        if client.health().state == "ok":
            return
        try:
            process.wait(0.2)
        except subprocess.TimeoutExpired:
            continue
        raise SystemExit(f"llama-server ended with exit code {process.returncode}")
    raise SystemExit(f"llama-server was not ready after {START_S:.0f} s")


def markdown(results: Sequence[Result]) -> str:
    lines = [
        "| work | figure | ours | peer | ratio or figure | 95 % interval | bound | kept |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        row = result.row
        theirs = "" if row.theirs is None else f"{row.theirs:.3f} {row.unit} ({result.against})"
        sign = "≥" if row.higher_is_better else "≤"
        lines.append(
            f"| {row.work} | {row.figure} | {row.ours:.3f} {row.unit} | {theirs} | {row.interval.median:.3f} | "
            f"{_spread(row.interval)} | {sign} {result.bound:g} | {'yes' if result.kept else 'NO'} |"
        )
    return "\n".join(lines) + "\n"


def _spread(spread: Interval) -> str:
    return f"{spread.low:.3f} to {spread.high:.3f}, n = {spread.n}"


def main() -> int:
    arguments = _arguments()
    engine = EngineOptions(str(arguments.model))
    with (
        PrivateService(engine, model=arguments.model.stem) as service,
        llama_server(arguments.llama_bin / "llama-server", arguments.model) as theirs,
    ):
        ours = Server(service.client, service.client.models()[0])
        size = Size(out_tokens=arguments.out_tokens)
        bench = Bench(
            ours, theirs, service, arguments.llama_bin / "llama-bench", arguments.model, arguments.pairs, size
        )
        results = [result for name in arguments.rows for result in ROWS[name](bench)]
        about = service.client.about()
    made = reports.Report(
        "our service beside llama-server and llama-bench",
        {"name": arguments.model.stem, "size_bytes": arguments.model.stat().st_size},
        reports.build_facts(str(about.get("build") or "")),
        {"pairs": arguments.pairs, "size": asdict(size), "plan": about.get("plan")},
        tuple(result.row for result in results),
        other="llama-server and llama-bench at their defaults",
        raw={f"{index} {r.row.work}, {r.row.figure}": list(r.raw) for index, r in enumerate(results)},
    )
    print("\n".join(reports.summary(made)), file=sys.stderr)
    print(markdown(results))
    if arguments.json:
        arguments.json.write_text(reports.to_json(made), encoding="utf-8")
    return 0 if all(result.kept for result in results) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare the service with llama.cpp's own programs.")
    parser.add_argument("--llama-bin", type=Path, required=True, help="folder with llama-server and llama-bench")
    parser.add_argument("--model", type=Path, required=True, help="GGUF file that both load")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--out-tokens", type=int, default=128)
    parser.add_argument("--rows", type=lambda text: text.split(","), default=list(ROWS), help=",".join(ROWS))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if unknown := set(arguments.rows) - set(ROWS):
        parser.error(f"--rows knows {', '.join(ROWS)}, not {', '.join(unknown)}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
